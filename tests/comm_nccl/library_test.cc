// SPDX-License-Identifier: Apache-2.0
// Loading NCCL: refusals; names and numbers are those of the installed header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#ifdef ORRERY_NCCL_HEADER
#include <nccl.h>
#endif

#include <cstddef>
#include <cstdlib>

#include "model/base/diagnostics.h"
#include "runtime/comm/nccl.h"
#include "tests/comm_nccl/fake.h"

namespace orrery::comm {
namespace {

using testing::HasSubstr;

std::string LoadError(const std::string& path) {
  try {
    nccl::Load(path);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(NcclLibrary, AbsentForeignAndOldLibrariesAreNamed) {
  Fake().reset();
  EXPECT_THAT(LoadError("/nonexistent/libnccl.so.2"), HasSubstr("NCCL cannot be loaded"));
  EXPECT_THAT(LoadError("/nonexistent/libnccl.so.2"), HasSubstr("ORRERY_NCCL_LIBRARY"));
  EXPECT_THAT(LoadError("libc.so.6"), HasSubstr("no ncclGetVersion"));
  Fake().set_version(21705);
  EXPECT_THAT(LoadError(ORRERY_FAKE_NCCL), HasSubstr("NCCL 2.17.5, too old"));
}

TEST(NcclLibrary, ShowsWhatTheEnvironmentTellsNccl) {
  Fake().reset();
  setenv("NCCL_SOCKET_IFNAME", "eth7", 1);
  const std::string text = nccl::Describe(*nccl::Load(ORRERY_FAKE_NCCL));
  unsetenv("NCCL_SOCKET_IFNAME");
  EXPECT_THAT(text, HasSubstr("NCCL 2.28.9"));
  EXPECT_THAT(text, HasSubstr("NCCL_SOCKET_IFNAME=eth7"));
}

TEST(NcclHeader, NamesAndNumbersAreThoseOfTheHeader) {
#ifdef ORRERY_NCCL_HEADER
  EXPECT_EQ(nccl::kInProgress, ncclInProgress);
  EXPECT_EQ(nccl::kRemoteError, ncclRemoteError);
  EXPECT_EQ(nccl::kMaximum, ncclMax);
  EXPECT_EQ(sizeof(nccl::UniqueId), sizeof(ncclUniqueId));
  EXPECT_EQ(offsetof(nccl::Config, blocking), offsetof(ncclConfig_t, blocking));
  EXPECT_EQ(offsetof(nccl::Config, version), offsetof(ncclConfig_t, version));
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(nccl::Config{}.magic, theirs.magic);
  EXPECT_EQ(nccl::TypeOf(ir::Dtype::kBf16), ncclBfloat16);
  EXPECT_EQ(nccl::TypeOf(ir::Dtype::kF16), ncclFloat16);
  EXPECT_EQ(nccl::TypeOf(ir::Dtype::kF32), ncclFloat32);
  EXPECT_EQ(nccl::TypeOf(ir::Dtype::kF64), ncclFloat64);
  EXPECT_EQ(nccl::TypeOf(ir::Dtype::kI32), ncclInt32);
  EXPECT_EQ(nccl::TypeOf(ir::Dtype::kU8), ncclUint8);
#else
  GTEST_SKIP() << "nccl.h is not installed";
#endif
}

// The real library is there where CUDA is; it makes ids without a GPU only in some versions.
TEST(NcclLibrary, InstalledOneHasEveryFunction) {
  try {
    const nccl::ApiPtr api = nccl::Load(ORRERY_NCCL_LIBRARY_PATH);
    EXPECT_GE(api->version, nccl::kOldestVersion);
    EXPECT_STRNE(api->GetErrorString(nccl::kRemoteError), "");
  } catch (const InputError& error) {
    GTEST_SKIP() << error.what();
  }
}

}  // namespace
}  // namespace orrery::comm
