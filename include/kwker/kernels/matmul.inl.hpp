// Matmul kernels, int4 and bf16: one tile of 16 outputs at a time, for up to kInt4Rows or kBf16Rows rows in registers.

/// The result of a tile depends on nothing but its weights and the row: kRows only says how many share a read.
template <int kRows>
inline void int4_tile(const std::uint8_t* w, const Int4Layout& layout, const Int8Rows& x, std::int64_t row, float* y,
                      const MatmulTarget& target) {
  F32 acc[kRows];
  for (int m = 0; m < kRows; ++m) {
    acc[m] = set1(0.0f);
    prefetch(y + (row + m) * target.stride);
  }
  for (int b = 0; b < layout.blocks(); ++b) {
    const Int4Block block = layout.block_at(b);
    I32 sums[kRows];
    if (block.common()) {
      int4_block_dot<kRows, true>(w, block, x.values_at(b, row), x.sums_at(b, row), sums);
    } else {
      int4_block_dot<kRows, false>(w, block, x.values_at(b, row), x.sums_at(b, row), sums);
    }
    std::uint16_t halves[16];
    std::memcpy(halves, w + block.scale_offset, sizeof halves);
    const F32 scale = load_half(halves);
    const float* scales = x.scales_at(b, row);
    for (int m = 0; m < kRows; ++m) acc[m] = fma(to_float(sums[m]), mul(scale, set1(scales[m])), acc[m]);
    w += block.bytes;
  }
  for (int m = 0; m < kRows; ++m) {
    float* out = y + (row + m) * target.stride;
    store(out, target.store == Store::kAdd ? add(load(out), acc[m]) : acc[m]);
  }
}

template <int kRows>
inline void bf16_tile(const bfloat16* w, const Bf16Layout& layout, const Bf16Rows& x, std::int64_t row, float* y,
                      const MatmulTarget& target) {
  for (int part = 0; part < 16; part += kNative) {
    Native acc[kRows];
    for (int m = 0; m < kRows; ++m) acc[m] = native_set1(0.0f);
    const bfloat16* pairs = w + 2 * part;
    for (std::int64_t b = 0; b * Bf16Layout::kBlock < layout.inputs; ++b) {
      const float* values = x.values_at(b, row);
      Native even[kRows], odd[kRows];
      for (int m = 0; m < kRows; ++m) even[m] = odd[m] = native_set1(0.0f);
      for (int j = 0; j < Bf16Layout::kBlock; j += 2, pairs += 32) {
        prefetch_stream(pairs);
        Native first, second;
        native_pairs(pairs, first, second);
        for (int m = 0; m < kRows; ++m) {
          even[m] = fma(first, native_set1(values[m * Bf16Layout::kBlock + j]), even[m]);
          odd[m] = fma(second, native_set1(values[m * Bf16Layout::kBlock + j + 1]), odd[m]);
        }
      }
      for (int m = 0; m < kRows; ++m) acc[m] = add(acc[m], add(even[m], odd[m]));
    }
    for (int m = 0; m < kRows; ++m) {
      float* out = y + (row + m) * target.stride + part;
      native_store(out, target.store == Store::kAdd ? add(native_load(out), acc[m]) : acc[m]);
    }
  }
}

/// Calls tile<n>(row) for runs of at most kMost rows, as even as can be: with 8 at most, 9 rows are 5 and 4, not 8
/// and 1.
template <int kRows, class Tile>
inline void call_with_rows(int rows, const Tile& tile, std::int64_t row) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return call_with_rows<kRows - 1>(rows, tile, row);
  }
  tile.template run<kRows>(row);
}

template <int kMost, class Tile>
inline void each_row_run(int rows, const Tile& tile) {
  const int runs = ceil_div(rows, kMost);
  for (int i = 0; i < runs; ++i) {
    const int first = rows * i / runs;
    call_with_rows<kMost>(rows * (i + 1) / runs - first, tile, first);
  }
}

struct Int4Tile {
  const std::uint8_t* w;
  const Int4Layout& layout;
  const Int8Rows& x;
  float* y;
  const MatmulTarget& target;

  template <int kRows>
  inline void run(std::int64_t row) const {
    int4_tile<kRows>(w, layout, x, row, y, target);
  }
};

struct Bf16Tile {
  const bfloat16* w;
  const Bf16Layout& layout;
  const Bf16Rows& x;
  float* y;
  const MatmulTarget& target;

  template <int kRows>
  inline void run(std::int64_t row) const {
    bf16_tile<kRows>(w, layout, x, row, y, target);
  }
};

inline void matmul_int4(const std::uint8_t* w, const Int4Layout& layout, const Int8Rows& x, int rows,
                        const MatmulTarget& target) {
  for (std::int64_t tile = target.first_tile; tile < target.last_tile; ++tile) {
    each_row_run<kInt4Rows>(rows, Int4Tile{w + tile * layout.tile_bytes(), layout, x, target.y + tile * 16, target});
  }
}

inline void matmul_bf16(const bfloat16* w, const Bf16Layout& layout, const Bf16Rows& x, int rows,
                        const MatmulTarget& target) {
  for (std::int64_t tile = target.first_tile; tile < target.last_tile; ++tile) {
    each_row_run<kBf16Rows>(rows, Bf16Tile{w + tile * layout.tile_size(), layout, x, target.y + tile * 16, target});
  }
}
