// Every kernel, for the level whose vector was included before, and the table that names them.
// Included inside that level's namespace and target region: templates take the instruction set of the place where
// they are written, so they are written once here and read once per level.

// exp() is defined before attention uses it.
// clang-format off
#include "kwker/kernels/rows.inl.hpp"
#include "kwker/kernels/matmul.inl.hpp"
#include "kwker/kernels/attention.inl.hpp"
// clang-format on

static_assert(kQueriesAtOnce <= kAttentionTile);

inline KernelTable make_table(Isa isa) {
  KernelTable table{};
  table.isa = isa;
  table.rms_norm = rms_norm;
  table.swiglu = swiglu;
  table.rotate = rotate;
  table.round_bf16 = round_bf16_row;
  table.quantize_int8 = quantize_int8;
  table.matmul_bf16 = matmul_bf16;
  table.matmul_int4 = matmul_int4;
  table.argmax = argmax;
  table.attention = attention;
  table.attention_scores = attention_scores;
  table.attention_sums = attention_sums;
  return table;
}
