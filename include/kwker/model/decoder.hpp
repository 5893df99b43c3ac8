// The decoder: a packed model, its KV cache, and the one primitive everything else is built on, the ragged step.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "kwker/model/config.hpp"
#include "kwker/model/kv_cache.hpp"
#include "kwker/model/model.hpp"
#include "kwker/model/rope.hpp"

namespace kwker {

struct GenerateOptions;  // generate/generate.hpp

struct DecoderOptions {
  int max_cache_len = 2048;  ///< Positions a sequence may hold, prompt and new tokens together.
  int max_batch = 1;         ///< Sequences that can be in the cache at once.
  int num_threads = 0;       ///< 0: kwker::num_threads() at each step.
  bool prefix_cache = true;  ///< A prompt that starts like what a slot holds reuses those positions.
};

/// One token of a step. Within a step the rows of a sequence stand together, at consecutive positions, of which the
/// first is at most the sequence's length; positions from there on are overwritten (that is how a roll-back is done).
struct Row {
  int sequence = 0;
  Token token = 0;
  int position = 0;
  bool wants_logits = true;
};

/// Logits of those rows of a step that want them, in order: [rows, vocab], fp32, valid until the next step.
struct LogitsView {
  const float* data = nullptr;
  int rows = 0;
  std::int64_t vocab_size = 0;
  std::int64_t stride = 0;

  std::span<const float> row(int i) const { return {data + i * stride, static_cast<std::size_t>(vocab_size)}; }
};

/// What generation needs of a decoder, whatever its precision. Calls on one decoder must not overlap: users who
/// share one, as generations share a draft, hold its `step_mutex` from a step until its logits are read.
class DecoderBase {
 public:
  virtual ~DecoderBase() = default;
  DecoderBase(const DecoderBase&) = delete;
  DecoderBase& operator=(const DecoderBase&) = delete;

  /// Runs the rows through the model and appends them to the cache. Throws std::invalid_argument, and changes
  /// nothing, if a sequence, token or position is out of range.
  virtual LogitsView step(std::span<const Row> rows) = 0;
  virtual const char* precision() const = 0;
  /// Bytes of the packed weights and the cache.
  virtual std::int64_t memory_bytes() const = 0;
  /// Bytes of weights that a step reads.
  virtual std::int64_t weight_bytes() const = 0;

  const ModelConfig& config() const { return config_; }
  int max_cache_len() const { return options_.max_cache_len; }
  int max_batch() const { return options_.max_batch; }
  const DecoderOptions& options() const { return options_; }

  /// Tokens of a sequence whose keys and values are in the cache. Beyond the max_batch sequences for requests there
  /// is one more, `draft_sequence()`, for proposing: so a decoder may be the draft of any decoder, itself included.
  int length(int sequence) const { return static_cast<int>(history_[static_cast<std::size_t>(sequence)].size()); }
  std::span<const Token> history(int sequence) const { return history_[static_cast<std::size_t>(sequence)]; }
  int draft_sequence() const { return options_.max_batch; }
  /// Drops positions from `length` on.
  void truncate(int sequence, int length);

  /// The prompt and the text that follows it; see generate/generate.hpp, which defines it.
  std::vector<Token> generate(std::span<const Token> prompt, const GenerateOptions& options);

  /// Guards step and the draft sequence when several generations share this decoder.
  std::mutex& step_mutex() { return step_mutex_; }

 protected:
  DecoderBase(const ModelConfig& config, const DecoderOptions& options);
  void check_rows(std::span<const Row> rows) const;
  void record(std::span<const Row> rows);

 private:
  ModelConfig config_;
  DecoderOptions options_;
  std::vector<std::vector<Token>> history_;
  std::mutex step_mutex_;
};

/// A decoder of one precision.
template <class Precision>
class Decoder final : public DecoderBase {
 public:
  /// Throws std::invalid_argument for options out of range.
  explicit Decoder(std::shared_ptr<const Model<Precision>> model, const DecoderOptions& options = {});
  ~Decoder() override;

  LogitsView step(std::span<const Row> rows) override;
  const char* precision() const override { return Precision::kName; }
  std::int64_t memory_bytes() const override;
  std::int64_t weight_bytes() const override;
  const Model<Precision>& model() const { return *model_; }

 private:
  struct Step;

  std::shared_ptr<const Model<Precision>> model_;
  RopeTable rope_;
  KvCache cache_;
  std::unique_ptr<Step> step_;
};

extern template class Decoder<Int4>;
extern template class Decoder<BFloat16>;

}  // namespace kwker
