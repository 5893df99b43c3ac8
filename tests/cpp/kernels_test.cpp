// Every kernel on every level: against a naive oracle in its defined order, bit for bit where the definition fixes the
// bits, and within a derived tolerance of the mathematical value.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "bits.hpp"
#include "isa_test_base.hpp"
#include "kwker/base/aligned_buffer.hpp"
#include "kwker/cpu/flush_denormals.hpp"
#include "kwker/model/kv_cache.hpp"
#include "kwker/model/matrix.hpp"
#include "kwker/model/precision.hpp"

namespace kwker::testing {
namespace {

constexpr double kEps = 1.1920929e-7;

std::vector<float> normal_values(std::mt19937& random, std::size_t count, float scale) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// A source whose only part is a contiguous matrix of floats.
struct FloatMatrix {
  std::vector<float> values;
  MatrixSource source;

  FloatMatrix(std::mt19937& random, std::int64_t outputs, std::int64_t inputs, float scale)
      : values(normal_values(random, static_cast<std::size_t>(outputs * inputs), scale)) {
    source.inputs = inputs;
    source.parts = {
        {"w", {reinterpret_cast<const std::byte*>(values.data()), DType::kFloat32, {outputs, inputs}, {inputs, 1}}}};
    for (std::int64_t row = 0; row < outputs; ++row) source.outputs.push_back({0, row});
  }
};

class KernelTest : public IsaTest {
 protected:
  std::mt19937 random_{42};
  ScopedFlushDenormals flush_;
};

TEST_P(KernelTest, Bf16MatmulHasTheDefinedBits) {
  for (const std::int64_t inputs : {8, 32, 72, 160}) {
    for (const std::int64_t outputs : {1, 16, 37}) {
      for (const float scale : {1e-20f, 0.05f, 1e15f}) {
        FloatMatrix w(random_, outputs, inputs, scale);
        const Bf16Matrix packed(w.source);
        const std::int64_t stride = packed.layout().inputs, width = packed.layout().tiles() * 16;
        constexpr int kMost = 131;
        BFloat16::Rows x_rows(stride, 32, kMost);
        for (int row = 0; row < kReadableRows; ++row) {  // NaN where rows end
          for (int k = 0; k < 32; ++k) x_rows.view().halves_at(stride / 32 - 1, kMost + row)[k].bits = 0x7fc1;
        }
        const auto x = [&](std::int64_t row, std::int64_t k) { return x_rows.view().values_at(k / 32, row)[k % 32]; };
        AlignedBuffer<float> y(static_cast<std::size_t>(kMost * width + 1));
        for (int row = 0; row < kMost; ++row) {
          const std::vector<float> values = normal_values(random_, static_cast<std::size_t>(inputs), 2.0f);
          std::vector<float> padded(static_cast<std::size_t>(stride));
          std::copy(values.begin(), values.end(), padded.begin());
          x_rows.set(kernels(), row, padded.data());
        }
        for (const int rows : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, kMost}) {
          y[static_cast<std::size_t>(rows * width)] = 77.0f;  // guard
          x_rows.multiply(kernels(), packed, rows, {y.data(), width, Store::kSet, 0, packed.layout().tiles()});
          ASSERT_EQ(y[static_cast<std::size_t>(rows * width)], 77.0f) << "wrote past the last row";
          for (int row = 0; row < rows; ++row) {
            for (std::int64_t n = 0; n < outputs; ++n) {
              float sum = 0;
              for (std::int64_t block = 0; block < stride; block += 32) {
                float even = 0, odd = 0;
                for (std::int64_t k = block; k < block + 32 && k < inputs; k += 2) {
                  const auto weight = [&](std::int64_t i) {
                    return to_float(to_bfloat16(w.values[static_cast<std::size_t>(n * inputs + i)]));
                  };
                  even = std::fma(weight(k), x(row, k), even);
                  odd = std::fma(weight(k + 1), x(row, k + 1), odd);
                }
                sum += even + odd;
              }
              const float got = y[static_cast<std::size_t>(row * width + n)];
              ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(sum))
                  << got << " and " << sum << ", rows " << rows << " row " << row << " output " << n;
            }
          }
        }
      }
    }
  }
}

TEST_P(KernelTest, Int4MatmulHasTheDefinedBits) {
  for (const int group : {32, 64, 128}) {
    for (const std::int64_t inputs : {24, 64, 96, 288, 576, 1000}) {
      const std::int64_t outputs = inputs == 576 ? 40 : 16;
      FloatMatrix w(random_, outputs, inputs, 0.05f);
      const Int4Matrix packed(w.source, group);
      const Int4Layout& layout = packed.layout();
      std::vector<std::vector<float>> dequantised(static_cast<std::size_t>(outputs),
                                                  std::vector<float>(static_cast<std::size_t>(layout.inputs())));
      for (std::int64_t n = 0; n < outputs; ++n) packed.read_row(n, dequantised[static_cast<std::size_t>(n)].data());
      constexpr int kMost = 131;
      Int4::Rows x_rows(layout.inputs(), group, kMost);
      const Int8Rows& view = x_rows.view();
      std::memset(view.values, 99,
                  static_cast<std::size_t>(layout.blocks() * kMost + kReadableRows) * Int8Rows::kStride);
      for (int row = 0; row < kMost; ++row) {
        std::vector<float> x = normal_values(random_, static_cast<std::size_t>(inputs), 3.0f);
        if (row == 1) x.assign(x.size(), 0.0f);
        if (row == 2) x.assign(x.size(), -5.0f);  // every byte -127: the largest sums
        x.resize(static_cast<std::size_t>(layout.inputs()), 0.0f);
        x_rows.set(kernels(), row, x.data());
        for (int b = 0; b < layout.blocks(); ++b) {  // each value within half a step
          const float scale = *view.scales_at(b, row);
          const Int4Block block = layout.block_at(b);
          for (int i = 0; i < block.inputs; ++i) {
            const float value = x[static_cast<std::size_t>(b * layout.block() + i)];
            ASSERT_LE(std::fabs(value - scale * view.values_at(b, row)[i]), 0.5001f * scale);
          }
        }
      }
      std::vector<float> y(static_cast<std::size_t>(kMost * layout.tiles() * 16 + 1));
      for (const int rows : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, kMost}) {
        const std::int64_t width = layout.tiles() * 16;
        y[static_cast<std::size_t>(rows * width)] = 77.0f;
        x_rows.multiply(kernels(), packed, rows, {y.data(), width, Store::kSet, 0, layout.tiles()});
        ASSERT_EQ(y[static_cast<std::size_t>(rows * width)], 77.0f) << "wrote past the last row";
        for (int row = 0; row < rows; ++row) {
          for (std::int64_t n = 0; n < outputs; ++n) {
            // The definition, from the packed bytes by another path: dequantised weights over their block's scale.
            float sum = 0;
            const std::uint8_t* bytes = packed.data() + n / 16 * layout.tile_bytes();
            for (int b = 0; b < layout.blocks(); ++b) {
              const Int4Block block = layout.block_at(b);
              float16 half;
              std::memcpy(&half, bytes + block.scale_offset + n % 16 * 2, 2);
              double dot = 0;
              for (int i = 0; i < block.inputs; ++i) {
                const int k = b * layout.block() + i;
                dot += std::nearbyint(dequantised[static_cast<std::size_t>(n)][static_cast<std::size_t>(k)] /
                                      to_float(half)) *
                       view.values_at(b, row)[i];
              }
              sum = std::fma(static_cast<float>(dot), to_float(half) * *view.scales_at(b, row), sum);
              bytes += block.bytes;
            }
            const float got = y[static_cast<std::size_t>(row * width + n)];
            ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(sum))
                << got << " and " << sum << ", group " << group << " inputs " << inputs << " rows " << rows << " row "
                << row << " output " << n;
          }
        }
      }
    }
  }
}

TEST_P(KernelTest, MatmulAddsOnce) {
  FloatMatrix w(random_, 32, 64, 0.1f);
  const Bf16Matrix packed(w.source);
  AlignedBuffer<float> set(5 * 32), added(5 * 32);
  BFloat16::Rows rows(64, 32, 5);
  for (int row = 0; row < 5; ++row) rows.set(kernels(), row, normal_values(random_, 64, 1.0f).data());
  for (std::size_t n = 0; n < added.size(); ++n) added[n] = 0.3f * static_cast<float>(n);
  rows.multiply(kernels(), packed, 5, {set.data(), 32, Store::kSet, 0, 2});
  rows.multiply(kernels(), packed, 5, {added.data(), 32, Store::kAdd, 0, 2});
  for (std::size_t n = 0; n < added.size(); ++n) EXPECT_EQ(added[n], 0.3f * static_cast<float>(n) + set[n]);
}

TEST_P(KernelTest, MatmulWritesItsTilesOnly) {
  FloatMatrix w(random_, 64, 64, 0.1f);
  const Int4Matrix packed(w.source, 32);
  std::vector<float> y(64, 5.0f);
  Int4::Rows rows(64, 32, 1);
  rows.set(kernels(), 0, std::vector<float>(64, 1.0f).data());
  rows.multiply(kernels(), packed, 1, {y.data(), 64, Store::kSet, 1, 3});
  for (std::size_t n = 0; n < 64; ++n) EXPECT_EQ(y[n] == 5.0f, n < 16 || n >= 48) << n;
}

TEST_P(KernelTest, RmsNormIsAccurateAndSkipsPadding) {
  for (const std::int64_t n : {1, 15, 32, 72, 576, 2048}) {
    const std::int64_t padded = round_up<std::int64_t>(n, 32);
    std::vector<float> x = normal_values(random_, static_cast<std::size_t>(n), 4.0f);
    std::vector<float> weight = normal_values(random_, static_cast<std::size_t>(n), 1.0f);
    x.resize(static_cast<std::size_t>(padded));
    weight.resize(static_cast<std::size_t>(padded));
    std::vector<float> y(static_cast<std::size_t>(padded), 9.0f);
    kernels().rms_norm(x.data(), weight.data(), 1e-5f, n, padded, y.data());
    double squares = 0;
    for (const float value : x) squares += static_cast<double>(value) * value;
    const double factor = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double expected = x[i] * factor * weight[i];
      EXPECT_NEAR(y[i], expected, std::fabs(expected) * kEps * (8 + static_cast<double>(n) / 16));
    }
  }
}

TEST_P(KernelTest, SwigluIsAccurateEverywhere) {
  std::vector<float> gate_up, expected_gate;
  for (int i = 0; i < 4096; ++i) expected_gate.push_back(-100.0f + 200.0f * static_cast<float>(i) / 4096.0f);
  for (std::size_t run = 0; run < 256; ++run) {
    for (std::size_t i = 0; i < 16; ++i) gate_up.push_back(expected_gate[run * 16 + i]);
    for (std::size_t i = 0; i < 16; ++i) gate_up.push_back(0.75f);
  }
  std::vector<float> out(4096);
  kernels().swiglu(gate_up.data(), 256, out.data());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double gate = expected_gate[i];
    const double expected = gate / (1 + std::exp(-gate)) * 0.75;
    EXPECT_NEAR(out[i], expected, std::fabs(expected) * 6e-7 + 1e-35) << gate;
  }
}

TEST_P(KernelTest, RotateKeepsPairsTogether) {
  std::vector<float> head = normal_values(random_, 64, 1.0f), original = head, cos(32), sin(32);
  for (std::size_t i = 0; i < 32; ++i) {
    cos[i] = std::cos(static_cast<float>(i));
    sin[i] = std::sin(static_cast<float>(i));
  }
  kernels().rotate(head.data(), cos.data(), sin.data(), 32);
  for (std::size_t i = 0; i < 32; ++i) {
    const double first = double{original[i]} * cos[i] - double{original[i + 32]} * sin[i];
    const double second = double{original[i + 32]} * cos[i] + double{original[i]} * sin[i];
    EXPECT_NEAR(head[i], first, std::fabs(first) / 256 + 1e-6);
    EXPECT_NEAR(head[i + 32], second, std::fabs(second) / 256 + 1e-6);
    EXPECT_EQ(to_float(to_bfloat16(head[i])), head[i]) << "not rounded to bfloat16";
  }
}

TEST_P(KernelTest, RoundingIsThatOfTheStorageType) {
  std::vector<float> x(1 << 16);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(random_());
    x[i] = std::bit_cast<float>((bits & 0x7f800000u) == 0x7f800000u ? bits & 0xff7fffffu : bits);
    if (i % 4 == 0) x[i] = std::bit_cast<float>((std::bit_cast<std::uint32_t>(x[i]) & 0xffff0000u) | 0x8000u);  // a tie
  }
  BFloat16::Rows rows(static_cast<std::int64_t>(x.size()), 32, 1);
  rows.set(kernels(), 0, x.data());
  const float* y = rows.view().values;
  const bfloat16* halves = rows.view().halves;
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(y[i]), std::bit_cast<std::uint32_t>(to_float(to_bfloat16(x[i])))) << x[i];
    ASSERT_EQ(halves[i].bits, to_bfloat16(x[i]).bits) << x[i];
  }
}

TEST_P(KernelTest, ArgmaxTakesTheLowestOfEquals) {
  for (const std::int64_t n : {1, 5, 16, 31, 999, 1024, 5000}) {
    std::vector<float> x = normal_values(random_, static_cast<std::size_t>(n), 1.0f);
    const std::int64_t first = static_cast<std::int64_t>(random_()) % n;
    x[static_cast<std::size_t>(first)] = 50.0f;
    if (first + 3 < n) x[static_cast<std::size_t>(first + 3)] = 50.0f;
    x[static_cast<std::size_t>(n - 1)] = std::max(x[static_cast<std::size_t>(n - 1)], 50.0f);
    EXPECT_EQ(kernels().argmax(x.data(), n), first);
    if (n > 1 && first > 0) {
      x[0] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_EQ(kernels().argmax(x.data(), n), first);
    }
  }
  const std::vector<float> nothing(40, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(kernels().argmax(nothing.data(), 40), 0);
  const std::vector<float> negative(40, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(kernels().argmax(negative.data(), 40), 0);
}

/// Attention of `rows` rows at the end of `length` positions, all heads of one group.
class AttentionCase {
 public:
  AttentionCase(std::mt19937& random, int length, int head_dim, int group)
      : head_dim_(head_dim), group_(group), cache_(1, 1, 1, head_dim, length + 40) {
    cache_.reserve(0);
    keys_ = normal_values(random, static_cast<std::size_t>(length * head_dim), 1.5f);
    values_ = normal_values(random, static_cast<std::size_t>(length * head_dim), 1.0f);
    queries_ = normal_values(random, static_cast<std::size_t>(length * group * head_dim), 1.5f);
    for (float& value : keys_) value = to_float(to_bfloat16(value));
    for (float& value : queries_) value = to_float(to_bfloat16(value));
    for (int i = 0; i < length; ++i) append(i);
    // What an earlier, longer text left behind must not be seen.
    const std::vector<float> stale(static_cast<std::size_t>(head_dim), 3.0e38f);
    for (int i = length; i < length + 8; ++i) cache_.append(0, 0, 0, i, stale.data(), stale.data());
  }

  void append(int i) { cache_.append(0, 0, 0, i, keys_.data() + i * head_dim_, values_.data() + i * head_dim_); }

  /// In two steps if asked: the scores of two ranges of positions, then two ranges of columns.
  std::vector<float> run(const KernelTable& kernels, int position, int rows, int window = 0,
                         bool two_steps = false) const {
    const std::size_t width = static_cast<std::size_t>(group_ * head_dim_);
    std::vector<float> out(static_cast<std::size_t>(rows) * width);
    AlignedBuffer<float> scratch(static_cast<std::size_t>(kAttentionTile * cache_.capacity()));
    AttentionArgs args;
    args.queries = queries_.data() + static_cast<std::size_t>(position) * width;
    args.out_stride = static_cast<std::int64_t>(width);
    args.keys = cache_.keys(0, 0, 0);
    args.values = cache_.values(0, 0, 0);
    args.rows = rows;
    args.position = position;
    args.group = group_;
    args.head_dim = head_dim_;
    args.scale = 0.2f;
    args.out = out.data();
    args.weights = scratch.data();
    args.window = window;
    if (!two_steps) {
      kernels.attention(args);
      return out;
    }
    const int begin = window == 0 ? 0 : std::max(0, position + 1 - window) / 32 * 32;
    const int end = round_up(position + rows, 32), middle = (begin + end) / 64 * 32;
    std::vector<float> scores(static_cast<std::size_t>(rows * group_ * (end - begin)), -7.0f);
    args.scores = {scores.data(), begin, end - begin};
    kernels.attention_scores(args, middle, end);
    kernels.attention_scores(args, begin, middle);
    kernels.attention_sums(args, 32, head_dim_);
    kernels.attention_sums(args, 0, 32);
    return out;
  }

  double expected(int position, int head, int d) const {
    std::vector<double> weight;
    double largest = -1e300, sum = 0, result = 0;
    for (int p = 0; p <= position; ++p) {
      double dot = 0;
      for (int i = 0; i < head_dim_; ++i) {
        dot += double{queries_[static_cast<std::size_t>((position * group_ + head) * head_dim_ + i)]} *
               keys_[static_cast<std::size_t>(p * head_dim_ + i)];
      }
      weight.push_back(dot * 0.2f);
      largest = std::max(largest, weight.back());
    }
    for (double& w : weight) sum += w = std::exp(w - largest);
    for (int p = 0; p <= position; ++p) {
      result += weight[static_cast<std::size_t>(p)] / sum *
                to_float(to_bfloat16(values_[static_cast<std::size_t>(p * head_dim_ + d)]));
    }
    return result;
  }

 private:
  int head_dim_, group_;
  KvCache cache_;
  std::vector<float> keys_, values_, queries_;
};

TEST_P(KernelTest, AttentionIsAccurateAndTheSameForAnyRows) {
  for (const int head_dim : {32, 64, 96}) {
    for (const int group : {1, 3, 5}) {
      constexpr int kLength = 83;
      const AttentionCase test(random_, kLength, head_dim, group);
      const std::size_t width = static_cast<std::size_t>(group * head_dim);
      const std::vector<float> all = test.run(kernels(), 0, kLength);
      for (int position = 0; position < kLength; ++position) {
        const std::span<const float> row = std::span(all).subspan(static_cast<std::size_t>(position) * width, width);
        ASSERT_TRUE(same_bits(row, test.run(kernels(), position, 1))) << position;
        for (int head = 0; head < group; ++head) {
          for (int d = 0; d < head_dim; d += 7) {
            ASSERT_NEAR(row[static_cast<std::size_t>(head * head_dim + d)], test.expected(position, head, d), 0.02);
          }
        }
      }
      for (const int rows : {2, 7, 9, 17}) {
        const std::vector<float> some = test.run(kernels(), kLength - rows, rows);
        ASSERT_TRUE(same_bits(some, std::span(all).last(some.size()))) << rows;
      }
      for (const int window : {0, 1, 30, 50}) {
        const std::vector<float> windowed = test.run(kernels(), 0, kLength, window);
        EXPECT_EQ(windowed == all, window == 0);
        for (const int rows : {1, 3, 16}) {
          const std::vector<float> some = test.run(kernels(), kLength - rows, rows, window, true);
          ASSERT_TRUE(same_bits(some, std::span(windowed).last(some.size()))) << rows << ", window " << window;
        }
      }
    }
  }
}

TEST_P(KernelTest, SameBitsAsPortable) {
  const KernelTable& portable = kernel_table(Isa::kPortable);
  for (const float scale : {1e-30f, 1e-3f, 1.0f, 50.0f, 1e20f}) {
    std::vector<float> x = normal_values(random_, 2048, scale), weight = normal_values(random_, 2048, 1.0f);
    std::vector<float> a(2048), b(2048);
    kernels().rms_norm(x.data(), weight.data(), 1e-5f, 2000, 2048, a.data());
    portable.rms_norm(x.data(), weight.data(), 1e-5f, 2000, 2048, b.data());
    EXPECT_TRUE(same_bits(a, b));
    a.resize(1024);
    b.resize(1024);
    kernels().swiglu(x.data(), 64, a.data());
    portable.swiglu(x.data(), 64, b.data());
    EXPECT_TRUE(same_bits(a, b));
    std::vector<float> p = x, q = x;
    kernels().rotate(p.data(), weight.data(), weight.data() + 64, 64);
    portable.rotate(q.data(), weight.data(), weight.data() + 64, 64);
    EXPECT_TRUE(same_bits(p, q));
  }
  const AttentionCase test(random_, 70, 64, 3);
  EXPECT_TRUE(same_bits(test.run(kernels(), 0, 70), test.run(portable, 0, 70)));
}

KWKER_INSTANTIATE_ISA_TEST(KernelTest);

}  // namespace
}  // namespace kwker::testing
