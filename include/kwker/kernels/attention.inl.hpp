// Attention over the cache. Scores, maximum, weights and weighted sum are four passes over whole rows of scores, so
// nothing depends on how rows are grouped: the maximum of floats has no order, sums over positions run in 16 fixed
// lanes, ascending, and the weighted sum runs over blocks of 32 absolute positions in the order of TDPBF16PS.
// Positions a row does not see have weight 0; the cache holds finite values everywhere, so they add exactly nothing.
//
// Keys, then values, are read once, in order, 4 KiB after they were asked for: at the end of the keys the first values,
// at the end of the values what is read next.

/// The queries of a call, numbered row by row: query i is head i % group of row i / group.
struct QueryTile {
  const AttentionArgs& args;
  int first;

  const float* query(int i) const { return args.queries + at(i, args.query_stride); }
  float* out(int i) const { return args.out + at(i, args.out_stride); }
  /// Query i sees the positions [begin(i), end(i)).
  int end(int i) const { return args.position + (first + i) / args.group + 1; }
  int begin(int i) const { return args.window == 0 ? 0 : std::max(0, end(i) - args.window); }

 private:
  std::int64_t at(int i, std::int64_t stride) const {
    const int index = first + i;
    return index / args.group * stride + std::int64_t{index % args.group} * args.head_dim;
  }
};

/// The positions that some query of a tile sees, in whole blocks of 32. Scores are stored from `begin` on, `size()` a
/// query.
struct PositionRange {
  int begin;
  int end;

  int size() const { return end - begin; }
};

/// Few queries have too few sums under way to hide the latency of an addition: they take two vectors of positions or of
/// values at once.
template <int kQueries>
constexpr int kAttentionVectors = kQueries * 4 <= kQueriesAtOnce ? 2 : 1;

template <int kQueries>
inline void attention_scores(const QueryTile& tile, PositionRange range, float* scores) {
  constexpr int kVectors = kAttentionVectors<kQueries>, kStep = kVectors * kNative;
  const AttentionArgs& args = tile.args;
  const float* query[kQueries];
  for (int m = 0; m < kQueries; ++m) query[m] = tile.query(m);
  for (int position = range.begin; position < range.end; position += kStep) {
    const bfloat16* pairs[kVectors];
    const bfloat16* ahead[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      // Position p is lane p % 16 of block p / 16.
      const int first = position + v * kNative, later = first / 16 * 16 + 32;
      pairs[v] = args.keys + std::int64_t{first / 16 * 16} * args.head_dim + first % 16 * 2;
      ahead[v] = later < range.end ? args.keys + std::int64_t{later} * args.head_dim
                                   : args.values + (std::int64_t{range.begin} + later - range.end) * args.head_dim;
    }
    Native acc[kVectors][kQueries];
    for (int v = 0; v < kVectors; ++v) {
      for (int m = 0; m < kQueries; ++m) acc[v][m] = native_set1(0.0f);
    }
    for (int d = 0; d < args.head_dim; d += 32) {
      Native even[kVectors][kQueries], odd[kVectors][kQueries];
      for (int v = 0; v < kVectors; ++v) {
        for (int m = 0; m < kQueries; ++m) even[v][m] = odd[v][m] = native_set1(0.0f);
      }
      for (int j = d; j < d + 32; j += 2) {
        for (int v = 0; v < kVectors; ++v) {
          prefetch(ahead[v] + 16 * j);
          Native first, second;
          native_pairs(pairs[v] + 16 * j, first, second);
          for (int m = 0; m < kQueries; ++m) {
            even[v][m] = fma(first, native_set1(query[m][j]), even[v][m]);
            odd[v][m] = fma(second, native_set1(query[m][j + 1]), odd[v][m]);
          }
        }
      }
      for (int v = 0; v < kVectors; ++v) {
        for (int m = 0; m < kQueries; ++m) acc[v][m] = add(acc[v][m], add(even[v][m], odd[v][m]));
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      for (int m = 0; m < kQueries; ++m) {
        native_store(scores + std::int64_t{m} * range.size() + (position - range.begin) + v * kNative, acc[v][m]);
      }
    }
  }
}

/// x in the lanes of positions [position, position + 16) that are seen, fill in the others.
inline F32 keep_seen(F32 x, int position, int begin, int end, F32 fill) {
  x = keep_first(x, std::clamp(end - position, 0, 16), fill);
  return begin <= position ? x : keep_first(fill, std::clamp(begin - position, 0, 16), x);
}

/// Turns the scores of one query, of positions [range.begin, range.end), of which it sees [begin, end), into weights
/// exp((score - max) * scale), rounded to bfloat16; returns their sum.
inline float attention_weights(float* scores, PositionRange range, int begin, int end, float scale) {
  const F32 lowest = set1(-3.0e38f);
  F32 largest = lowest;
  scores -= range.begin;  // now indexed by position
  for (int position = range.begin; position < range.end; position += 16) {
    largest = max(keep_seen(load(scores + position), position, begin, end, lowest), largest);
  }
  const F32 top = set1(reduce_max(largest));
  F32 sum = set1(0.0f);
  for (int position = range.begin; position < range.end; position += 16) {
    const F32 weight = round_bf16(exp(mul(sub(load(scores + position), top), set1(scale))));
    const F32 seen = keep_seen(weight, position, begin, end, set1(0.0f));
    store(scores + position, seen);
    sum = add(sum, seen);
  }
  return reduce_add(sum);
}

template <int kQueries>
inline void attention_sum(const QueryTile& tile, PositionRange range, const float* weights, const float* sums) {
  constexpr int kVectors = kAttentionVectors<kQueries>, kStep = kVectors * kNative;
  const AttentionArgs& args = tile.args;
  for (int m = 0; m < kQueries; ++m) {
    for (int d = 0; d < args.head_dim; d += 16) store(tile.out(m) + d, set1(0.0f));
  }
  for (int position = range.begin; position < range.end; position += 32, weights += 32) {
    const bfloat16* values = args.values + std::int64_t{position} * args.head_dim;
    const bfloat16* following = values + 32 * args.head_dim;
    const auto* next = static_cast<const bfloat16*>(args.next);
    const bfloat16* ahead = position + 32 < range.end || next == nullptr ? following : next;
    for (int d = 0; d < args.head_dim; d += kStep) {
      Native even[kVectors][kQueries], odd[kVectors][kQueries];
      for (int v = 0; v < kVectors; ++v) {
        for (int m = 0; m < kQueries; ++m) even[v][m] = odd[v][m] = native_set1(0.0f);
      }
      for (int j = 0; j < 32; j += 2) {
        for (int v = 0; v < kVectors; ++v) {
          // Value d is lane d % 16 of run d / 16.
          const int first_d = d + v * kNative, offset = first_d / 16 * 512 + 16 * j;
          prefetch(ahead + offset);
          Native first, second;
          native_pairs(values + offset + first_d % 16 * 2, first, second);
          for (int m = 0; m < kQueries; ++m) {
            const float* weight = weights + std::int64_t{m} * range.size() + j;
            even[v][m] = fma(first, native_set1(weight[0]), even[v][m]);
            odd[v][m] = fma(second, native_set1(weight[1]), odd[v][m]);
          }
        }
      }
      for (int v = 0; v < kVectors; ++v) {
        for (int m = 0; m < kQueries; ++m) {
          float* out = tile.out(m) + d + v * kNative;
          native_store(out, add(native_load(out), add(even[v][m], odd[v][m])));
        }
      }
    }
  }
  for (int m = 0; m < kQueries; ++m) {
    for (int d = 0; d < args.head_dim; d += 16) {
      // Adding 0 makes every zero +0: a block that weighs nothing could otherwise turn a -0 into one.
      store(tile.out(m) + d, add(div(load(tile.out(m) + d), set1(sums[m])), set1(0.0f)));
    }
  }
}

template <int kQueries>
inline void attention_tile(const QueryTile& tile) {
  const PositionRange range{tile.begin(0) / 32 * 32, round_up(tile.end(kQueries - 1), 32)};
  float* scores = tile.args.scratch;
  attention_scores<kQueries>(tile, range, scores);
  float sums[kQueries];
  for (int m = 0; m < kQueries; ++m) {
    sums[m] =
        attention_weights(scores + std::int64_t{m} * range.size(), range, tile.begin(m), tile.end(m), tile.args.scale);
  }
  attention_sum<kQueries>(tile, range, scores, sums);
}

template <int kQueries>
inline void attention_queries(const QueryTile& tile, int count) {
  if constexpr (kQueries > 1) {
    if (count < kQueries) return attention_queries<kQueries - 1>(tile, count);
  }
  attention_tile<kQueries>(tile);
}

inline void attention(const AttentionArgs& args) {
  for (int first = args.first_query; first < args.last_query; first += kQueriesAtOnce) {
    attention_queries<kQueriesAtOnce>(QueryTile{args, first}, std::min(kQueriesAtOnce, args.last_query - first));
  }
}
