// The AMX kernels on machines without AMX: the same source, compiled against tiles in memory that do what the manual
// says the instructions do. What silicon does is checked where there is some (kernels_test, contract_fuzz_test).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "bits.hpp"
#include "kwker/base/aligned_buffer.hpp"
#include "kwker/cpu/flush_denormals.hpp"
#include "kwker/kernels/prelude.hpp"
#include "kwker/model/precision.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

namespace kwker::emulated {
namespace {

constexpr int kTileRows = 16;

struct Tile {
  std::uint8_t rows = 0, row_bytes = 0;
  alignas(64) std::uint8_t bytes[16][64] = {};
};

/// The register file. A tile that is not configured must not be used.
Tile tiles[8];
bool configured = false;

Tile& tile_register(int index) {
  if (!configured || tiles[index].rows == 0) throw std::logic_error("a tile that is not configured");
  return tiles[index];
}

inline void tile_configure(const void* data) {
  const auto* config = static_cast<const std::uint8_t*>(data);
  if (config[0] != 1) throw std::logic_error("unknown palette");
  for (int i = 0; i < 8; ++i) {
    if (config[16 + 2 * i] > 64 || config[17 + 2 * i] != 0 || config[48 + i] > 16) throw std::logic_error("bad tile");
    tiles[i] = Tile{config[48 + i], config[16 + 2 * i], {}};
  }
  configured = true;
}
inline void tile_release() { configured = false; }

template <int kTile>
void tile_zero() {
  std::memset(tile_register(kTile).bytes, 0, sizeof Tile::bytes);
}
template <int kTile>
void tile_load(const void* rows, std::int64_t stride) {
  Tile& tile = tile_register(kTile);
  std::memset(tile.bytes, 0, sizeof tile.bytes);
  for (int i = 0; i < tile.rows; ++i) {
    std::memcpy(tile.bytes[i], static_cast<const std::uint8_t*>(rows) + i * stride, tile.row_bytes);
  }
}
template <int kTile>
void tile_store(void* rows, std::int64_t stride) {
  const Tile& tile = tile_register(kTile);
  for (int i = 0; i < tile.rows; ++i) {
    std::memcpy(static_cast<std::uint8_t*>(rows) + i * stride, tile.bytes[i], tile.row_bytes);
  }
}

template <class T>
T element(const Tile& tile, int row, int index) {
  T value;
  std::memcpy(&value, tile.bytes[row] + index * static_cast<int>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void set_element(Tile& tile, int row, int index, T value) {
  std::memcpy(tile.bytes[row] + index * static_cast<int>(sizeof(T)), &value, sizeof(T));
}

template <int kSum, int kA, int kB>
void tile_multiply_bytes() {
  static_assert(kSum != kA && kSum != kB && kA != kB);
  Tile& sum = tile_register(kSum);
  const Tile &a = tile_register(kA), &b = tile_register(kB);
  if (sum.rows != a.rows || a.row_bytes != 4 * b.rows || sum.row_bytes != b.row_bytes) throw std::logic_error("shape");
  for (int m = 0; m < a.rows; ++m) {
    for (int n = 0; n < b.row_bytes / 4; ++n) {
      auto total = element<std::int32_t>(sum, m, n);
      for (int k = 0; k < a.row_bytes; ++k) {
        total += element<std::int8_t>(a, m, k) * element<std::uint8_t>(b, k / 4, 4 * n + k % 4);
      }
      set_element(sum, m, n, total);
    }
  }
}

template <int kSum, int kA, int kB>
void tile_multiply_bf16() {
  static_assert(kSum != kA && kSum != kB && kA != kB);
  Tile& sum = tile_register(kSum);
  const Tile &a = tile_register(kA), &b = tile_register(kB);
  if (sum.rows != a.rows || a.row_bytes != 4 * b.rows || sum.row_bytes != b.row_bytes) throw std::logic_error("shape");
  for (int m = 0; m < a.rows; ++m) {
    for (int n = 0; n < b.row_bytes / 4; ++n) {
      float parts[2] = {};
      for (int k = 0; k < a.row_bytes / 2; ++k) {
        const float x = to_float(element<bfloat16>(a, m, k)), w = to_float(element<bfloat16>(b, k / 2, 2 * n + k % 2));
        parts[k % 2] = std::fma(x, w, parts[k % 2]);
      }
      set_element(sum, m, n, element<float>(sum, m, n) + (parts[0] + parts[1]));
    }
  }
}

}  // namespace
}  // namespace kwker::emulated

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")
#endif

namespace kwker::emulated {
namespace {
// clang-format off
#include "kwker/simd/avx512.inl.hpp"
#include "kwker/kernels/all.inl.hpp"
#include "kwker/kernels/matmul_amx.inl.hpp"
// clang-format on

KernelTable amx_table() {
  KernelTable table = make_table(Isa::kAmx);
  table.matmul_int4 = amx_matmul_int4;
  table.matmul_bf16 = amx_matmul_bf16;
  return table;
}
}  // namespace
}  // namespace kwker::emulated

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace kwker::testing {
namespace {

class AmxEmulationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<Isa> levels = isa_levels();
    if (levels.back() < Isa::kAvx512) GTEST_SKIP() << "the rest of these kernels needs avx512";
  }

  std::vector<float> values(std::int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> result(static_cast<std::size_t>(count));
    for (float& value : result) value = normal(random_);
    return result;
  }

  /// The products of `most` rows with a random matrix: the portable level alone, then the emulated tiles for each
  /// number of rows, over two ranges of tiles, setting and adding.
  template <class Precision>
  void compare(std::int64_t outputs, std::int64_t inputs, int group) {
    constexpr int kMost = 150;
    const std::vector<float> weights = values(outputs * inputs);
    MatrixSource source;
    source.inputs = inputs;
    source.parts = {
        {"w", {reinterpret_cast<const std::byte*>(weights.data()), DType::kFloat32, {outputs, inputs}, {inputs, 1}}}};
    for (std::int64_t row = 0; row < outputs; ++row) source.outputs.push_back({0, row});
    const auto matrix = Precision::pack(source, group);
    const std::int64_t tiles = matrix.layout().tiles(), width = tiles * 16;
    const KernelTable& portable = kernel_table(Isa::kPortable);
    const KernelTable emulated = emulated::amx_table();
    const std::int64_t padded = round_up<std::int64_t>(inputs, 32);
    typename Precision::Rows rows(padded, group, kMost);
    for (int row = 0; row < kMost; ++row) {
      std::vector<float> x = values(inputs);
      x.resize(static_cast<std::size_t>(padded));
      rows.set(portable, row, x.data());
    }
    std::vector<float> expected(static_cast<std::size_t>(kMost * width)), y(expected.size());
    rows.multiply(portable, matrix, kMost, {expected.data(), width, Store::kSet, 0, tiles});
    for (const int count : {1, 4, 5, 9, 15, 16, 17, 18, 31, 32, 33, 47, 128, 129, 145, kMost}) {
      std::fill(y.begin(), y.end(), 0.0f);
      const std::int64_t cut = tiles / 2;
      rows.multiply(emulated, matrix, count, {y.data(), width, Store::kSet, 0, cut});
      rows.multiply(emulated, matrix, count, {y.data(), width, Store::kAdd, cut, tiles});
      std::vector<float> wanted(y.size());  // nothing past the last row; adding turned -0 into 0
      for (std::size_t i = 0; i < static_cast<std::size_t>(count * width); ++i) wanted[i] = expected[i] + 0.0f;
      for (float& value : y) value += 0.0f;
      ASSERT_TRUE(same_bits(y, wanted)) << count << " rows of " << width << " outputs";
    }
  }

  std::mt19937 random_{7};
  ScopedFlushDenormals flush_;
};

TEST_F(AmxEmulationTest, Int4HasTheBitsOfThePortableLevel) {
  for (const int group : {32, 64, 128}) {
    for (const std::int64_t inputs : {24, 64, 96, 224, 576, 1000}) {
      SCOPED_TRACE(std::to_string(inputs) + " inputs, groups of " + std::to_string(group));
      compare<Int4>(72, inputs, group);
    }
  }
}

TEST_F(AmxEmulationTest, Bf16HasTheBitsOfThePortableLevel) {
  for (const std::int64_t inputs : {24, 32, 96, 160, 576}) {
    SCOPED_TRACE(std::to_string(inputs) + " inputs");
    compare<BFloat16>(72, inputs, 32);
  }
}

}  // namespace
}  // namespace kwker::testing
#endif
