// The kernels of one instruction-set level, as function pointers. Every level has the whole table.
//
// Rows are fp32 and padded with zeros to a multiple of 32 values, which every kernel keeps zero. Kernels allocate
// nothing and check nothing; pointers to weights and rows are 64-byte aligned unless said otherwise.
#pragma once

#include <cstdint>

#include "kwker/base/float_types.hpp"
#include "kwker/cpu/isa.hpp"
#include "kwker/kernels/bf16_layout.hpp"
#include "kwker/kernels/int4_layout.hpp"

namespace kwker {

/// What a matmul does with its result.
enum class Store {
  kSet,  ///< y = w x
  kAdd,  ///< y = y + w x, one addition at the end
};

/// y[row][output], for the outputs of tiles [first_tile, last_tile).
struct MatmulTarget {
  float* y = nullptr;
  std::int64_t stride = 0;
  Store store = Store::kSet;
  std::int64_t first_tile = 0;
  std::int64_t last_tile = 0;
};

/// Attention scores of several queries: that of query i and position p is data[i * stride + p - begin].
struct AttentionScores {
  float* data = nullptr;
  int begin = 0;
  std::int64_t stride = 0;
};

/// Attention of consecutive rows of one sequence for one key-value head and the query heads that share it. Query i is
/// head i % group of row i / group.
struct AttentionArgs {
  const float* queries = nullptr;    ///< [rows, group, head_dim], rotated and rounded to bfloat16.
  const bfloat16* keys = nullptr;    ///< [positions / 16, head_dim / 2, 16, 2]
  const bfloat16* values = nullptr;  ///< [positions / 32, head_dim / 16, 16, 16, 2]
  const void* next = nullptr;        ///< What will be read after this, to be asked for in time; may be nullptr.
  int rows = 0;
  int position = 0;  ///< Of the first row: row i sees positions up to position + i.
  int window = 0;    ///< How many of those it sees, the latest; 0: all.
  int group = 1;     ///< Query heads per key-value head.
  int head_dim = 0;  ///< As stored, a multiple of 32.
  float scale = 1.0f;
  float* out = nullptr;         ///< [rows, group, head_dim]
  std::int64_t out_stride = 0;  ///< From row to row.
  float* weights = nullptr;     ///< Scratch: kAttentionTile times the positions, rounded up to 32, floats.
  AttentionScores scores;       ///< Only for attention in two steps; blocks of 32 positions.
};

/// Queries that attention handles together, at most.
constexpr int kAttentionTile = 8;

struct KernelTable {
  Isa isa;

  /// y = x / sqrt(mean(x^2) + eps) * weight, over n values padded to `padded` (Zhang and Sennrich 2019, RMSNorm).
  void (*rms_norm)(const float* x, const float* weight, float eps, std::int64_t n, std::int64_t padded, float* y);
  /// out = silu(gate) * up, where gate and up alternate in runs of 16 (Shazeer 2020, SwiGLU).
  void (*swiglu)(const float* gate_up, std::int64_t runs, float* out);
  /// Rotates the pairs (x[i], x[i + half]) by the angles of `cos` and `sin`, then rounds to bfloat16 (Su et al. 2021).
  void (*rotate)(float* head, const float* cos, const float* sin, std::int64_t half);
  /// Rounds a row of n values to bfloat16, into row `row` of `out`.
  void (*round_bf16)(const float* x, std::int64_t n, const Bf16Rows& out, std::int64_t row);
  /// Quantises a row for a matrix of this layout, into row `row` of `out`.
  void (*quantize_int8)(const float* x, const Int4Layout& layout, const Int8Rows& out, std::int64_t row);
  void (*matmul_bf16)(const bfloat16* w, const Bf16Layout& layout, const Bf16Rows& x, int rows,
                      const MatmulTarget& target);
  void (*matmul_int4)(const std::uint8_t* w, const Int4Layout& layout, const Int8Rows& x, int rows,
                      const MatmulTarget& target);
  /// The lowest index of the largest of n values, unaligned; NaN counts as smaller than anything.
  std::int64_t (*argmax)(const float* x, std::int64_t n);
  /// softmax(q k * scale) v (Vaswani et al. 2017), keys and values in bfloat16.
  void (*attention)(const AttentionArgs& args);
  /// The same in two steps, that threads can share: the scores of positions [first, last), multiples of 32 ...
  void (*attention_scores)(const AttentionArgs& args, int first, int last);
  /// ... and columns [first, last) of the result, multiples of 32.
  void (*attention_sums)(const AttentionArgs& args, int first, int last);
};

/// The kernels of a level that this machine can run.
const KernelTable& kernel_table(Isa isa);

}  // namespace kwker
