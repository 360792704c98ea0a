// SPDX-License-Identifier: Apache-2.0
// Files of tensors: what is read, and what is refused in which words.
#include "runtime/train/weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "runtime/train/weights/checkpoint.h"
#include "tests/runtime_weights/testing.h"

namespace orrery::weights {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using train::Folder;

std::string Why(const std::string& path) {
  try {
    const Checkpoint checkpoint(path);
    return "";
  } catch (const WeightsError& error) {
    return error.what();
  }
}

std::string WhyOf(const std::string& bytes) {
  const Folder folder;
  train::WriteBytes(folder / "x.safetensors", bytes);
  return Why(folder / "x.safetensors");
}

TEST(Safetensors, AreReadByName) {
  const Folder folder;
  train::WriteBytes(folder / "model.safetensors", FileOf(kHeader, 32));
  const Checkpoint checkpoint(folder / ".");
  ASSERT_EQ(checkpoint.tensors().size(), 2u);
  const Tensor& b = *checkpoint.tensors().at("b.w").tensor;
  EXPECT_EQ(b.dtype, "BF16");
  EXPECT_EQ(b.shape, (std::vector<int64_t>{4}));
  EXPECT_EQ(b.elements(), 4);
}

TEST(Safetensors, AFileThatShrinksWhileItIsReadIsAnError) {
  const Folder folder;
  const std::string path = folder / "x.safetensors";
  train::WriteBytes(path, FileOf(kHeader, 32));
  const SafetensorsFile file(path);
  EXPECT_NO_THROW(file.CheckWhole());
  fs::resize_file(path, 40);
  EXPECT_THROW(file.CheckWhole(), WeightsError);
}

TEST(Safetensors, HeadersAreWrittenAsTheyAreRead) {
  const Tensors tensors = ParseHeader(kHeader, 32);
  const std::string text = HeaderText(tensors);
  EXPECT_EQ(text.size() % 8, 0u);
  EXPECT_THAT(text, HasSubstr(R"("__metadata__":{"format":"pt"})"));
  EXPECT_EQ(ParseHeader(text, 32).at("a").shape, tensors.at("a").shape);
}

TEST(Safetensors, WhatDoesNotHoldIsRefusedByTensor) {
  const auto one = [](const std::string& tensor, int64_t bytes = 24) {
    return WhyOf(FileOf("{\"t\":" + tensor + "}", bytes));
  };
  const std::pair<std::string, const char*> cases[] = {
      {WhyOf("short"), "too short"},
      {WhyOf(std::string(8, '\xff') + "rest"), "does not fit into the file"},
      {WhyOf(FileOf("nothing", 0)), "does not begin with {"},
      {WhyOf(FileOf("{\"a\":", 0)), "its header is no JSON"},
      {WhyOf(FileOf("{\"t\":" + std::string(100000, '['), 0)), "nested too deep"},
      {WhyOf(FileOf(kHeader, 31)), "tensor b.w: its data end at byte 32, and the file has 31"},
      {WhyOf(FileOf(kHeader, 33)), "1 bytes at the end belong to no tensor"},
      {WhyOf(std::string("PK\3\4", 4) + std::string(100, 'x')), "PyTorch's own format"},
      {one("3"), "tensor t: it has no dtype"},
      {one(R"({"dtype":"F99","shape":[6],"data_offsets":[0,24]})"), "its dtype \"F99\" is unknown"},
      {one(R"({"dtype":"F32","shape":[-6],"data_offsets":[0,24]})"), "no count"},
      {one(R"({"dtype":"F32","shape":[6.5],"data_offsets":[0,24]})"), "no count"},
      {one(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,24]})"), "no count"},
      {one(R"({"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,24]})"),
       "larger than any file"},
      {one(R"({"dtype":"F32","shape":[5],"data_offsets":[0,24]})"),
       "its data are 24 bytes, and [5] of F32 are 20"},
      {one(R"({"dtype":"F32","shape":[6],"data_offsets":[24,0]})"), "end before they begin"},
      {one(R"({"dtype":"F32","shape":[6],"data_offsets":[0]})"), "no pair"},
      {one(R"({"dtype":"F32","shape":[6],"data_offsets":[4,28]})", 28), "4 bytes in front"},
      {WhyOf(FileOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                    R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                    6)),
       "tensor b: its data overlap"},
      {WhyOf(FileOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                    R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                    4)),
       "tensor a: it stands twice"},
  };
  for (const auto& [why, part] : cases) EXPECT_THAT(why, HasSubstr(part));
}

TEST(Safetensors, AreRegularFilesAndLinksToThem) {
  const Folder folder;
  train::WriteBytes(folder / "blob", FileOf(kHeader, 32));
  fs::create_symlink("blob", folder / "model.safetensors");  // as in the cache of HuggingFace's hub
  EXPECT_EQ(Why(folder / "."), "");
  fs::create_symlink("loop.safetensors", folder / "loop.safetensors");
  EXPECT_THAT(Why(folder / "loop.safetensors"), HasSubstr("there is no '"));
  ASSERT_EQ(mkfifo((folder / "pipe.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(Why(folder / "pipe.safetensors"), HasSubstr("is no regular file"));
}

TEST(Safetensors, ThatAreCutOffWhileTheyAreReadAreNamed) {
  const Folder folder;
  const std::string path = folder / "1.safetensors";
  constexpr int64_t kElements = 1 << 18;
  const std::string header = R"({"a":{"dtype":"F32","shape":[262144],"data_offsets":[0,1048576]}})";
  train::WriteBytes(path, FileOf(header, 4 * kElements));
  const SafetensorsFile file(path);
  const Tensor& tensor = file.tensors().at("a");
  ASSERT_EQ(truncate(path.c_str(), 4096), 0);
  double sum = 0;
  for (int64_t i = 0; i < kElements; ++i) {
    float value = 0;
    std::memcpy(&value, file.Data(tensor) + 4 * i, sizeof value);
    sum += double{value};
  }
  EXPECT_TRUE(file.torn()) << sum;
  try {
    file.CheckWhole();
    FAIL();
  } catch (const WeightsError& error) {
    EXPECT_EQ(error.what(), path + ": has become shorter while it was read, at byte 4096");
  }
}

TEST(Safetensors, FoldersWithoutThemSayWhatIsThere) {
  const Folder folder;
  EXPECT_THAT(Why(folder / "none"), HasSubstr("there is no '"));
  EXPECT_THAT(Why(folder / "."), HasSubstr("neither model.safetensors nor"));
  train::WriteBytes(folder / "pytorch_model.bin", "PK");
  EXPECT_THAT(Why(folder / "."), HasSubstr("PyTorch's own format"));
}

TEST(SafetensorsIndex, FilesAndTensorsMatch) {
  const Folder folder;
  const std::string second = R"({"c":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})";
  train::WriteBytes(folder / "1.safetensors", FileOf(kHeader, 32));
  train::WriteBytes(folder / "2.safetensors", FileOf(second, 4));
  const auto index = [&](const std::string& map) {
    train::WriteBytes(folder / kIndexName, "{\"weight_map\": " + map + "}");
    return Why(folder / ".");
  };
  EXPECT_EQ(index(R"({"a":"1.safetensors","b.w":"1.safetensors","c":"2.safetensors"})"), "");
  const std::pair<const char*, const char*> cases[] = {
      {R"({"a":"1.safetensors","c":"2.safetensors"})", "tensor b.w of"},
      {R"({"a":"2.safetensors","b.w":"1.safetensors","c":"2.safetensors"})",
       "tensor a is said to be in 2.safetensors, and is not"},
      {R"({"a":"3.safetensors"})", "names 3.safetensors, and there is none"},
      {R"({"a":"../1.safetensors"})", "which is no file name next to it"},
      {R"({"a":"/etc/passwd"})", "which is no file name next to it"},
      {R"({"a":7})", "is no index"},
      {"[]", "is no index"},
  };
  for (const auto& [map, part] : cases) {
    EXPECT_THAT(index(map), HasSubstr(part));
  }
  train::WriteBytes(folder / "2.safetensors", FileOf(kHeader, 32));
  EXPECT_THAT(index(R"({"a":"1.safetensors","b.w":"2.safetensors"})"), HasSubstr("is in "));
}

}  // namespace
}  // namespace orrery::weights
