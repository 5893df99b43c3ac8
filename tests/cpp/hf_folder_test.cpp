// A model folder: which files are read, and what is said when they are not as they should be.
#include "kwker/io/hf_folder.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "hf_files.hpp"
#include "kwker/base/error.hpp"

namespace kwker {
namespace {

using testing::config_json;
using testing::entry;
using testing::message_of;
using testing::safetensors;
using testing::TempFolder;
using testing::to_json;

/// A file with one tensor, [1] of F32.
std::string one_tensor(const std::string& name, float value) {
  std::string data(sizeof(value), '\0');
  std::memcpy(data.data(), &value, sizeof(value));
  return safetensors(to_json({{name, entry("F32", "[1]", "[0, 4]")}}), data);
}

class HfFolderTest : public ::testing::Test {
 protected:
  HfFolderTest() { folder_.write("config.json", config_json({{"eos_token_id", "2"}})); }

  HfFolder open() { return HfFolder(folder_.path()); }
  /// The message, with the folder written as DIR.
  std::string error() {
    return with_dir(message_of<Error>([&] { open(); }));
  }
  std::string with_dir(std::string message) {
    const std::string path = folder_.path().string();
    const std::size_t at = message.find(path);
    EXPECT_NE(at, message.npos) << message;
    return at == message.npos ? message : message.replace(at, path.size(), "DIR");
  }
  void write_index(const testing::JsonText& weight_map) {
    folder_.write("model.safetensors.index.json",
                  to_json({{"metadata", R"({"total_size": 8})"}, {"weight_map", to_json(weight_map)}}));
  }
  static float value_of(const HfFolder& folder, const std::string& name) {
    float value = 0;
    read_row(folder.tensor(name), 0, &value);
    return value;
  }

  TempFolder folder_;
};

TEST_F(HfFolderTest, OneFile) {
  folder_.write("model.safetensors", one_tensor("a", 1.5f));
  const HfFolder model = open();
  EXPECT_EQ(model.config().hidden_size, 64);
  EXPECT_EQ(model.config().eos_token_ids, std::vector<Token>{2});
  EXPECT_TRUE(model.contains("a"));
  EXPECT_FALSE(model.contains("b"));
  EXPECT_EQ(value_of(model, "a"), 1.5f);
  EXPECT_EQ(with_dir(message_of<Error>([&] { model.tensor("b"); })), "the model folder DIR has no tensor \"b\"");
}

TEST_F(HfFolderTest, Sharded) {
  folder_.write("model-00001-of-00002.safetensors", one_tensor("a", 1));
  folder_.write("model-00002-of-00002.safetensors", one_tensor("b", 2));
  write_index({{"a", "\"model-00001-of-00002.safetensors\""}, {"b", "\"model-00002-of-00002.safetensors\""}});
  {
    const HfFolder model = open();
    EXPECT_EQ(value_of(model, "a"), 1);
    EXPECT_EQ(value_of(model, "b"), 2);
  }
  folder_.write("model.safetensors", one_tensor("a", 3));  // has precedence, as in Transformers
  EXPECT_EQ(value_of(open(), "a"), 3);
}

// The Hub's cache consists of links to files elsewhere.
TEST_F(HfFolderTest, Links) {
  const TempFolder blobs;
  blobs.write("blob", one_tensor("a", 4));
  std::filesystem::create_symlink(blobs.path() / "blob", folder_.path() / "model.safetensors");
  EXPECT_EQ(value_of(open(), "a"), 4);
}

TEST_F(HfFolderTest, GenerationConfig) {
  folder_.write("model.safetensors", one_tensor("a", 1));
  folder_.write("generation_config.json", R"({"eos_token_id": [5, 6]})");
  EXPECT_EQ(open().config().eos_token_ids, (std::vector<Token>{5, 6}));
  folder_.write("generation_config.json", "{");
  EXPECT_EQ(error(), "DIR: generation_config.json is not valid JSON: error at byte 2 of 1");
}

TEST_F(HfFolderTest, NoFolder) {
  const std::string none = (folder_.path() / "none").string();
  EXPECT_EQ(message_of<Error>([&] { HfFolder{none}; }), concat("the model folder ", none, " does not exist"));
  const std::string file = folder_.write("model.safetensors", "").string();
  EXPECT_EQ(message_of<Error>([&] { HfFolder{file}; }),
            concat(file, " is a file, expected a folder with config.json and model.safetensors"));
}

TEST_F(HfFolderTest, Config) {
  folder_.write("config.json", config_json({{"model_type", "\"gpt2\""}}));
  EXPECT_EQ(message_of<std::invalid_argument>([&] { open(); }),
            "the model type \"gpt2\" is not supported (supported: llama, mistral)");
  folder_.write("config.json", "");
  EXPECT_EQ(error(), "DIR: config.json is not valid JSON: error at byte 1 of 0");
  std::filesystem::remove(folder_.path() / "config.json");
  EXPECT_EQ(error(), "the model folder DIR has no config.json");
}

TEST_F(HfFolderTest, NoWeights) {
  EXPECT_EQ(error(), "the model folder DIR has no weights: expected model.safetensors or model.safetensors.index.json");
  folder_.write("pytorch_model.bin", "");
  EXPECT_EQ(error(),
            "the model folder DIR has its weights in pytorch_model.bin, which is not read: save them as safetensors");
}

TEST_F(HfFolderTest, Index) {
  const std::string index = "DIR/model.safetensors.index.json";
  folder_.write("model.safetensors.index.json", "nonsense");
  EXPECT_EQ(error(), index + " is not valid JSON: error at byte 2 of 8");
  folder_.write("model.safetensors.index.json", "{}");
  EXPECT_EQ(error(), index + ": weight_map is missing");
  folder_.write("model.safetensors.index.json", R"({"weight_map": []})");
  EXPECT_EQ(error(), index + ": weight_map must be an object, got a list");
  write_index({{"a", "\"gone.safetensors\""}});
  EXPECT_EQ(error(), "cannot read DIR/gone.safetensors: No such file or directory");
  folder_.write("x.safetensors", one_tensor("a", 1));
  write_index({{"a", "\"x.safetensors\""}, {"b", "\"x.safetensors\""}});
  EXPECT_EQ(error(), index + ": tensor \"b\" is not in \"x.safetensors\"");
  folder_.write("y.safetensors", one_tensor("a", 2));
  write_index({{"a", "\"x.safetensors\""}});
  EXPECT_EQ(value_of(open(), "a"), 1);
  folder_.write(
      "y.safetensors",
      safetensors(to_json({{"a", entry("F32", "[1]", "[0, 4]")}, {"b", entry("F32", "[0]", "[4, 4]")}}), "1234"));
  write_index({{"a", "\"x.safetensors\""}, {"b", "\"y.safetensors\""}});
  EXPECT_EQ(error(), "the model folder DIR has tensor \"a\" in two files");
}

TEST_F(HfFolderTest, ShardNamesStayInTheFolder) {
  folder_.write("x.safetensors", one_tensor("a", 1));
  const std::string outside = (folder_.path() / "x.safetensors").string();
  const std::string same = folder_.path().filename().string();
  // As in JSON, where a backslash is written twice.
  const std::vector<std::string> names = {"",
                                          ".",
                                          "..",
                                          outside,
                                          "./x.safetensors",
                                          "../" + same + "/x.safetensors",
                                          R"(a\\x.safetensors)",
                                          R"(C:\\x.safetensors)",
                                          R"(x.safetensors\u0000y)"};
  for (const std::string& name : names) {
    write_index({{"a", '"' + name + '"'}});
    EXPECT_NE(error().find(": the shard of tensor \"a\" must be the name of a file in the same folder, got \""),
              std::string::npos)
        << name;
  }
  for (const char* shard : {"1", "null", "[\"x.safetensors\"]", "{}"}) {
    write_index({{"a", shard}});
    EXPECT_NE(error().find(": the shard of tensor \"a\" must be the name of a file"), std::string::npos) << shard;
  }
}

}  // namespace
}  // namespace kwker
