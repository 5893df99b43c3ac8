// One .safetensors file: views of what is right, one clear error for each thing that is wrong.
#include "kwker/io/safetensors.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "hf_files.hpp"
#include "kwker/base/error.hpp"

namespace kwker {
namespace {

using testing::entry;
using testing::message_of;
using testing::safetensors;
using testing::TempFolder;
using testing::to_json;

class Safetensors : public ::testing::Test {
 protected:
  SafetensorsFile open(const std::string& bytes) { return SafetensorsFile(folder_.write("x.safetensors", bytes)); }

  /// The message, without the path that it must hold.
  std::string error_of(const std::string& bytes) {
    std::string message = message_of<Error>([&] { open(bytes); });
    const std::string path = (folder_.path() / "x.safetensors").string();
    const std::size_t at = message.find(path);
    EXPECT_NE(at, message.npos) << message;
    EXPECT_EQ(message.find('\n'), message.npos) << message;
    return at == message.npos ? message : message.replace(at, path.size(), "FILE");
  }

  TempFolder folder_;
};

TEST_F(Safetensors, Views) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  std::string data(24, '\0');
  std::memcpy(data.data(), values.data(), 24);
  data += std::string("\x00\x3c\x00\xc0\x80\x3f\x00\xc0", 8);  // the halves 1 and -2, the bfloat16 1 and -2
  const std::string header = to_json({{"matrix", entry("F32", "[2, 3]", "[0, 24]")},
                                      {"half", entry("F16", "[2]", "[24, 28]")},
                                      {"brain", entry("BF16", "[1, 2]", "[28, 32]")},
                                      {"none", entry("F32", "[0, 5]", "[24, 24]")},
                                      {"__metadata__", R"({"format": "pt"})"}});
  const SafetensorsFile file = open(safetensors(header + "   ", data));
  EXPECT_EQ(file.names(), (std::vector<std::string>{"brain", "half", "matrix", "none"}));
  EXPECT_TRUE(file.contains("matrix"));
  EXPECT_FALSE(file.contains("__metadata__"));

  const TensorView matrix = file.tensor("matrix");
  EXPECT_EQ(matrix.dtype, DType::kFloat32);
  EXPECT_EQ(matrix.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(matrix.strides, (std::vector<std::int64_t>{3, 1}));
  std::vector<float> row(3);
  read_row(matrix, 1, row.data());
  EXPECT_EQ(row, (std::vector<float>{4, 5, 6}));

  row.resize(2);
  read_row(file.tensor("half"), 0, row.data());
  EXPECT_EQ(row, (std::vector<float>{1, -2}));
  read_row(file.tensor("brain"), 0, row.data());
  EXPECT_EQ(row, (std::vector<float>{1, -2}));
  EXPECT_EQ(file.tensor("none").shape, (std::vector<std::int64_t>{0, 5}));
}

TEST_F(Safetensors, NoTensors) { EXPECT_TRUE(open(safetensors("{}", "")).names().empty()); }

TEST_F(Safetensors, UnusableTensors) {
  const SafetensorsFile file =
      open(safetensors(to_json({{"ids", entry("I64", "[2]", "[0, 16]")}}), std::string(16, 'x')));
  EXPECT_TRUE(file.contains("ids"));
  const std::string path = (folder_.path() / "x.safetensors").string();
  EXPECT_EQ(message_of<Error>([&] { file.tensor("ids"); }),
            path + ": tensor \"ids\" has type \"I64\", expected F32, F16 or BF16");
  EXPECT_EQ(message_of<Error>([&] { file.tensor("other"); }), path + " has no tensor \"other\"");
}

TEST_F(Safetensors, MissingOrNoFile) {
  const std::filesystem::path& folder = folder_.path();
  EXPECT_EQ(message_of<Error>([&] { SafetensorsFile(folder / "none"); }),
            concat("cannot read ", (folder / "none").string(), ": No such file or directory"));
  EXPECT_EQ(message_of<Error>([&] { SafetensorsFile{folder}; }),
            concat("cannot read ", folder.string(), ": not a regular file"));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(message_of<Error>([&] { SafetensorsFile(folder / "pipe"); }),
            concat("cannot read ", (folder / "pipe").string(), ": not a regular file"));
}

TEST_F(Safetensors, HeaderLength) {
  EXPECT_EQ(error_of(""), "FILE is truncated: expected a header length of 8 bytes, got 0 bytes");
  EXPECT_EQ(error_of("1234567"), "FILE is truncated: expected a header length of 8 bytes, got 7 bytes");
  EXPECT_EQ(error_of(std::string("\x03\0\0\0\0\0\0\0{}", 10)),
            "FILE is truncated: expected a header of 3 bytes, got 2");
  EXPECT_EQ(error_of(std::string(10, '\xff')),
            "FILE is not a safetensors file: expected a header of at most 100000000 bytes, got 18446744073709551615");
}

TEST_F(Safetensors, HeaderText) {
  EXPECT_EQ(error_of(safetensors("", "")), "the header of FILE is not valid JSON: error at byte 1 of 0");
  EXPECT_EQ(error_of(safetensors("[]", "")), "the header of FILE must be a JSON object, got a list");
  EXPECT_EQ(error_of(safetensors("{\"\xff\": 1}", "")), "the header of FILE is not valid JSON: error at byte 3 of 8");
  EXPECT_EQ(error_of(safetensors("{\"a\": " + std::string(100000, '['), "")),
            "the header of FILE nests deeper than 32 levels");
}

TEST_F(Safetensors, Entries) {
  const auto error = [&](const std::string& description) {
    return error_of(safetensors(to_json({{"a", description}}), std::string(8, 'x')));
  };
  EXPECT_EQ(error("3"), "FILE: tensor \"a\" must be a JSON object, got 3");
  EXPECT_EQ(error(R"({"shape": [2], "data_offsets": [0, 8]})"), "FILE: tensor \"a\": dtype is missing");
  EXPECT_EQ(error(R"({"dtype": 1, "shape": [2], "data_offsets": [0, 8]})"),
            "FILE: tensor \"a\": dtype must be a string, got 1");
  EXPECT_EQ(error(R"({"dtype": "F32", "data_offsets": [0, 8]})"), "FILE: tensor \"a\": shape is missing");
  EXPECT_EQ(error(R"({"dtype": "F32", "shape": [2]})"), "FILE: tensor \"a\": data_offsets is missing");
  EXPECT_EQ(error(entry("F32", "2", "[0, 8]")),
            "FILE: tensor \"a\": shape must be a list of integers that are not negative, got 2");
  for (const char* size : {"-2", "2.0", "\"2\"", "null", "[]", "18446744073709551615"}) {
    EXPECT_EQ(error(entry("F32", concat("[", size, "]"), "[0, 8]")),
              concat("FILE: tensor \"a\": shape must be a list of integers that are not negative, got ",
                     std::string(size) == "[]" ? "a list" : size));
  }
  for (const char* offsets : {"[]", "[0]", "[0, 4, 8]", "[8, 0]"}) {
    EXPECT_EQ(error(entry("F32", "[2]", offsets)),
              concat("FILE: tensor \"a\": data_offsets must be a begin and an end, got ", offsets));
  }
  EXPECT_EQ(error(entry("F32", "[3]", "[0, 12]")),
            "FILE is truncated: tensor \"a\" ends at byte 12 of the data, of which the file has 8");
  EXPECT_EQ(error(entry("F32", "[9223372036854775807]", "[0, 9223372036854775807]")),
            "FILE is truncated: tensor \"a\" ends at byte 9223372036854775807 of the data, of which the file has 8");
}

TEST_F(Safetensors, SizeAgainstShape) {
  const auto error = [&](const std::string& dtype, const std::string& shape) {
    return error_of(safetensors(to_json({{"a", entry(dtype, shape, "[0, 8]")}}), std::string(8, 'x')));
  };
  for (const char* shape : {"[3]", "[]", "[2, 0]", "[4294967296, 4294967296]", "[4611686018427387904, 2]"}) {
    EXPECT_EQ(error("F32", shape),
              concat("FILE: tensor \"a\" of shape ", shape, " and type F32 does not fit its 8 bytes"));
  }
  EXPECT_EQ(error("BF16", "[2]"), "FILE: tensor \"a\" of shape [2] and type BF16 does not fit its 8 bytes");
}

TEST_F(Safetensors, Coverage) {
  const auto error = [&](const std::string& a, const std::string& b, std::size_t size) {
    return error_of(
        safetensors(to_json({{"a", entry("F32", "[2]", a)}, {"b", entry("F32", "[2]", b)}}), std::string(size, 'x')));
  };
  EXPECT_EQ(error("[0, 8]", "[0, 8]", 8), "FILE is damaged: tensor \"b\" overlaps another");
  EXPECT_EQ(error("[4, 12]", "[0, 8]", 12), "FILE is damaged: tensor \"a\" overlaps another");
  EXPECT_EQ(error("[0, 8]", "[12, 20]", 20), "FILE is damaged: no tensor has the bytes before \"b\"");
  EXPECT_EQ(error("[0, 8]", "[8, 16]", 17), "FILE is damaged: expected 16 bytes of data, got 17");
}

}  // namespace
}  // namespace kwker
