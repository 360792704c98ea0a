// SPDX-License-Identifier: Apache-2.0
// Files that somebody cuts off while they are read: a message with their name, no signal.
#include "runtime/data/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "runtime/data/token_file.h"
#include "tests/runtime_data/testing.h"

namespace orrery::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kBytes = 1 << 20;

template <class Act>
std::string Why(Act act) {
  try {
    act();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(MappedFile, WhatIsCutOffReadsAsZerosAndIsToldBehindTheRead) {
  const Folder folder;
  const std::string path = folder / "cut";
  WriteBytes(path, std::string(kBytes, 'x'));
  const MappedFile file(path), other(path);
  EXPECT_EQ(Why([&] { file.CheckWhole(); }), "");
  ASSERT_EQ(truncate(path.c_str(), 10'000), 0);
  int64_t there = 0;
  for (int64_t i = 0; i < file.size(); ++i) there += file.bytes()[i] == std::byte{'x'};
  EXPECT_EQ(there, 10'000);
  EXPECT_TRUE(file.torn());
  EXPECT_FALSE(other.torn());  // it was not read
  for (const MappedFile* one : {&file, &other})
    EXPECT_THAT(Why([&] { one->CheckWhole(); }), HasSubstr("has become shorter while it was read"));
  // Longer again: what was read then is not what stands there now.
  ASSERT_EQ(truncate(path.c_str(), kBytes), 0);
  EXPECT_NE(Why([&] { file.CheckWhole(); }), "");
  EXPECT_EQ(Why([&] { MappedFile(path).CheckWhole(); }), "");
}

TEST(MappedFile, OtherFaultsKeepTheirSignal) {
  const Folder folder;
  WriteBytes(folder / "one", "x");
  const MappedFile file(folder / "one");
  EXPECT_EXIT(raise(SIGBUS), testing::KilledBySignal(SIGBUS), "");
}

TEST(TokenFile, ThatIsCutOffIsNamed) {
  const Folder folder;
  const std::string path = folder / "tokens.u16";
  std::string bytes(kBytes, '\0');
  for (std::size_t i = 0; i < bytes.size(); i += 2) bytes[i] = 7;
  WriteBytes(path, bytes);
  const TokenFile tokens(path, 50);
  std::vector<uint32_t> out(kBytes / 2);
  tokens.Copy(0, out);
  // Within a page, where no signal says so, and beyond.
  for (const int64_t left : {kBytes - 10, int64_t{5000}}) {
    ASSERT_EQ(truncate(path.c_str(), left), 0);
    EXPECT_THAT(Why([&] { tokens.Copy(0, out); }),
                AllOf(HasSubstr(path), HasSubstr("has become shorter while it was read")));
  }
}

}  // namespace
}  // namespace orrery::train
