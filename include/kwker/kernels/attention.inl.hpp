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

  const float* query(int i) const { return args.queries + std::int64_t{first + i} * args.head_dim; }
  float* out(int i) const {
    const int index = first + i;
    return args.out + index / args.group * args.out_stride + std::int64_t{index % args.group} * args.head_dim;
  }
  /// Query i sees the positions [begin(i), end(i)).
  int end(int i) const { return args.position + (first + i) / args.group + 1; }
  int begin(int i) const { return args.window == 0 ? 0 : std::max(0, end(i) - args.window); }
};

/// Positions in whole blocks of 32.
struct PositionRange {
  int begin;
  int end;
};

/// What of [first, last) some of `count` queries of a tile see.
inline PositionRange seen_positions(const QueryTile& tile, int count, int first, int last) {
  return {std::max(first, tile.begin(0) / 32 * 32), std::min(last, round_up(tile.end(count - 1), 32))};
}

/// Few queries have too few sums under way to hide the latency of an addition: they take two vectors of positions or of
/// values at once.
template <int kQueries>
constexpr int kAttentionVectors = kQueries * 4 <= kQueriesAtOnce ? 2 : 1;

/// scores[m * stride]: of query m and the first position.
template <int kQueries>
inline void tile_scores(const QueryTile& tile, PositionRange range, float* scores, std::int64_t stride) {
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
        native_store(scores + m * stride + (position - range.begin) + v * kNative, acc[v][m]);
      }
    }
  }
}

/// x in the lanes of positions [position, position + 16) that are seen, fill in the others.
inline F32 keep_seen(F32 x, int position, int begin, int end, F32 fill) {
  x = keep_first(x, std::clamp(end - position, 0, 16), fill);
  return begin <= position ? x : keep_first(fill, std::clamp(begin - position, 0, 16), x);
}

/// The weights exp((score - max) * scale) of one query, rounded to bfloat16, for positions of `range`, of which it sees
/// [begin, end); returns their sum. Scores and weights may be the same memory.
inline float query_weights(const float* scores, float* weights, PositionRange range, int begin, int end, float scale) {
  const F32 lowest = set1(-3.0e38f);
  F32 largest = lowest;
  scores -= range.begin;  // now indexed by position
  weights -= range.begin;
  for (int position = range.begin; position < range.end; position += 16) {
    largest = max(keep_seen(load(scores + position), position, begin, end, lowest), largest);
  }
  const F32 top = set1(reduce_max(largest));
  F32 sum = set1(0.0f);
  for (int position = range.begin; position < range.end; position += 16) {
    const F32 weight = round_bf16(exp(mul(sub(load(scores + position), top), set1(scale))));
    const F32 seen = keep_seen(weight, position, begin, end, set1(0.0f));
    store(weights + position, seen);
    sum = add(sum, seen);
  }
  return reduce_add(sum);
}

/// Columns [first, last), multiples of 32, of the weighted mean of the values. weights[m * stride]: of query m and the
/// first position.
template <int kQueries>
inline void tile_sums(const QueryTile& tile, PositionRange range, const float* weights, std::int64_t stride,
                      const float* sums, int first, int last) {
  constexpr int kVectors = kAttentionVectors<kQueries>, kStep = kVectors * kNative;
  const AttentionArgs& args = tile.args;
  for (int m = 0; m < kQueries; ++m) {
    for (int d = first; d < last; d += 16) store(tile.out(m) + d, set1(0.0f));
  }
  for (int position = range.begin; position < range.end; position += 32, weights += 32) {
    const bfloat16* values = args.values + std::int64_t{position} * args.head_dim;
    const bfloat16* following = values + 32 * args.head_dim;
    const auto* next = static_cast<const bfloat16*>(args.next);
    const bfloat16* ahead = position + 32 < range.end || next == nullptr ? following : next;
    for (int d = first; d < last; d += kStep) {
      Native even[kVectors][kQueries], odd[kVectors][kQueries];
      for (int v = 0; v < kVectors; ++v) {
        for (int m = 0; m < kQueries; ++m) even[v][m] = odd[v][m] = native_set1(0.0f);
      }
      for (int j = 0; j < 32; j += 2) {
        for (int v = 0; v < kVectors; ++v) {
          // Value d is lane d % 16 of run d / 16.
          const int first_d = d + v * kNative, offset = first_d / 16 * 512 + 16 * j;
          prefetch(ahead + offset);
          Native even_values, odd_values;
          native_pairs(values + offset + first_d % 16 * 2, even_values, odd_values);
          for (int m = 0; m < kQueries; ++m) {
            const float* weight = weights + m * stride + j;
            even[v][m] = fma(even_values, native_set1(weight[0]), even[v][m]);
            odd[v][m] = fma(odd_values, native_set1(weight[1]), odd[v][m]);
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
    for (int d = first; d < last; d += 16) {
      // Adding 0 makes every zero +0: a block that weighs nothing could otherwise turn a -0 into one.
      store(tile.out(m) + d, add(div(load(tile.out(m) + d), set1(sums[m])), set1(0.0f)));
    }
  }
}

/// From scores to columns [first, last) of the result.
template <int kQueries>
inline void tile_result(const QueryTile& tile, PositionRange range, const float* scores, std::int64_t stride, int first,
                        int last) {
  const std::int64_t size = range.end - range.begin;
  float sums[kQueries];
  for (int m = 0; m < kQueries; ++m) {
    sums[m] = query_weights(scores + m * stride, tile.args.weights + m * size, range, tile.begin(m), tile.end(m),
                            tile.args.scale);
  }
  tile_sums<kQueries>(tile, range, tile.args.weights, size, sums, first, last);
}

/// All of it, the first step of two, the second.
struct WholeAttention {
  template <int kQueries>
  void run(const QueryTile& tile) const {
    const AttentionArgs& args = tile.args;
    const PositionRange range = seen_positions(tile, kQueries, 0, std::numeric_limits<int>::max());
    const std::int64_t size = range.end - range.begin;
    tile_scores<kQueries>(tile, range, args.weights, size);
    tile_result<kQueries>(tile, range, args.weights, size, 0, args.head_dim);
  }
};

struct ScoresOfPositions {
  int first, last;

  template <int kQueries>
  void run(const QueryTile& tile) const {
    const AttentionScores& scores = tile.args.scores;
    const PositionRange range = seen_positions(tile, kQueries, first, last);
    if (range.begin >= range.end) return;
    float* data = scores.data + tile.first * scores.stride + (range.begin - scores.begin);
    tile_scores<kQueries>(tile, range, data, scores.stride);
  }
};

struct SumsOfColumns {
  int first, last;

  template <int kQueries>
  void run(const QueryTile& tile) const {
    const AttentionScores& scores = tile.args.scores;
    const PositionRange range = seen_positions(tile, kQueries, 0, std::numeric_limits<int>::max());
    const float* data = scores.data + tile.first * scores.stride + (range.begin - scores.begin);
    tile_result<kQueries>(tile, range, data, scores.stride, first, last);
  }
};

template <int kQueries, class Work>
inline void attention_tile(const QueryTile& tile, int count, const Work& work) {
  if constexpr (kQueries > 1) {
    if (count < kQueries) return attention_tile<kQueries - 1>(tile, count, work);
  }
  work.template run<kQueries>(tile);
}

template <class Work>
inline void each_query_tile(const AttentionArgs& args, const Work& work) {
  const int queries = args.rows * args.group;
  for (int first = 0; first < queries; first += kQueriesAtOnce) {
    attention_tile<kQueriesAtOnce>(QueryTile{args, first}, std::min(kQueriesAtOnce, queries - first), work);
  }
}

inline void attention(const AttentionArgs& args) { each_query_tile(args, WholeAttention{}); }
inline void attention_scores(const AttentionArgs& args, int first, int last) {
  each_query_tile(args, ScoresOfPositions{first, last});
}
inline void attention_sums(const AttentionArgs& args, int first, int last) {
  each_query_tile(args, SumsOfColumns{first, last});
}
