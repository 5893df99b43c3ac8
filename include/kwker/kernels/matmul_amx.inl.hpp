// Matmul kernels on AMX tiles. Included after the vector kernels, which do the fewest rows of int4; bf16 is done in
// tiles whatever the rows, since loading whole tiles reads memory fastest.
//
// Rows go in groups of at most 16, a tile's height, of equal size as far as possible; two groups and two tiles of
// outputs at a time use each loaded tile twice. Groups may reach past the last row: rows are readable up to a whole
// group. The integer sums are exact and TDPBF16PS is the definition of the bf16 product, so the bits are those of every
// level.

/// Rows of a pass over the weights: their activations stay in the second-level cache.
constexpr int kPassRows = 256;

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
    tile_configure(config);
  }
  ~TileScope() { tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

/// Rows of a group so that all groups of a pass are about equally high.
inline int rows_of_group(int rows) { return ceil_div(rows, ceil_div(rows, kTileRows)); }

// --- int4

/// Bytes of 64 inputs of a tile of outputs, unpacked: an AMX B tile.
constexpr int kStepBytes = 64 * 16;

/// 64 inputs of a tile of outputs from input k on, unpacked: bytes s * q in the order of an AMX B tile.
inline void expand_inputs(const std::uint8_t* w, const Int4Block& block, int k, std::uint8_t* out) {
  // The second request of prefetch_stream would cost more here than it gains.
  constexpr int kAhead = 3072;
  const int shift = std::countr_zero(static_cast<unsigned>(block.group));
  for (const int end = k + 64; k < end; k += 32, out += 512) {
    if (k >= block.inputs) {
      std::memset(out, 0, 512);
      return;
    }
    const int group = k >> shift;
    const __m512i scale = Int4Meta(w + block.meta_offset + group / 2 * 32).scale_pairs(group % 2);
    for (int j = 0; j < 4; ++j) {
      const std::uint8_t* nibbles = w + k * 8 + 64 * j;
      __asm__ volatile("" ::: "memory");
      prefetch(nibbles + kAhead);
      __asm__ volatile("" ::: "memory");
      const __m512i bytes = _mm512_loadu_si512(nibbles);
      _mm512_store_si512(out + 128 * j, _mm512_mullo_epi16(low_nibbles(bytes), scale));
      _mm512_store_si512(out + 128 * j + 64, _mm512_mullo_epi16(high_nibbles(bytes), scale));
    }
  }
}

/// acc = fma(float(dot plus what the zero-points add), scale of the weights * scale of the row, acc) for `rows` rows of
/// one block, where `acc` are `stride` apart.
inline void int4_accumulate(const std::int32_t (*dots)[16], Int4Zeros zeros, __m512 scale, const Int8Rows& x,
                            std::int64_t block, std::int64_t row, int rows, float* acc, std::int64_t stride) {
  const std::int16_t* sums = x.sums_at(block, row);
  const float* scales = x.scales_at(block, row);
  for (int m = 0; m < rows; ++m, acc += stride) {
    const __m512i dot = zeros.add_to(_mm512_load_si512(dots[m]), sums + m * Int8Rows::kSums);
    const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(scales[m]));
    _mm512_store_ps(acc, _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), factor, _mm512_load_ps(acc)));
  }
}

inline __m512 int4_scale(const std::uint8_t* w, const Int4Block& block) {
  std::uint16_t halves[16];
  std::memcpy(halves, w + block.scale_offset, sizeof halves);
  return load_half(halves).v;
}

/// Asks for the lines where the results of a tile of outputs go.
inline void prefetch_results(const float* y, std::int64_t stride, int rows) {
  for (int m = 0; m < rows; ++m) prefetch(y + m * stride);
}

/// The weights of kColumns tiles of outputs, unpacked 64 inputs at a time. A tile load waits until what it reads has
/// left the store buffer, so unpacking keeps kAhead steps before the multiplication.
template <int kColumns>
class Int4Unpacker {
 public:
  Int4Unpacker(const std::uint8_t* w, const Int4Layout& layout) : w_(w), layout_(layout) {
    for (int i = 0; i < kAhead; ++i) unpack_next();
  }

  /// Unpacks a further step and returns the oldest one not yet returned: for each column the bytes of an AMX B tile.
  const std::uint8_t (*next())[kStepBytes] {
    unpack_next();
    return steps_[taken_++ % kSteps];
  }

 private:
  static constexpr int kAhead = 2, kSteps = 4;

  void unpack_next() {
    if (block_ == layout_.blocks()) return;
    const Int4Block& block = layout_.block_at(block_);
    for (int c = 0; c < kColumns; ++c) {
      expand_inputs(w_ + c * layout_.tile_bytes(), block, k_, steps_[unpacked_ % kSteps][c]);
    }
    ++unpacked_;
    k_ += 64;
    if (k_ < block.inputs) return;
    k_ = 0;
    ++block_;
    w_ += block.bytes;
  }

  const std::uint8_t* w_;
  const Int4Layout& layout_;
  int block_ = 0, k_ = 0;
  unsigned unpacked_ = 0, taken_ = 0;
  alignas(64) std::uint8_t steps_[kSteps][kColumns][kStepBytes];
};

/// One group of rows and two tiles of outputs, or two groups and one tile: few enough rows that memory sets the pace.
/// Weights are unpacked straight before their use, so that they are read as even streams. A block's sums are fetched
/// from its set of tiles while the next block, in the other set, is under way.
template <int kColumns, int kGroups>
class Int4FewRows {
 public:
  static_assert(kColumns * kGroups <= 2);

  Int4FewRows(const std::uint8_t* w, const Int4Layout& layout, const Int8Rows& x, std::int64_t first_row, int rows,
              int group_rows)
      : w_(w),
        layout_(layout),
        x_(x),
        first_row_(first_row),
        rows_(rows),
        group_rows_(group_rows),
        weights_(w, layout) {}

  void run(float* y, const MatmulTarget& target) {
    y += first_row_ * target.stride;
    prefetch_results(y, target.stride, rows_);
    for (auto& column : acc_) std::memset(column, 0, static_cast<std::size_t>(rows_) * sizeof column[0]);
    for (int b = 0; b < layout_.blocks(); ++b) b % 2 == 0 ? multiply<0>(b) : multiply<1>(b);
    layout_.blocks() % 2 == 0 ? fetch<1>(layout_.blocks() - 1) : fetch<0>(layout_.blocks() - 1);
    accumulate(kAll);
    for (int m = 0; m < rows_; ++m) {
      for (int c = 0; c < kColumns; ++c) {
        float* out = y + m * target.stride + c * 16;
        const F32 value = load(acc_[c][m]);
        store(out, target.store == Store::kAdd ? add(load(out), value) : value);
      }
    }
  }

 private:
  static constexpr int kAll = 2 * kTileRows;

  /// Sums of set 0 are tiles 0 and 1, of set 1 tiles 2 and 3, for the two columns or groups. Between the steps goes
  /// what remains to be done for the block before: in one piece it would leave memory idle for too long.
  template <int kSet>
  void multiply(int b) {
    constexpr int kFirst = 2 * kSet, kSecond = 2 * kSet + 1;
    tile_zero<kFirst>();
    if constexpr (kColumns * kGroups > 1) tile_zero<kSecond>();
    const std::int8_t* x = x_.values_at(b, first_row_);
    const int inputs = layout_.block_at(b).inputs;
    const int share = ceil_div(rows_ * kColumns, std::max(1, inputs / 64 - 1));
    for (int k = 0; k < inputs; k += 64) {
      const auto* w = weights_.next();
      tile_load<4>(x + k, Int8Rows::kStride);
      tile_load<6>(w[0], 64);
      tile_multiply_bytes<kFirst, 4, 6>();
      if constexpr (kColumns > 1) {
        tile_load<7>(w[1], 64);
        tile_multiply_bytes<kSecond, 4, 7>();
      } else if constexpr (kGroups > 1) {
        tile_load<5>(x + group_rows_ * Int8Rows::kStride + k, Int8Rows::kStride);
        tile_multiply_bytes<kSecond, 5, 6>();
      }
      if (k == 0) {
        if (b > 0) fetch<1 - kSet>(b - 1);
      } else {
        accumulate(share);
      }
    }
    accumulate(kAll);
  }

  /// Takes the sums of block b out of their tiles.
  template <int kSet>
  void fetch(int b) {
    tile_store<2 * kSet>(dots_[0], 64);
    if constexpr (kColumns * kGroups > 1) tile_store<2 * kSet + 1>(dots_[1], 64);
    block_ = b;
    column_ = row_ = 0;
    open_column();
  }

  void open_column() {
    const Int4Block& block = layout_.block_at(block_);
    // Only the last block may be shorter.
    const std::uint8_t* w = w_ + column_ * layout_.tile_bytes() + std::int64_t{block_} * layout_.block_at(0).bytes;
    zeros_ = Int4Zeros(w, block);
    scale_ = int4_scale(w, block);
  }

  /// Adds the fetched sums of up to `count` more rows to the result.
  void accumulate(int count) {
    while (count > 0 && column_ < kColumns) {
      const int group = row_ < group_rows_ ? 0 : 1, end = std::min(rows_, (group + 1) * group_rows_);
      const int run = std::min(count, end - row_);
      int4_accumulate(&dots_[column_ + group][row_ - group * group_rows_], zeros_, scale_, x_, block_,
                      first_row_ + row_, run, acc_[column_][row_], 16);
      count -= run;
      row_ += run;
      if (row_ < rows_) continue;
      row_ = 0;
      if (++column_ < kColumns) open_column();
    }
  }

  const std::uint8_t* w_;
  const Int4Layout& layout_;
  const Int8Rows& x_;
  std::int64_t first_row_;
  int rows_;
  int group_rows_;
  Int4Unpacker<kColumns> weights_;
  // The next of the fetched sums to be added.
  int block_ = 0, column_ = kColumns, row_ = 0;
  Int4Zeros zeros_;
  __m512 scale_;
  alignas(64) std::int32_t dots_[kColumns * kGroups][kTileRows][16];
  alignas(64) float acc_[kColumns][kGroups * kTileRows][16];
};

/// One block of one tile of outputs, unpacked, for many rows.
struct ExpandedBlock {
  alignas(64) std::uint8_t bytes[Int4Layout::kMaxBlock * 16];

  void expand(const std::uint8_t* w, const Int4Block& block) {
    for (int k = 0; k < block.inputs; k += 64) expand_inputs(w, block, k, bytes + k * 16);
  }
};

/// Starts the dot products of one group of rows with one block of one or two tiles of outputs, in one of two sets of
/// tiles. Tile numbers are part of the instruction, hence the template.
template <int kColumns, int kSet>
inline void int4_multiply(const std::int8_t* x, const ExpandedBlock* w, int inputs) {
  tile_zero<2 * kSet>();
  if constexpr (kColumns > 1) tile_zero<2 * kSet + 1>();
  for (int k = 0; k < inputs; k += 64) {
    tile_load<4 + kSet>(x + k, Int8Rows::kStride);
    tile_load<6>(w[0].bytes + k * 16, 64);
    tile_multiply_bytes<2 * kSet, 4 + kSet, 6>();
    if constexpr (kColumns > 1) {
      tile_load<7>(w[1].bytes + k * 16, 64);
      tile_multiply_bytes<2 * kSet + 1, 4 + kSet, 7>();
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
  /// Only the last block may be shorter.
  const std::uint8_t* block_bytes(int b, int c) const {
    return w_ + c * layout_.tile_bytes() + std::int64_t{b} * layout_.block_at(0).bytes;
  }

  void expand(int b) {
    for (int c = 0; c < kColumns; ++c) expanded_[b % 2][c].expand(block_bytes(b, c), layout_.block_at(b));
  }

  void multiply(std::int64_t row, int b, int set) {
    const int inputs = layout_.block_at(b).inputs;
    if (set == 0) {
      int4_multiply<kColumns, 0>(x_.values_at(b, row), expanded_[b % 2], inputs);
    } else {
      int4_multiply<kColumns, 1>(x_.values_at(b, row), expanded_[b % 2], inputs);
    }
  }

  void finish(const Int4Item& item, std::int64_t first_row) {
    if (item.set == 0) {
      tile_store<0>(dots_[0], 64);
      if constexpr (kColumns > 1) tile_store<1>(dots_[1], 64);
    } else {
      tile_store<2>(dots_[0], 64);
      if constexpr (kColumns > 1) tile_store<3>(dots_[1], 64);
    }
    const Int4Block block = layout_.block_at(item.block);
    for (int c = 0; c < kColumns; ++c) {
      const std::uint8_t* w = block_bytes(item.block, c);
      int4_accumulate(dots_[c], Int4Zeros(w, block), int4_scale(w, block), x_, item.block, first_row + item.first_row,
                      item.rows, &acc_[item.first_row][c * 16], kColumns * 16);
    }
  }

  const std::uint8_t* w_;
  const Int4Layout& layout_;
  const Int8Rows& x_;
  ExpandedBlock expanded_[2][kColumns];  // of the block in the tiles and of the next
  alignas(64) std::int32_t dots_[kColumns][kTileRows][16];
  alignas(64) float acc_[kPassRows][kColumns * 16];
};

inline void amx_matmul_int4(const std::uint8_t* w, const Int4Layout& layout, const Int8Rows& x, int rows,
                            const MatmulTarget& target) {
  // Measured on Sapphire Rapids: below this the unpacking to memory costs more than the multiplications save.
  constexpr int kVectorRows = 4;
  if (rows <= kVectorRows) return matmul_int4(w, layout, x, rows, target);
  for (int first = 0; first < rows; first += kPassRows) {
    const int count = std::min(kPassRows, rows - first), group = rows_of_group(count);
    const TileScope scope(group);
    std::int64_t tile = target.first_tile;
    const auto weights = [&] { return w + tile * layout.tile_bytes(); };
    const auto out = [&] { return target.y + tile * 16; };
    if (count <= kTileRows) {
      for (; tile + 2 <= target.last_tile; tile += 2) {
        Int4FewRows<2, 1>(weights(), layout, x, first, count, group).run(out(), target);
      }
      if (tile < target.last_tile) {
        Int4FewRows<1, 1>(weights(), layout, x, first, count, group).run(out(), target);
        ++tile;
      }
    } else if (count <= 2 * kTileRows) {
      for (; tile < target.last_tile; ++tile) {
        Int4FewRows<1, 2>(weights(), layout, x, first, count, group).run(out(), target);
      }
    }
    for (; tile + 2 <= target.last_tile; tile += 2) {
      Int4Pass<2>(weights(), layout, x).run(first, count, group, out(), target);
    }
    if (tile < target.last_tile) Int4Pass<1>(weights(), layout, x).run(first, count, group, out(), target);
  }
}

// --- bf16

/// The sums of two groups and two tiles of outputs, as the tiles store them.
struct alignas(64) TileSums {
  float values[2][2][kTileRows][16];  // [group][column][row][output]
};

template <int kColumns, int kGroups>
inline void bf16_tiles(const Bf16Rows& x, std::int64_t row, int group_rows, const bfloat16* w, const Bf16Layout& layout,
                       TileSums& sums) {
  tile_zero<0>();
  if constexpr (kColumns > 1) tile_zero<1>();
  if constexpr (kGroups > 1) {
    tile_zero<2>();
    if constexpr (kColumns > 1) tile_zero<3>();
  }
  for (std::int64_t k = 0; k < layout.inputs; k += Bf16Layout::kBlock) {
    const bfloat16* weights = w + k * Bf16Layout::kOutputs;
    for (int c = 0; c < kColumns; ++c) {
      for (int line = 0; line < 16; ++line) {
        prefetch_stream(weights + c * layout.tile_size() + 32 * line);
      }
    }
    const bfloat16* values = x.halves_at(k / Bf16Layout::kBlock, row);
    tile_load<4>(values, 64);
    tile_load<6>(weights, 64);
    tile_multiply_bf16<0, 4, 6>();
    if constexpr (kColumns > 1) {
      tile_load<7>(weights + layout.tile_size(), 64);
      tile_multiply_bf16<1, 4, 7>();
    }
    if constexpr (kGroups > 1) {
      tile_load<5>(values + group_rows * Bf16Layout::kBlock, 64);
      tile_multiply_bf16<2, 5, 6>();
      if constexpr (kColumns > 1) tile_multiply_bf16<3, 5, 7>();
    }
  }
  tile_store<0>(sums.values[0][0], 64);
  if constexpr (kColumns > 1) tile_store<1>(sums.values[0][1], 64);
  if constexpr (kGroups > 1) {
    tile_store<2>(sums.values[1][0], 64);
    if constexpr (kColumns > 1) tile_store<3>(sums.values[1][1], 64);
  }
}

template <int kColumns>
inline void bf16_pass(const bfloat16* w, const Bf16Layout& layout, const Bf16Rows& x, std::int64_t first_row, int rows,
                      int group_rows, float* y, const MatmulTarget& target) {
  TileSums sums;
  for (int m = 0; m < rows; m += 2 * group_rows) {
    const int groups = rows - m > group_rows ? 2 : 1;
    if (groups == 2) {
      bf16_tiles<kColumns, 2>(x, first_row + m, group_rows, w, layout, sums);
    } else {
      bf16_tiles<kColumns, 1>(x, first_row + m, group_rows, w, layout, sums);
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
