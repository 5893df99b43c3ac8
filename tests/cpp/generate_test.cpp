// Generation: equal text for every proposer, and its edges.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kwker/decoder.hpp"
#include "kwker/speculate/draft.hpp"
#include "kwker/speculate/prompt_lookup.hpp"
#include "random_model.hpp"

namespace kwker::testing {
namespace {

using Text = std::vector<Token>;

template <class Precision>
Decoder<Precision> random_decoder(const ModelConfig& config, std::uint32_t seed, const DecoderOptions& options = {}) {
  return Decoder<Precision>(build_model<Precision>(config, RandomWeights(config, seed)), options);
}

/// Random weights fall into short cycles, so lookup has much to find; a repeating prompt gives it more.
Text repeating_prompt(std::mt19937& random, std::int64_t vocab, int count) {
  Text tokens = random_tokens(random, vocab, count / 3 + 1);
  while (static_cast<int>(tokens.size()) < count)
    tokens.push_back(tokens[tokens.size() - static_cast<std::size_t>(count / 3 + 1)]);
  return tokens;
}

TEST(Generate, EqualsPlainOverRandomShapes) {
  std::mt19937 random(23);
  std::int64_t accepted_by_lookup = 0, rejected_by_lookup = 0, accepted_by_draft = 0, rejected_by_draft = 0;
  for (std::uint32_t round = 0; round < 240; ++round) {
    const ModelConfig config = random_config(random);
    ModelConfig small = config;
    small.num_layers = 1;
    const DecoderOptions options{.max_cache_len = 128, .num_threads = 1 + static_cast<int>(round % 3)};
    const auto run = [&](auto precision) {
      using Precision = decltype(precision);
      auto decoder = random_decoder<Precision>(config, round, options);
      auto twin = random_decoder<Precision>(config, round, {.max_cache_len = 128});
      auto other = random_decoder<BFloat16>(config, round, {.max_cache_len = 100});
      auto stranger = random_decoder<Int4>(small, round + 1000, {.max_cache_len = 128});
      const Text prompt = repeating_prompt(random, config.vocab_size, 1 + static_cast<int>(random() % 40));
      const int count = 1 + static_cast<int>(random() % 48);
      const Text plain = decoder.generate(prompt, {.max_new_tokens = count, .lookup = 0});
      ASSERT_EQ(plain.size(), prompt.size() + static_cast<std::size_t>(count));
      for (DecoderBase* draft : std::initializer_list<DecoderBase*>{nullptr, &twin, &other, &stranger, &decoder}) {
        const int lookup = static_cast<int>(random() % 17), tokens = 1 + static_cast<int>(random() % 16);
        Generation generation(decoder, prompt,
                              {.max_new_tokens = count, .lookup = lookup, .draft = draft, .draft_tokens = tokens});
        while (!generation.done()) ASSERT_FALSE(generation.advance().empty());
        ASSERT_EQ(generation.tokens(), plain) << "round " << round << " lookup " << lookup << " draft " << tokens;
        for (const ProposerStats& proposer : generation.stats().by_proposer) {
          const bool is_draft = proposer.name == "draft";
          (is_draft ? accepted_by_draft : accepted_by_lookup) += proposer.accepted;
          (is_draft ? rejected_by_draft : rejected_by_lookup) += proposer.proposed - proposer.accepted;
        }
      }
    };
    if (round % 2 == 0) {
      run(Int4{});
    } else {
      run(BFloat16{});
    }
  }
  // The test says something only if proposals were taken and refused.
  EXPECT_GT(accepted_by_lookup, 500);
  EXPECT_GT(rejected_by_lookup, 500);
  EXPECT_GT(accepted_by_draft, 500);
  EXPECT_GT(rejected_by_draft, 500);
}

class GenerateTest : public ::testing::Test {
 protected:
  ModelConfig config_ = tiny_config();
  std::mt19937 random_{29};
  Decoder<BFloat16> decoder_ = random_decoder<BFloat16>(config_, 1, {.max_cache_len = 256});
  Text prompt_ = repeating_prompt(random_, 256, 24);

  Text plain(int count) {
    return decoder_.generate(prompt_, {.max_new_tokens = count, .lookup = 0, .eos_token_ids = Text{}});
  }
};

TEST_F(GenerateTest, StopsAtEveryPossibleEos) {
  const Text full = plain(40);
  auto twin = random_decoder<BFloat16>(config_, 1, {.max_cache_len = 256});
  for (std::size_t i = prompt_.size(); i < full.size(); ++i) {
    const std::vector<Token> eos{full[i], 255};
    const auto first = std::find_first_of(full.begin() + static_cast<std::ptrdiff_t>(prompt_.size()), full.end(),
                                          eos.begin(), eos.end());
    const Text expected(full.begin(), first + 1);
    for (DecoderBase* draft : std::initializer_list<DecoderBase*>{nullptr, &twin}) {
      Generation generation(
          decoder_, prompt_,
          {.max_new_tokens = 40, .lookup = 8, .draft = draft, .draft_tokens = 7, .eos_token_ids = eos});
      while (!generation.done()) generation.advance();
      EXPECT_EQ(generation.tokens(), expected);
      EXPECT_EQ(generation.stats().finish_reason, FinishReason::kEos);
    }
  }
}

TEST_F(GenerateTest, TheModelsOwnEosIsTheDefault) {
  const Text full = plain(30);
  ModelConfig config = config_;
  config.eos_token_ids = {full[prompt_.size() + 4]};
  auto decoder = random_decoder<BFloat16>(config, 1, {.max_cache_len = 256});
  EXPECT_LE(decoder.generate(prompt_, {.max_new_tokens = 30}).size(), prompt_.size() + 5);
  EXPECT_EQ(decoder.generate(prompt_, {.max_new_tokens = 30, .eos_token_ids = Text{}}), full);
}

TEST_F(GenerateTest, ExactCountForSmallLimits) {
  const Text full = plain(20);
  for (int count = 0; count <= 12; ++count) {
    for (const int lookup : {0, 1, 8, 16}) {
      const Text text = decoder_.generate(
          prompt_, {.max_new_tokens = count, .lookup = lookup, .draft = &decoder_, .draft_tokens = 9});
      EXPECT_EQ(text, Text(full.begin(), full.begin() + static_cast<std::ptrdiff_t>(prompt_.size()) + count));
    }
  }
}

TEST_F(GenerateTest, FillsTheCacheAndEndsAsLength) {
  const Text full = plain(40);
  for (int room = 0; room <= 6; ++room) {
    const int capacity = static_cast<int>(prompt_.size()) + room;
    auto decoder = random_decoder<BFloat16>(config_, 1, {.max_cache_len = capacity});
    Generation generation(decoder, prompt_, {.lookup = 8, .draft = &decoder, .draft_tokens = 8});
    while (!generation.done()) generation.advance();
    EXPECT_EQ(generation.tokens(), Text(full.begin(), full.begin() + capacity));
    EXPECT_EQ(generation.stats().finish_reason, FinishReason::kLength);
  }
}

TEST_F(GenerateTest, DraftWithLessContextFallsBack) {
  auto draft = random_decoder<BFloat16>(config_, 1, {.max_cache_len = 40});
  const Text full = plain(150);
  Generation generation(decoder_, prompt_, {.max_new_tokens = 150, .lookup = 0, .draft = &draft, .draft_tokens = 5});
  while (!generation.done()) generation.advance();
  EXPECT_EQ(generation.tokens(), full);
  EXPECT_GT(generation.stats().accepted, 5);
  EXPECT_LE(generation.stats().accepted, 20);
}

TEST_F(GenerateTest, TargetAsItsOwnDraftIsAlwaysRight) {
  for (const int tokens : {1, 2, 4, 16}) {
    Generation generation(decoder_, prompt_,
                          {.max_new_tokens = 60, .lookup = 0, .draft = &decoder_, .draft_tokens = tokens});
    while (!generation.done()) generation.advance();
    EXPECT_EQ(generation.tokens(), plain(60));
    EXPECT_EQ(generation.stats().accepted, generation.stats().proposed);
    EXPECT_LE(generation.stats().max_proposed, tokens);
    EXPECT_LE(generation.stats().steps, 59 / (tokens + 1) + 1);
  }
}

TEST_F(GenerateTest, AcceptanceDoesNotDecayAfterRejections) {
  // Lookup first: where it is wrong, the draft's cache holds a text that was not taken. Afterwards it must be right.
  auto twin = random_decoder<BFloat16>(config_, 1, {.max_cache_len = 256});
  Generation generation(decoder_, prompt_, {.max_new_tokens = 200, .lookup = 3, .draft = &twin, .draft_tokens = 3});
  while (!generation.done()) generation.advance();
  EXPECT_EQ(generation.tokens(), plain(200));
  const ProposerStats& draft = generation.stats().by_proposer.at(1);
  EXPECT_EQ(draft.accepted, draft.proposed);
}

TEST_F(GenerateTest, PaddedDraftVocabularies) {
  for (const int padding : {-128, -1, 1, 128}) {
    ModelConfig config = config_;
    config.vocab_size += padding;
    auto draft = random_decoder<Int4>(config, 3, {.max_cache_len = 256});
    const Text text = decoder_.generate(prompt_, {.max_new_tokens = 50, .lookup = 0, .draft = &draft});
    EXPECT_EQ(text, plain(50));
  }
}

TEST_F(GenerateTest, OtherDraftVocabulariesAreRefused) {
  for (const int vocab : {100, 600, 49152}) {
    ModelConfig config = config_;
    config.vocab_size = vocab;
    auto draft = random_decoder<Int4>(config, 3, {.max_cache_len = 64});
    EXPECT_THROW(decoder_.generate(prompt_, {.max_new_tokens = 5, .draft = &draft}), std::invalid_argument);
  }
  EXPECT_EQ(plain(5).size(), prompt_.size() + 5);
}

TEST_F(GenerateTest, WrongArgumentsAreRefused) {
  EXPECT_THROW(decoder_.generate(Text{}, {}), std::invalid_argument);
  EXPECT_THROW(decoder_.generate(Text{1, 256}, {}), std::invalid_argument);
  EXPECT_THROW(decoder_.generate(Text{-1}, {}), std::invalid_argument);
  EXPECT_THROW(decoder_.generate(Text(257, 1), {}), std::invalid_argument);
  EXPECT_THROW(decoder_.generate(Text{1}, {.max_new_tokens = -1}), std::invalid_argument);
  EXPECT_THROW(decoder_.generate(Text{1}, {.lookup = -1}), std::invalid_argument);
  EXPECT_THROW(decoder_.generate(Text{1}, {.draft_tokens = -1}), std::invalid_argument);
  EXPECT_EQ(decoder_.generate(Text{1}, {.max_new_tokens = 3}).size(), 4u);
}

TEST_F(GenerateTest, CachedPrefixesGiveTheSameText) {
  auto no_cache = random_decoder<BFloat16>(config_, 1, {.max_cache_len = 256, .prefix_cache = false});
  for (int round = 0; round < 40; ++round) {
    Text prompt = prompt_;
    prompt.resize(1 + random_() % prompt.size());
    for (std::size_t i = random_() % 4; i > 0; --i) prompt.push_back(static_cast<Token>(random_() % 256));
    const GenerateOptions options{.max_new_tokens = 20, .lookup = static_cast<int>(random_() % 9)};
    Generation cached(decoder_, prompt, options), fresh(no_cache, prompt, options);
    while (!cached.done()) cached.advance();
    while (!fresh.done()) fresh.advance();
    ASSERT_EQ(cached.tokens(), fresh.tokens());
    EXPECT_EQ(fresh.stats().cached, 0);
  }
  decoder_.generate(prompt_, {.max_new_tokens = 4});
  Generation again(decoder_, prompt_, {.max_new_tokens = 4});
  while (!again.done()) again.advance();
  EXPECT_EQ(again.stats().cached, static_cast<std::int64_t>(prompt_.size()) - 1);
}

TEST_F(GenerateTest, AnAbandonedGenerationLeavesTheDecoderUsable) {
  const Text full = plain(30);
  for (int steps = 0; steps < 6; ++steps) {
    Generation generation(decoder_, prompt_, {.max_new_tokens = 30});
    for (int i = 0; i < steps && !generation.done(); ++i) generation.advance();
  }
  EXPECT_EQ(plain(30), full);
}

TEST(PromptLookup, TakesTheLongestThenTheLatestMatch) {
  PromptLookup lookup;
  const auto propose = [&](const Text& history, int budget) {
    Text out;
    lookup.propose(history, budget, out);
    return out;
  };
  EXPECT_EQ(propose({1, 2, 3, 9, 1, 2}, 4), (Text{3, 9, 1, 2}));
  EXPECT_EQ(propose({1, 2, 3, 9, 1, 2}, 2), (Text{3, 9}));
  EXPECT_EQ(propose({1, 2, 3, 1, 2, 4, 1, 2}, 1), (Text{4}));           // latest
  EXPECT_EQ(propose({7, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2}, 1), (Text{3}));  // longest
  EXPECT_EQ(propose({5, 5, 5}, 8), (Text{5}));                          // may overlap
  EXPECT_EQ(propose({1, 2, 3, 4}, 8), Text{});
  EXPECT_EQ(propose({1}, 8), Text{});
  EXPECT_EQ(propose({4, 4}, 8), Text{});
}

}  // namespace
}  // namespace kwker::testing
