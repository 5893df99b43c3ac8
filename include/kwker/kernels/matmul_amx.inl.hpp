// Matmul kernels on AMX tiles, for more rows than the vector kernels do well. Included after the vector kernels, which
// do the few rows.
//
// Rows go in groups of at most 16, a tile's height, of equal size as far as possible; two groups and two tiles of
// outputs at a time use each loaded tile twice. Groups may reach past the last row: rows are readable up to a whole
// group. The integer sums are exact and TDPBF16PS is the definition of the bf16 product, so the bits are those of every
// level.

/// The compiler does not know that tile instructions read and write memory: without this it moves stores past them.
inline void tile_barrier() { __asm__ volatile("" ::: "memory"); }

constexpr int kTileRows = 16;
/// Rows of a pass over the weights: their activations stay in the second-level cache.
constexpr int kPassRows = 128;

/// Tiles 0 to 3 hold sums, 4 and 5 activations (`rows` high), 6 and 7 weights. Lives as long as a kernel call, since a
/// configuration may be lost between parallel regions on some virtual machines.
class TileScope {
 public:
  explicit TileScope(int rows) {
    alignas(64) std::uint8_t config[64] = {1};  // palette 1
    for (int tile = 0; tile < 8; ++tile) {
      config[16 + 2 * tile] = 64;  // bytes of a row
      config[48 + tile] = static_cast<std::uint8_t>(tile < 6 ? rows : kTileRows);
    }
    tile_barrier();
    _tile_loadconfig(config);
    tile_barrier();
  }
  ~TileScope() { _tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

/// Rows of a group so that all groups of a pass are about equally high.
inline int rows_of_group(int rows) { return ceil_div(rows, ceil_div(rows, kTileRows)); }

// --- int4

/// One block of one tile of outputs, unpacked: bytes s * q in the order of an AMX B tile.
struct alignas(64) ExpandedBytes {
  std::uint8_t bytes[Int4Layout::kMaxBlock * 16];
};

/// What a block's sums still need: the zero-points, as -(s z) of two groups in the halves of each lane, and the scale.
struct alignas(64) BlockFactors {
  __m512i zeros[Int4Layout::kMaxBlock / 64];
  __m512 scale;
  int zero_pairs;
};

inline void expand_block(const std::uint8_t* w, const Int4Block& block, ExpandedBytes& out, BlockFactors& factors) {
  constexpr int kAhead = 6144;  // see int4_block_dot
  int k = 0;
  for (int g = 0; g < block.groups; ++g) {
    const Int4Meta meta(w + block.meta_offset + g / 2 * 32);
    if (g % 2 == 0) factors.zeros[g / 2] = _mm512_sub_epi16(_mm512_setzero_si512(), meta.products());
    const __m512i scale = meta.scale_pairs(g % 2);
    for (const int end = std::min(k + block.group, block.inputs); k < end; k += 32) {
      for (int j = 0; j < 4; ++j) {
        const std::uint8_t* nibbles = w + k * 8 + 64 * j;
        prefetch(nibbles + kAhead);
        const __m512i bytes = _mm512_loadu_si512(nibbles);
        std::uint8_t* to = out.bytes + k * 16 + 128 * j;
        _mm512_store_si512(to, _mm512_mullo_epi16(low_nibbles(bytes), scale));
        _mm512_store_si512(to + 64, _mm512_mullo_epi16(high_nibbles(bytes), scale));
      }
    }
  }
  if (block.inputs % 64 != 0) std::memset(out.bytes + block.inputs * 16, 0, 512);  // the second half of the last tile
  factors.zero_pairs = ceil_div(block.groups, 2);
  std::uint16_t halves[16];
  std::memcpy(halves, w + block.scale_offset, sizeof halves);
  factors.scale = load_half(halves).v;
}

/// Starts the dot products of one group of rows with one block of one or two tiles of outputs, in one of two sets of
/// tiles. Tile numbers are part of the instruction, hence the two branches.
template <int kColumns>
inline void int4_multiply(const std::int8_t* x, std::int64_t stride, const ExpandedBytes* w, int inputs, int set) {
  tile_barrier();
  if (set == 0) {
    _tile_zero(0);
    if constexpr (kColumns > 1) _tile_zero(1);
    for (int k = 0; k < inputs; k += 64) {
      _tile_loadd(4, x + k, stride);
      _tile_loadd(6, w[0].bytes + k * 16, 64);
      _tile_dpbsud(0, 4, 6);
      if constexpr (kColumns > 1) {
        _tile_loadd(7, w[1].bytes + k * 16, 64);
        _tile_dpbsud(1, 4, 7);
      }
    }
  } else {
    _tile_zero(2);
    if constexpr (kColumns > 1) _tile_zero(3);
    for (int k = 0; k < inputs; k += 64) {
      _tile_loadd(5, x + k, stride);
      _tile_loadd(6, w[0].bytes + k * 16, 64);
      _tile_dpbsud(2, 5, 6);
      if constexpr (kColumns > 1) {
        _tile_loadd(7, w[1].bytes + k * 16, 64);
        _tile_dpbsud(3, 5, 7);
      }
    }
  }
}

/// A group of rows and a block, whose products are under way in tile set `set`.
struct Int4Item {
  int first_row;
  int rows;
  int block;
  int set;
};

/// One or two tiles of outputs for up to kPassRows rows.
template <int kColumns>
class Int4Pass {
 public:
  Int4Pass(const std::uint8_t* w, const Int4Layout& layout, const Int8Rows& x) : w_(w), layout_(layout), x_(x) {}

  /// Products of one item run in the tiles while vectors unpack the next block and finish the item before.
  void run(std::int64_t first_row, int rows, int group_rows, float* y, const MatmulTarget& target) {
    std::memset(acc_, 0, static_cast<std::size_t>(rows) * sizeof acc_[0]);
    expand(0);
    Int4Item previous{};
    int set = 0;
    for (int b = 0; b < layout_.blocks(); ++b) {
      for (int m = 0; m < rows; m += group_rows, set ^= 1) {
        multiply(first_row + m, b, set);
        if (m == 0 && b + 1 < layout_.blocks()) expand(b + 1);
        if (m + b > 0) finish(previous, first_row);
        previous = {m, std::min(group_rows, rows - m), b, set};
      }
    }
    finish(previous, first_row);
    for (int m = 0; m < rows; ++m) {
      for (int c = 0; c < kColumns; ++c) {
        float* out = y + (first_row + m) * target.stride + c * 16;
        const F32 value = load(&acc_[m][c * 16]);
        store(out, target.store == Store::kAdd ? add(load(out), value) : value);
      }
    }
  }

 private:
  void expand(int b) {
    const Int4Block block = layout_.block_at(b);
    const std::int64_t offset = std::int64_t{b} * layout_.block_at(0).bytes;  // only the last block may be shorter
    for (int c = 0; c < kColumns; ++c) {
      expand_block(w_ + offset + c * layout_.tile_bytes(), block, bytes_[b % 2][c], factors_[b % 3][c]);
    }
  }

  void multiply(std::int64_t row, int b, int set) {
    const std::int8_t* values = x_.values + row * x_.value_stride + std::int64_t{b} * layout_.block();
    int4_multiply<kColumns>(values, x_.value_stride, bytes_[b % 2], layout_.block_at(b).inputs, set);
  }

  /// acc = fma(float(dot - zeros), scale of the weights * scale of the row, acc)
  void finish(const Int4Item& item, std::int64_t first_row) {
    if (item.set == 0) {
      _tile_stored(0, dots_[0], 64);
      if constexpr (kColumns > 1) _tile_stored(1, dots_[1], 64);
    } else {
      _tile_stored(2, dots_[0], 64);
      if constexpr (kColumns > 1) _tile_stored(3, dots_[1], 64);
    }
    tile_barrier();
    const std::int64_t row = first_row + item.first_row;
    for (int c = 0; c < kColumns; ++c) {
      const BlockFactors factors = factors_[item.block % 3][c];
      const std::int16_t* sums = x_.sums + row * x_.sum_stride + std::int64_t{item.block} * layout_.sums_per_block();
      const float* scales = x_.scales + row * x_.scale_stride + item.block;
      for (int m = 0; m < item.rows; ++m, sums += x_.sum_stride, scales += x_.scale_stride) {
        __m512i dot = _mm512_load_si512(dots_[c][m]);
        for (int pair = 0; pair < factors.zero_pairs; ++pair) {
          dot = _mm512_dpwssd_epi32(dot, factors.zeros[pair], broadcast_dword(sums + 2 * pair));
        }
        const __m512 factor = _mm512_mul_ps(factors.scale, _mm512_set1_ps(*scales));
        float* acc = &acc_[item.first_row + m][c * 16];
        _mm512_store_ps(acc, _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), factor, _mm512_load_ps(acc)));
      }
    }
  }

  const std::uint8_t* w_;
  const Int4Layout& layout_;
  const Int8Rows& x_;
  alignas(64) ExpandedBytes bytes_[2][kColumns];   // of the block in the tiles and of the next
  alignas(64) BlockFactors factors_[3][kColumns];  // of the block before as well
  alignas(64) std::int32_t dots_[kColumns][kTileRows][16];
  alignas(64) float acc_[kPassRows][kColumns * 16];
};

inline void amx_matmul_int4(const std::uint8_t* w, const Int4Layout& layout, const Int8Rows& x, int rows,
                            const MatmulTarget& target) {
  // Measured on Sapphire Rapids: below this the unpacking to memory costs more than the multiplications save.
  constexpr int kFewRows = 4;
  if (rows <= kFewRows) return matmul_int4(w, layout, x, rows, target);
  for (int first = 0; first < rows; first += kPassRows) {
    const int count = std::min(kPassRows, rows - first), group = rows_of_group(count);
    const TileScope scope(group);
    std::int64_t tile = target.first_tile;
    for (; tile + 2 <= target.last_tile; tile += 2) {
      Int4Pass<2>(w + tile * layout.tile_bytes(), layout, x).run(first, count, group, target.y + tile * 16, target);
    }
    if (tile < target.last_tile) {
      Int4Pass<1>(w + tile * layout.tile_bytes(), layout, x).run(first, count, group, target.y + tile * 16, target);
    }
  }
}

// --- bf16

/// The sums of two groups and two tiles of outputs, as the tiles store them.
struct alignas(64) TileSums {
  float values[2][2][kTileRows][16];  // [group][column][row][output]
};

template <int kColumns, int kGroups>
inline void bf16_tiles(const bfloat16* x, std::int64_t stride, int group_rows, const bfloat16* w,
                       const Bf16Layout& layout, TileSums& sums) {
  constexpr int kAhead = 8192;  // bytes, of each column
  _tile_zero(0);
  if constexpr (kColumns > 1) _tile_zero(1);
  if constexpr (kGroups > 1) {
    _tile_zero(2);
    if constexpr (kColumns > 1) _tile_zero(3);
  }
  tile_barrier();
  for (std::int64_t k = 0; k < layout.inputs; k += Bf16Layout::kBlock) {
    const bfloat16* weights = w + k * Bf16Layout::kOutputs;
    for (int c = 0; c < kColumns; ++c) {
      for (int line = 0; line < 16; ++line) {
        prefetch(reinterpret_cast<const char*>(weights + c * layout.tile_size()) + kAhead + 64 * line);
      }
    }
    _tile_loadd(4, x + k, stride * 2);
    _tile_loadd(6, weights, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kColumns > 1) {
      _tile_loadd(7, weights + layout.tile_size(), 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kGroups > 1) {
      _tile_loadd(5, x + group_rows * stride + k, stride * 2);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kColumns > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums.values[0][0], 64);
  if constexpr (kColumns > 1) _tile_stored(1, sums.values[0][1], 64);
  if constexpr (kGroups > 1) {
    _tile_stored(2, sums.values[1][0], 64);
    if constexpr (kColumns > 1) _tile_stored(3, sums.values[1][1], 64);
  }
  tile_barrier();
}

template <int kColumns>
inline void bf16_pass(const bfloat16* w, const Bf16Layout& layout, const Bf16Rows& x, std::int64_t first_row, int rows,
                      int group_rows, float* y, const MatmulTarget& target) {
  TileSums sums;
  for (int m = 0; m < rows; m += 2 * group_rows) {
    const bfloat16* values = x.halves + (first_row + m) * x.stride;
    const int groups = rows - m > group_rows ? 2 : 1;
    if (groups == 2) {
      bf16_tiles<kColumns, 2>(values, x.stride, group_rows, w, layout, sums);
    } else {
      bf16_tiles<kColumns, 1>(values, x.stride, group_rows, w, layout, sums);
    }
    for (int g = 0; g < groups; ++g) {
      const int from = m + g * group_rows;
      for (int i = 0; i < std::min(group_rows, rows - from); ++i) {
        for (int c = 0; c < kColumns; ++c) {
          float* out = y + (first_row + from + i) * target.stride + c * 16;
          const F32 value = load(sums.values[g][c][i]);
          store(out, target.store == Store::kAdd ? add(load(out), value) : value);
        }
      }
    }
  }
}

inline void amx_matmul_bf16(const bfloat16* w, const Bf16Layout& layout, const Bf16Rows& x, int rows,
                            const MatmulTarget& target) {
  constexpr int kFewRows = 3;  // as above
  if (rows <= kFewRows) return matmul_bf16(w, layout, x, rows, target);
  for (int first = 0; first < rows; first += kPassRows) {
    const int count = std::min(kPassRows, rows - first);
    const TileScope scope(rows_of_group(count));
    std::int64_t tile = target.first_tile;
    for (; tile + 2 <= target.last_tile; tile += 2) {
      bf16_pass<2>(w + tile * layout.tile_size(), layout, x, first, count, rows_of_group(count), target.y + tile * 16,
                   target);
    }
    if (tile < target.last_tile) {
      bf16_pass<1>(w + tile * layout.tile_size(), layout, x, first, count, rows_of_group(count), target.y + tile * 16,
                   target);
    }
  }
}
