// Makes the files of small Hugging Face models, right and wrong ones, in a temporary folder.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "kwker/base/error.hpp"

namespace kwker::testing {

/// A folder that is gone at the end of the test.
class TempFolder {
 public:
  TempFolder() {
    static int count = 0;
    path_ = std::filesystem::path(::testing::TempDir()) / concat("kwker-", getpid(), "-", count++);
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    std::filesystem::remove(path_ / name);  // a mapping of the old file stays what it was
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

/// The fields of a JSON object, each value as JSON text.
using JsonText = std::map<std::string, std::string>;

inline std::string to_json(const JsonText& fields) {
  std::string text;
  for (const auto& [name, value] : fields) text += concat(text.empty() ? "" : ", ", '"', name, "\": ", value);
  return "{" + text + "}";
}

/// A config.json that is accepted, with some fields replaced or added; a field set to "" is left out.
inline std::string config_json(const JsonText& changes = {}) {
  JsonText fields = {{"model_type", "\"llama\""},  {"architectures", "[\"LlamaForCausalLM\"]"},
                     {"vocab_size", "1000"},       {"hidden_size", "64"},
                     {"intermediate_size", "128"}, {"num_hidden_layers", "2"},
                     {"num_attention_heads", "4"}, {"hidden_act", "\"silu\""}};
  for (const auto& [name, value] : changes) fields[name] = value;
  std::erase_if(fields, [](const auto& field) { return field.second.empty(); });
  return to_json(fields);
}

/// A .safetensors file: the header's length, the header, the data.
inline std::string safetensors(const std::string& header, const std::string& data) {
  const std::uint64_t size = header.size();
  std::string bytes(sizeof(size), '\0');
  std::memcpy(bytes.data(), &size, sizeof(size));
  return bytes + header + data;
}

/// The header's text for one tensor.
inline std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return to_json({{"dtype", '"' + dtype + '"'}, {"shape", shape}, {"data_offsets", offsets}});
}

/// The message of the E that `call` must throw.
template <class E, class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind of exception: " << error.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace kwker::testing
