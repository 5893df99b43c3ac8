// Attention over the cache. Scores, maximum, weights and weighted sum are four passes over whole rows of scores, so
// nothing depends on how rows are grouped: the maximum of floats has no order, sums over positions run in 16 fixed
// lanes, ascending, and the weighted sum runs over blocks of 32 absolute positions in the order of TDPBF16PS.
// Positions a row does not see have weight 0; the cache holds finite values everywhere, so they add exactly nothing.

/// The queries of a call, numbered row by row: query i is head i % group of row i / group.
struct QueryTile {
  const AttentionArgs& args;
  int first;

  const float* query(int i) const { return args.queries + at(i, args.query_stride); }
  float* out(int i) const { return args.out + at(i, args.out_stride); }
  /// Positions query i sees.
  int seen(int i) const { return args.position + (first + i) / args.group + 1; }

 private:
  std::int64_t at(int i, std::int64_t stride) const {
    const int index = first + i;
    return index / args.group * stride + std::int64_t{index % args.group} * args.head_dim;
  }
};

template <int kQueries>
inline void attention_scores(const QueryTile& tile, int length, float* scores) {
  const AttentionArgs& args = tile.args;
  const float* query[kQueries];
  for (int m = 0; m < kQueries; ++m) query[m] = tile.query(m);
  for (int position = 0; position < length; position += 16) {
    for (int part = 0; part < 16; part += kNative) {
      const bfloat16* pairs = args.keys + std::int64_t{position} * args.head_dim + 2 * part;
      Native acc[kQueries];
      for (int m = 0; m < kQueries; ++m) acc[m] = native_set1(0.0f);
      for (int d = 0; d < args.head_dim; d += 32) {
        Native even[kQueries], odd[kQueries];
        for (int m = 0; m < kQueries; ++m) even[m] = odd[m] = native_set1(0.0f);
        for (int j = d; j < d + 32; j += 2, pairs += 32) {
          Native first, second;
          native_pairs(pairs, first, second);
          for (int m = 0; m < kQueries; ++m) {
            even[m] = fma(first, native_set1(query[m][j]), even[m]);
            odd[m] = fma(second, native_set1(query[m][j + 1]), odd[m]);
          }
        }
        for (int m = 0; m < kQueries; ++m) acc[m] = add(acc[m], add(even[m], odd[m]));
      }
      for (int m = 0; m < kQueries; ++m) native_store(scores + std::int64_t{m} * length + position + part, acc[m]);
    }
  }
}

/// Turns the scores of one query into weights exp((score - max) * scale), rounded to bfloat16; returns their sum.
inline float attention_weights(float* scores, int length, int seen, float scale) {
  const F32 lowest = set1(-3.0e38f);
  F32 largest = lowest;
  for (int position = 0; position < seen; position += 16) {
    largest = max(keep_first(load(scores + position), std::min(seen - position, 16), lowest), largest);
  }
  const F32 top = set1(reduce_max(largest));
  F32 sum = set1(0.0f);
  int position = 0;
  for (; position < seen; position += 16) {
    const F32 weight = exp(mul(sub(load(scores + position), top), set1(scale)));
    const F32 rounded = keep_first(round_bf16(weight), std::min(seen - position, 16), set1(0.0f));
    store(scores + position, rounded);
    sum = add(sum, rounded);
  }
  for (; position < length; position += 16) store(scores + position, set1(0.0f));
  return reduce_add(sum);
}

template <int kQueries>
inline void attention_sum(const QueryTile& tile, int length, const float* weights, const float* sums) {
  const AttentionArgs& args = tile.args;
  for (int d = 0; d < args.head_dim; d += 16) {
    for (int part = 0; part < 16; part += kNative) {
      const bfloat16* pairs = args.values + d * args.capacity + 2 * part;
      Native acc[kQueries];
      for (int m = 0; m < kQueries; ++m) acc[m] = native_set1(0.0f);
      for (int block = 0; block < length; block += 32) {
        Native even[kQueries], odd[kQueries];
        for (int m = 0; m < kQueries; ++m) even[m] = odd[m] = native_set1(0.0f);
        for (int j = block; j < block + 32; j += 2, pairs += 32) {
          Native first, second;
          native_pairs(pairs, first, second);
          for (int m = 0; m < kQueries; ++m) {
            const float* weight = weights + std::int64_t{m} * length + j;
            even[m] = fma(first, native_set1(weight[0]), even[m]);
            odd[m] = fma(second, native_set1(weight[1]), odd[m]);
          }
        }
        for (int m = 0; m < kQueries; ++m) acc[m] = add(acc[m], add(even[m], odd[m]));
      }
      for (int m = 0; m < kQueries; ++m) {
        // Adding 0 makes every zero +0: a block that weighs nothing could otherwise turn a -0 into one.
        const Native mean = div(acc[m], native_set1(sums[m]));
        native_store(tile.out(m) + d + part, add(mean, native_set1(0.0f)));
      }
    }
  }
}

template <int kQueries>
inline void attention_tile(const QueryTile& tile) {
  const int length = round_up(tile.seen(kQueries - 1), 32);
  float* scores = tile.args.scratch;
  attention_scores<kQueries>(tile, length, scores);
  float sums[kQueries];
  for (int m = 0; m < kQueries; ++m) {
    sums[m] = attention_weights(scores + std::int64_t{m} * length, length, tile.seen(m), tile.args.scale);
  }
  attention_sum<kQueries>(tile, length, scores, sums);
}

template <int kQueries>
inline void attention_queries(const QueryTile& tile, int count) {
  if constexpr (kQueries > 1) {
    if (count < kQueries) return attention_queries<kQueries - 1>(tile, count);
  }
  attention_tile<kQueries>(tile);
}

inline void attention(const AttentionArgs& args) {
  const int queries = args.rows * args.group;
  for (int first = 0; first < queries; first += kMaxRows) {
    attention_queries<kMaxRows>(QueryTile{args, first}, std::min(kMaxRows, queries - first));
  }
}
