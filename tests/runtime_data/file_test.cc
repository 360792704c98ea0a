// SPDX-License-Identifier: Apache-2.0
// Token files of every format, and what is said about broken ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/data/token_file.h"
#include "tests/runtime_data/testing.h"

namespace orrery::train {
namespace {

using testing::HasSubstr;

std::string WhyRefused(const std::string& path, int64_t vocab) {
  try {
    const TokenFile file(path, vocab);
    file.Check(int64_t{1} << 30);
    return "";
  } catch (const DataError& error) {
    return error.what();
  }
}

std::vector<uint32_t> Tokens(const std::string& path, int64_t vocab) {
  const TokenFile file(path, vocab);
  std::vector<uint32_t> tokens(static_cast<std::size_t>(file.tokens()));
  file.Copy(0, tokens);
  return tokens;
}

std::string WithHeader(uint32_t magic, uint32_t version, uint32_t tokens, const std::string& rest) {
  std::vector<uint32_t> header(256);
  header[0] = magic, header[1] = version, header[2] = tokens;
  return BytesOf(header) + rest;
}

TEST(TokenFile, ReadsEveryFormatAlike) {
  const Folder folder;
  const auto shorts = Counting<uint16_t>(100, 61);
  const auto words = Counting<uint32_t>(100, 61);
  WriteBytes(folder / "a.bin", BytesOf(shorts));
  WriteBytes(folder / "a.u16", BytesOf(shorts));
  WriteBytes(folder / "a.u32", BytesOf(words));
  WriteBytes(folder / "a.txt", BytesOf(Counting<uint8_t>(100, 61)));
  WriteBytes(folder / "llmc.bin", WithHeader(20240520, 1, 100, BytesOf(shorts)));
  WriteBytes(folder / "llmc32.bin", WithHeader(20240801, 7, 100, BytesOf(words)));
  for (const char* name : {"a.bin", "a.u16", "a.u32", "a.txt", "llmc.bin", "llmc32.bin"})
    EXPECT_EQ(Tokens(folder / name, 61), words) << name;
  WriteBytes(folder / "large.bin", BytesOf(Counting<uint32_t>(100, 100)));
  EXPECT_EQ(Tokens(folder / "large.bin", 128256), (Counting<uint32_t>(100, 100)));
}

TEST(TokenFile, RefusesBrokenFilesByNameAndByte) {
  const Folder folder;
  const auto shorts = BytesOf(Counting<uint16_t>(100, 61));
  EXPECT_THAT(WhyRefused(folder / "none.bin", 61), HasSubstr("No such file"));
  EXPECT_THAT(WhyRefused(folder / "", 61), HasSubstr("is no regular file"));
  WriteBytes(folder / "empty.txt", "");
  EXPECT_THAT(WhyRefused(folder / "empty.txt", 61), HasSubstr("empty.txt: is empty, at byte 0"));
  WriteBytes(folder / "odd.bin", shorts + "x");
  EXPECT_THAT(WhyRefused(folder / "odd.bin", 61),
              HasSubstr("odd.bin: ends within a token of 2 bytes, at byte 200"));
  WriteBytes(folder / "odd.u32", shorts + "xy");
  EXPECT_THAT(WhyRefused(folder / "odd.u32", 61), HasSubstr("a token of 4 bytes, at byte 200"));
  WriteBytes(folder / "cut.bin", WithHeader(20240520, 1, 101, shorts));
  EXPECT_THAT(WhyRefused(folder / "cut.bin", 61), HasSubstr("is truncated at byte 1224"));
  WriteBytes(folder / "more.bin", WithHeader(20240520, 1, 99, shorts));
  EXPECT_THAT(WhyRefused(folder / "more.bin", 61), HasSubstr("at byte 1222"));
  WriteBytes(folder / "old.bin", WithHeader(20240520, 2, 100, shorts));
  EXPECT_THAT(WhyRefused(folder / "old.bin", 61), HasSubstr("version 2 at byte 4"));
  WriteBytes(folder / "head.bin", WithHeader(20240520, 1, 100, "").substr(0, 500));
  EXPECT_THAT(WhyRefused(folder / "head.bin", 61), HasSubstr("ends within its header"));
  WriteBytes(folder / "wide.bin", BytesOf(Counting<uint32_t>(100, 61)));
  EXPECT_THAT(WhyRefused(folder / "wide.bin", 61), HasSubstr("belong in a file named .u32"));
}

TEST(TokenFile, NamesTheFirstTokenBeyondTheVocabulary) {
  const Folder folder;
  auto shorts = Counting<uint16_t>(10000, 61);
  shorts[7000] = 61;
  WriteBytes(folder / "a.bin", BytesOf(shorts));
  EXPECT_THAT(WhyRefused(folder / "a.bin", 61),
              HasSubstr("a.bin: token 61 at byte 14000 is beyond the vocabulary of 61"));
  EXPECT_EQ(WhyRefused(folder / "a.bin", 62), "");
  WriteBytes(folder / "b.bin", WithHeader(20240520, 1, 10000, BytesOf(shorts)));
  EXPECT_THAT(WhyRefused(folder / "b.bin", 61), HasSubstr("at byte 15024"));
  WriteBytes(folder / "c.txt", "plain \xff text");
  EXPECT_THAT(WhyRefused(folder / "c.txt", 128), HasSubstr("token 255 at byte 6"));
}

TEST(TokenFile, AFileThatShrinksWhileItIsReadIsAnError) {
  const Folder folder;
  WriteBytes(folder / "a.bin", BytesOf(Counting<uint16_t>(10000, 61)));
  const TokenFile file(folder / "a.bin", 61);
  std::filesystem::resize_file(folder / "a.bin", 100);
  std::vector<uint32_t> tokens(16);
  EXPECT_THROW(file.Copy(9000, tokens), DataError);
}

}  // namespace
}  // namespace orrery::train
