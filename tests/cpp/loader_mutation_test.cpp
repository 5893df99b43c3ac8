// Files damaged in thousands of ways, the same ones in every run: the loaders either read them or throw one of their
// two exceptions, and allocate no more than in proportion to the file.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "hf_files.hpp"
#include "kwker/base/error.hpp"
#include "kwker/io/hf_config.hpp"
#include "kwker/io/hf_folder.hpp"

namespace {
/// The largest block asked for since it was last set.
std::atomic<std::size_t> largest_allocation{0};
}  // namespace

// Not inlined: GCC would see new paired with free and take it for a mistake.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (size > largest_allocation) largest_allocation = size;
  if (void* block = std::malloc(size == 0 ? 1 : size)) return block;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* block) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, std::size_t) noexcept { std::free(block); }

namespace kwker {
namespace {

using testing::config_json;
using testing::entry;
using testing::safetensors;
using testing::TempFolder;
using testing::to_json;
using Random = std::mt19937;

/// The inputs have a few hundred bytes; what a stream or the test itself takes is below this.
constexpr std::size_t kModest = 1 << 16;

std::size_t below(Random& random, std::size_t n) { return static_cast<std::size_t>(random() % n); }

/// Pieces that are valid where they do not belong.
const std::vector<std::string> kPieces = {"0",
                                          "-1",
                                          "1e999",
                                          "NaN",
                                          "18446744073709551615",
                                          "9223372036854775807",
                                          "2147483648",
                                          "null",
                                          "true",
                                          "\"\"",
                                          "[]",
                                          "{}",
                                          "[[[[[[[[",
                                          "{\"a\":",
                                          "\"F32\"",
                                          "\"I4\"",
                                          "[0, 0]",
                                          "\"../x\"",
                                          "\\u0000",
                                          "\\ud800",
                                          "\xff\xfe",
                                          "\xc0\x80",
                                          ",",
                                          ":",
                                          "\"",
                                          std::string(1, '\0'),
                                          "llama3",
                                          "[0, 9223372036854775807]",
                                          "4294967296, 4294967296"};

std::string mutate(std::string bytes, Random& random) {
  for (std::size_t changes = 1 + below(random, 3); changes > 0 && !bytes.empty(); --changes) {
    const std::size_t at = below(random, bytes.size());
    switch (below(random, 6)) {
      case 0:
        bytes.resize(at);
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(random, 8)));
        break;
      case 2:
        bytes.erase(at, 1 + below(random, 8));
        break;
      case 3:
        bytes.insert(at, bytes.substr(below(random, bytes.size()), 1 + below(random, 40)));
        break;
      case 4:
        bytes.insert(at, kPieces[below(random, kPieces.size())]);
        break;
      default: {  // a number or word becomes another piece
        const std::size_t end = bytes.find_first_of(",]}", at);
        bytes.replace(at, end == bytes.npos ? 1 : end - at, kPieces[below(random, kPieces.size())]);
      }
    }
  }
  return bytes;
}

/// Calls, and says whether it returned. Any exception that is not one of the two fails the test.
template <class Call>
bool survives(Call&& call, const std::string& input) {
  bool returned = false;
  largest_allocation = 0;
  try {
    call();
    returned = true;
  } catch (const Error&) {
  } catch (const std::invalid_argument&) {
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what() << " for " << ::testing::PrintToString(input);
  }
  EXPECT_LT(largest_allocation, kModest) << ::testing::PrintToString(input);
  return returned;
}

/// Every value of every tensor: a view that reaches outside the mapping is found by the sanitizer or the system.
void read_all(const TensorView& view) {
  if (view.shape.size() != 1 && view.shape.size() != 2) return;
  std::vector<float> row(static_cast<std::size_t>(view.shape.back()));
  const std::int64_t rows = view.shape.size() == 1 ? 1 : view.shape[0];
  // A tensor without columns may claim any number of rows.
  for (std::int64_t r = 0; r < rows && !row.empty(); ++r) read_row(view, r, row.data());
}

std::string valid_safetensors() {
  const std::string header = to_json({{"matrix", entry("F32", "[2, 3]", "[0, 24]")},
                                      {"half", entry("F16", "[2]", "[24, 28]")},
                                      {"brain", entry("BF16", "[1, 2]", "[28, 32]")},
                                      {"ids", entry("I64", "[1]", "[32, 40]")},
                                      {"__metadata__", R"({"format": "pt"})"}});
  return safetensors(header, std::string(40, 'x'));
}

class LoaderMutation : public ::testing::Test {
 protected:
  bool loads(const std::string& name, const std::string& bytes) {
    folder_.write(name, bytes);
    return survives(
        [&] {
          const HfFolder model(folder_.path());
          for (const char* tensor : {"matrix", "half", "brain", "a", "b"}) {
            if (model.contains(tensor)) read_all(model.tensor(tensor));
          }
        },
        bytes);
  }

  TempFolder folder_;
};

TEST_F(LoaderMutation, Config) {
  const std::string valid =
      config_json({{"rope_scaling", R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1,
                                        "high_freq_factor": 4, "original_max_position_embeddings": 8192})"},
                   {"eos_token_id", "[2, 3]"},
                   {"num_key_value_heads", "2"},
                   {"rms_norm_eps", "1e-05"}});
  ASSERT_EQ(unsupported_reason(valid), std::nullopt);
  for (std::size_t size = 0; size < valid.size(); ++size) {
    EXPECT_FALSE(survives([&] { parse_hf_config(valid.substr(0, size)); }, valid.substr(0, size)));
  }
  Random random(1);
  for (int i = 0; i < 8000; ++i) {
    const std::string text = mutate(valid, random);
    const bool parsed = survives([&] { parse_hf_config(text); }, text);
    EXPECT_EQ(parsed, !unsupported_reason(text).has_value()) << text;
    ModelConfig config;
    survives([&] { apply_generation_config(text, config); }, text);
  }
}

TEST_F(LoaderMutation, Safetensors) {
  folder_.write("config.json", config_json());
  const std::string valid = valid_safetensors();
  ASSERT_TRUE(loads("model.safetensors", valid));
  for (std::size_t size = 0; size < valid.size(); ++size) {
    EXPECT_FALSE(loads("model.safetensors", valid.substr(0, size))) << size;
  }
  Random random(2);
  for (int i = 0; i < 8000; ++i) loads("model.safetensors", mutate(valid, random));
}

TEST_F(LoaderMutation, EveryBitOfTheHeaderLength) {
  folder_.write("config.json", config_json());
  const std::string valid = valid_safetensors();
  for (std::size_t bit = 0; bit < 64; ++bit) {
    std::string bytes = valid;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(loads("model.safetensors", bytes)) << bit;
  }
}

TEST_F(LoaderMutation, HugeSizes) {
  folder_.write("config.json", config_json());
  const std::vector<std::string> numbers = {"0",
                                            "1",
                                            "4",
                                            "8",
                                            "2147483648",
                                            "4294967296",
                                            "4611686018427387904",
                                            "9223372036854775807",
                                            "18446744073709551615",
                                            "-1"};
  for (const char* dtype : {"F32", "F16", "BF16", "I64", "F4"}) {
    for (const std::string& a : numbers) {
      for (const std::string& b : numbers) {
        const std::string pair = concat("[", a, ", ", b, "]");
        loads("model.safetensors", safetensors(to_json({{"a", entry(dtype, pair, "[0, 8]")}}), std::string(8, 'x')));
        loads("model.safetensors", safetensors(to_json({{"a", entry(dtype, "[2]", pair)}}), std::string(8, 'x')));
      }
    }
  }
}

TEST_F(LoaderMutation, Index) {
  folder_.write("config.json", config_json());
  for (const char* name : {"a", "b"}) {
    folder_.write(concat(name, ".safetensors"), safetensors(to_json({{name, entry("F32", "[1]", "[0, 4]")}}), "1234"));
  }
  const std::string valid = R"({"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}})";
  ASSERT_TRUE(loads("model.safetensors.index.json", valid));
  for (std::size_t size = 0; size < valid.size(); ++size) {
    EXPECT_FALSE(loads("model.safetensors.index.json", valid.substr(0, size))) << size;
  }
  Random random(3);
  for (int i = 0; i < 8000; ++i) loads("model.safetensors.index.json", mutate(valid, random));
}

}  // namespace
}  // namespace kwker
