// The decoder against the oracle, and the contract: the logits of a position have the same bits whatever computes them.
#include "kwker/decoder.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "bits.hpp"
#include "isa_test_base.hpp"
#include "oracle.hpp"
#include "random_model.hpp"

namespace kwker::testing {
namespace {

template <class Precision>
std::vector<float> all_logits(Decoder<Precision>& decoder, const std::vector<Token>& tokens, int chunk) {
  std::vector<float> out(tokens.size() * static_cast<std::size_t>(decoder.config().vocab_size));
  logits(decoder, tokens, chunk, out.data());
  return out;
}

double rms_error(const std::vector<float>& got, const std::vector<Vector>& expected) {
  double error = 0, norm = 0;
  std::size_t i = 0;
  for (const Vector& row : expected) {
    for (const double value : row) {
      error += (got[i] - value) * (got[i] - value);
      norm += value * value;
      ++i;
    }
  }
  return std::sqrt(error / norm);
}

template <class Precision>
class DecoderTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Model<Precision>> build(const ModelConfig& config, std::uint32_t seed, int group = 32) {
    return build_model<Precision>(config, RandomWeights(config, seed), PackOptions{group, nullptr});
  }
};

using Precisions = ::testing::Types<BFloat16, Int4>;
struct PrecisionName {
  template <class T>
  static std::string GetName(int) {
    return T::kName;
  }
};
TYPED_TEST_SUITE(DecoderTest, Precisions, PrecisionName);

TYPED_TEST(DecoderTest, AgreesWithTheOracle) {
  std::mt19937 random(7);
  for (int round = 0; round < 24; ++round) {
    const ModelConfig config = random_config(random);
    RandomWeights weights(config, static_cast<std::uint32_t>(round));
    Decoder decoder(build_model<TypeParam>(config, weights), {.max_cache_len = 64});
    const std::vector<Token> tokens = random_tokens(random, config.vocab_size, 24);
    const Oracle oracle(config, [&](const std::string& name, std::int64_t row, std::int64_t column) {
      const TensorView view = weights.tensor(name);
      return double{reinterpret_cast<const float*>(view.data)[row * view.strides[0] + column]};
    });
    const double error = rms_error(all_logits(decoder, tokens, 0), oracle.logits(tokens));
    // bfloat16 keeps 8 bits; int4 rounds weights to about 1/15 of their range. A wrong layer gives about 1.
    EXPECT_LT(error, (std::is_same_v<TypeParam, Int4> ? 0.45 : 0.03))
        << "hidden " << config.hidden_size << " heads " << config.num_heads << "/" << config.num_kv_heads
        << " head_dim " << config.head_dim << " mlp " << config.intermediate_size << " layers " << config.num_layers;
  }
}

TYPED_TEST(DecoderTest, SameBitsForAnyChunkThreadsAndIsa) {
  std::mt19937 random(11);
  for (int round = 0; round < 10; ++round) {
    ModelConfig config = random_config(random);
    const int group = std::vector<int>{32, 64, 128}[static_cast<std::size_t>(round % 3)];
    const auto model = this->build(config, static_cast<std::uint32_t>(round), group);
    const std::vector<Token> tokens = random_tokens(random, config.vocab_size, 75);
    std::vector<float> reference;
    for (const Isa isa : isa_levels()) {
      const ScopedIsa scope(isa);
      for (const int threads : {1, 2, 3}) {
        Decoder decoder(model, {.max_cache_len = 96, .num_threads = threads});
        for (const int chunk : {1, 2, 3, 7, 8, 9, 16, 17, 64, 0}) {
          // Portable code is slow: it takes part with one thread count and the odd chunks.
          if (isa == Isa::kPortable && threads * 16 % 48 != 16 && chunk != 7) continue;
          const std::vector<float> got = all_logits(decoder, tokens, chunk);
          if (reference.empty()) reference = got;
          ASSERT_TRUE(same_bits(got, reference)) << isa_name(isa) << " threads " << threads << " chunk " << chunk;
        }
      }
    }
  }
}

TYPED_TEST(DecoderTest, SameBitsWhereThreadsShareTheAttentionOfAHead) {
  // Few heads and a long context: threads split positions and columns. One thread never does.
  std::mt19937 random(15);
  for (const std::int64_t window : {0, 700}) {
    ModelConfig config = tiny_config();
    config.num_layers = 1;
    config.num_kv_heads = window == 0 ? 3 : 1;
    config.num_heads = 3;
    config.head_dim = 64;
    config.sliding_window = window;
    const auto model = this->build(config, 3);
    constexpr int kLength = 1000, kPrompt = 960, kMost = 1010;
    const std::vector<Token> tokens = random_tokens(random, config.vocab_size, kLength);
    Decoder alone(model, {.max_cache_len = kMost, .num_threads = 1});
    const std::vector<float> reference = all_logits(alone, tokens, 64);
    for (const Isa isa : isa_levels()) {
      const ScopedIsa scope(isa);
      for (const int threads : {2, 4, 7}) {
        Decoder decoder(model, {.max_cache_len = kMost, .num_threads = threads});
        all_logits(decoder, {tokens.begin(), tokens.begin() + kPrompt}, 128);
        for (int position = kPrompt, count = 1; position < kLength; position += count, count = count % 16 + 3) {
          std::vector<Row> rows;
          for (int i = position; i < std::min(position + count, kLength); ++i) {
            rows.push_back({0, tokens[static_cast<std::size_t>(i)], i});
          }
          const LogitsView view = decoder.step(rows);
          const std::size_t vocab = static_cast<std::size_t>(config.vocab_size);
          for (std::size_t i = 0; i < rows.size(); ++i) {
            const std::size_t at = static_cast<std::size_t>(rows[i].position) * vocab;
            ASSERT_TRUE(same_bits(view.row(static_cast<int>(i)), std::span(reference).subspan(at, vocab)))
                << isa_name(isa) << ", " << threads << " threads, position " << rows[i].position;
          }
        }
      }
    }
  }
}

TYPED_TEST(DecoderTest, SameBitsInAnySlotAndCompany) {
  std::mt19937 random(13);
  const ModelConfig config = tiny_config();
  const auto model = this->build(config, 1);
  constexpr int kSequences = 5, kLength = 40;
  std::vector<std::vector<Token>> tokens;
  std::vector<std::vector<float>> solo;
  for (int s = 0; s < kSequences; ++s) {
    tokens.push_back(random_tokens(random, config.vocab_size, kLength));
    Decoder decoder(model, {.max_cache_len = 64});
    solo.push_back(all_logits(decoder, tokens.back(), 1));
  }
  for (int round = 0; round < 30; ++round) {
    Decoder decoder(model, {.max_cache_len = 64, .max_batch = kSequences, .num_threads = 1 + round % 3});
    std::vector<int> next(kSequences, 0);
    while (*std::min_element(next.begin(), next.end()) < kLength) {
      std::vector<Row> rows;
      std::vector<int> order{0, 1, 2, 3, 4};
      std::shuffle(order.begin(), order.end(), random);
      for (const int s : order) {
        const int slot = (s + round) % kSequences;
        if (random() % 3 == 0 && next[static_cast<std::size_t>(s)] > 0) {  // roll back some
          next[static_cast<std::size_t>(s)] -= static_cast<int>(random() % 3) % (next[static_cast<std::size_t>(s)] + 1);
        }
        const int count = std::min<int>(static_cast<int>(random() % 12), kLength - next[static_cast<std::size_t>(s)]);
        for (int i = 0; i < count; ++i) {
          const int position = next[static_cast<std::size_t>(s)]++;
          rows.push_back({slot, tokens[static_cast<std::size_t>(s)][static_cast<std::size_t>(position)], position});
        }
      }
      if (rows.empty()) continue;
      const LogitsView view = decoder.step(rows);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::size_t s =
            static_cast<std::size_t>((rows[i].sequence + kSequences - round % kSequences) % kSequences);
        const std::size_t vocab = static_cast<std::size_t>(config.vocab_size);
        ASSERT_TRUE(same_bits(view.row(static_cast<int>(i)),
                              std::span(solo[s]).subspan(static_cast<std::size_t>(rows[i].position) * vocab, vocab)));
      }
    }
  }
}

TYPED_TEST(DecoderTest, RejectedRowsLeaveNoTrace) {
  std::mt19937 random(17);
  const ModelConfig config = tiny_config();
  const auto model = this->build(config, 2);
  const std::vector<Token> tokens = random_tokens(random, config.vocab_size, 50);
  Decoder clean(model, {.max_cache_len = 64});
  const std::vector<float> reference = all_logits(clean, tokens, 1);
  Decoder decoder(model, {.max_cache_len = 64});
  const std::size_t vocab = static_cast<std::size_t>(config.vocab_size);
  for (int position = 0; position < 50; ++position) {
    std::vector<Row> rows{{0, tokens[static_cast<std::size_t>(position)], position}};
    for (int i = 1; i < 1 + static_cast<int>(random() % 14) && position + i < 64; ++i) {
      rows.push_back({0, static_cast<Token>(random() % vocab), position + i});
    }
    const LogitsView view = decoder.step(rows);
    ASSERT_TRUE(
        same_bits(view.row(0), std::span(reference).subspan(static_cast<std::size_t>(position) * vocab, vocab)));
    decoder.truncate(0, position + 1);
    ASSERT_EQ(decoder.length(0), position + 1);
  }
}

TYPED_TEST(DecoderTest, OnlyWantedLogitsAreGiven) {
  const ModelConfig config = tiny_config();
  Decoder decoder(this->build(config, 3), {.max_cache_len = 64});
  const std::vector<float> all = all_logits(decoder, {5, 6, 7, 8}, 0);
  const std::vector<Row> rows{{0, 5, 0, false}, {0, 6, 1, true}, {0, 7, 2, false}, {0, 8, 3, true}};
  const LogitsView view = decoder.step(rows);
  ASSERT_EQ(view.rows, 2);
  const std::size_t vocab = static_cast<std::size_t>(config.vocab_size);
  EXPECT_TRUE(same_bits(view.row(0), std::span(all).subspan(vocab, vocab)));
  EXPECT_TRUE(same_bits(view.row(1), std::span(all).subspan(3 * vocab, vocab)));
}

TYPED_TEST(DecoderTest, WrongRowsAreRefusedAndChangeNothing) {
  const ModelConfig config = tiny_config();
  Decoder decoder(this->build(config, 4), {.max_cache_len = 8, .max_batch = 2});
  const std::vector<Row> start{{0, 1, 0}, {0, 2, 1}, {1, 3, 0}};
  decoder.step(start);
  const std::vector<std::vector<Row>> wrong{
      {},
      {{3, 1, 0}},
      {{-1, 1, 0}},
      {{0, 256, 2}},
      {{0, -1, 2}},
      {{0, 1, 3}},
      {{0, 1, -1}},
      {{0, 1, 2}, {0, 1, 4}},
      {{0, 1, 2}, {0, 1, 2}},
      {{0, 1, 2}, {1, 1, 1}, {0, 1, 3}},
      {{0, 1, 2}, {0, 1, 3}, {0, 1, 4}, {0, 1, 5}, {0, 1, 6}, {0, 1, 7}, {0, 1, 8}},
  };
  for (const auto& rows : wrong) {
    EXPECT_THROW(decoder.step(rows), std::invalid_argument);
    EXPECT_EQ(decoder.length(0), 2);
    EXPECT_EQ(decoder.length(1), 1);
  }
  EXPECT_THROW(decoder.truncate(0, 3), std::invalid_argument);
  EXPECT_THROW(decoder.truncate(0, -1), std::invalid_argument);
  EXPECT_EQ(decoder.step(std::vector<Row>{{0, 1, 2}}).rows, 1);
}

TYPED_TEST(DecoderTest, WrongOptionsAndWeightsAreRefused) {
  const ModelConfig config = tiny_config();
  const auto model = this->build(config, 5);
  EXPECT_THROW(Decoder<TypeParam>(model, {.max_cache_len = 0}), std::invalid_argument);
  EXPECT_THROW(Decoder<TypeParam>(model, {.max_batch = 0}), std::invalid_argument);
  EXPECT_THROW(Decoder<TypeParam>(model, {.num_threads = -1}), std::invalid_argument);
  EXPECT_THROW(this->build(config, 5, 48), std::invalid_argument);
  const std::vector<std::string> names{"model.embed_tokens.weight", "model.norm.weight",
                                       "model.layers.1.self_attn.k_proj.weight", "model.layers.0.mlp.down_proj.weight"};
  for (const std::string& name : names) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      RandomWeights weights(config, 5);
      weights.values(name).back() = bad;
      try {
        build_model<TypeParam>(config, weights);
        FAIL() << name;
      } catch (const std::invalid_argument& error) {
        EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
      }
    }
  }
  ModelConfig other = config;
  other.intermediate_size = 100;
  EXPECT_THROW(build_model<TypeParam>(other, RandomWeights(config, 5)), Error);
  other = config;
  other.tie_word_embeddings = false;
  EXPECT_THROW(build_model<TypeParam>(other, RandomWeights(config, 5)), Error);
}

TYPED_TEST(DecoderTest, HugeActivationsStayInTheirRow) {
  // One token whose embedding overflows everything must not touch the logits of the positions before it.
  const ModelConfig config = tiny_config();
  RandomWeights weights(config, 6);
  for (std::size_t i = 0; i < 64; ++i) weights.values("model.embed_tokens.weight")[200 * 64 + i] = 3e38f;
  Decoder decoder(build_model<TypeParam>(config, weights), {.max_cache_len = 64});
  const std::vector<Token> tokens{1, 2, 3, 200, 4, 5};
  const std::vector<float> one = all_logits(decoder, tokens, 1), all = all_logits(decoder, tokens, 6);
  EXPECT_TRUE(same_bits(std::span(one).first(3 * 256), std::span(all).first(3 * 256)));
}

}  // namespace
}  // namespace kwker::testing
