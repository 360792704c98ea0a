// SPDX-License-Identifier: Apache-2.0
// Jobs: what may be asked, and how wrong questions are answered.
#include "calib/fit/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "model/base/diagnostics.h"

namespace orrery {
namespace {

using testing::HasSubstr;

FitJob Job(const std::string& text) {
  return ReadFitJob(std::make_shared<Source>(Source{"job.yaml", text}));
}

template <class Call>
std::string MessageOf(Call call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(FitJob, TheJobOfTheRepositoryNamesKnownConstants) {
  const FitJob job = ReadFitJob(
      ReadSource(std::string(ORRERY_SOURCE_DIR) + "/calib/fit/jobs/published-runs.yaml"));
  EXPECT_GT(job.requests.size(), 50U);
  for (const ParameterRequest& request : job.requests) {
    EXPECT_TRUE(request.prior.has_value() || request.around.has_value())
        << request.names.front().Text();
    EXPECT_TRUE(request.spread.has_value()) << request.names.front().Text();
  }
}

TEST(FitJob, TheJobOfMemorySaysWhoPrintedIt) {
  const FitJob job = ReadFitJob(
      ReadSource(std::string(ORRERY_SOURCE_DIR) + "/calib/fit/jobs/published-memory.yaml"));
  EXPECT_EQ(job.memory_by.at("bloom"), MemoryKind::kDevice);
  EXPECT_EQ(job.memory_by.at("mcoreci"), MemoryKind::kAllocator);
  EXPECT_FALSE(NeedsOf(job.requests).time);
  EXPECT_THAT(
      MessageOf([] {
        Job("memory_by: {a: nvidia}\nparameters:\n  - {of: \"framework/fsdp:step_fixed\"}\n");
      }),
      testing::AllOf(HasSubstr("job.yaml:1"), HasSubstr("nvidia-smi")));
}

TEST(FitJob, MistakesAreNamedWithTheirPlace) {
  EXPECT_THAT(MessageOf([] { Job("parameters:\n  - {of: \"framework/fsdp:step_fixd\"}\n"); }),
              testing::AllOf(HasSubstr("job.yaml:2"), HasSubstr("step_fixed")));
  EXPECT_THAT(
      MessageOf([] { Job("parameters:\n  - {of: \"framework/fsdp:step_fixed\", prior: 20}\n"); }),
      HasSubstr("job.yaml:2"));
  EXPECT_THAT(MessageOf([] { Job("parameters:\n  - {of: \"disk/a:b\"}\n"); }), HasSubstr("disk"));
  EXPECT_THAT(MessageOf([] { Job("parameters: []\n"); }), HasSubstr("no constant"));
}

TEST(FitJob, APriorMayBeTheFamilysConstant) {
  const std::string family =
      "  - {of: \"framework/megatron@2021:kernel_gap\", prior: 4us, spread: 0.4}\n";
  const std::string site =
      "  - {of: \"framework/megatron-deepspeed@vtrain-a100:kernel_gap\", prior: "
      "\"framework/megatron@2021:kernel_gap\"}\n";
  const FitJob job = Job("parameters:\n" + family + site);
  ProfileStore store;
  (void)store.SelectFramework("megatron-deepspeed", "vtrain-a100", false);
  const std::vector<FitParameter> parameters = MakeParameters(job.requests, &store);
  EXPECT_EQ(parameters[1].variable.around, 0);
  EXPECT_DOUBLE_EQ(parameters[1].prior, 4e-6);
  EXPECT_TRUE(parameters[0].heirs.empty());  // no row but the site's: it serves as a centre
  EXPECT_THAT(MessageOf([&] {
                ProfileStore other;
                (void)other.SelectFramework("megatron-deepspeed", "vtrain-a100", false);
                MakeParameters(Job("parameters:\n" + site).requests, &other);
              }),
              HasSubstr("no request above frees"));
}

// Rows of one file that ran with other facts are predicted with them, and share what is fitted in the file.
TEST(FitJob, FactsOfARowReachItsPredictionAndConstantsItsFile) {
  ProfileStore store;
  const int compiled = store.SelectFramework("kempnerforge", "kempner-h200", true);
  const int eager = store.SelectFramework("kempnerforge+compile=off", "kempner-h200", true);
  ASSERT_NE(compiled, eager);
  EXPECT_EQ(store.SelectFramework("kempnerforge+compile=off", "kempner-h200", true), eager);
  EXPECT_TRUE(store.framework(compiled).preset->compile);
  EXPECT_FALSE(store.framework(eager).preset->compile);
  const ConstantName gap =
      store.Resolve(ProfileLayer::kFramework, store.Framework("kempnerforge"), "kernel_gap");
  store.SetValue(gap, 7e-6);
  EXPECT_DOUBLE_EQ(store.Get(ProfileLayer::kFramework, eager, "kernel_gap"), 7e-6);
  // A site that has no file of its own yet.
  store.AddSite("megatron@here", "megatron");
  const int plain = store.SelectFramework("megatron", "here", true);
  const int overlapped = store.SelectFramework("megatron+tp_overlap=on", "here", true);
  ASSERT_NE(plain, overlapped);
  EXPECT_EQ(store.framework(overlapped).header.id, "megatron@here");
  EXPECT_TRUE(store.framework(overlapped).preset->tp_overlap);
  EXPECT_FALSE(store.framework(plain).preset->tp_overlap);
}

TEST(FitJob, FlagsNameProfilesAndConstants) {
  ProfileStore store;
  FitFlags flags;
  EXPECT_THAT(MessageOf([&] { JobOf(flags, &store); }), HasSubstr("--framework"));
  flags.frameworks = {"megatron@my-cluster"};
  flags.free = {"framework:kernel_gap"};
  const FitJob job = JobOf(flags, &store);
  ASSERT_EQ(job.requests.size(), 1U);
  EXPECT_EQ(job.requests[0].names[0].Text(), "framework/megatron@my-cluster:kernel_gap");
  EXPECT_EQ(job.sites, std::vector<std::string>{"megatron@my-cluster"});
  flags.free = {"framework:kernel_gapp"};
  EXPECT_THAT(MessageOf([&] { JobOf(flags, &store); }), HasSubstr("kernel_gap"));
  flags.free = {"gpu:gemm_efficiency_fp16"};
  EXPECT_THAT(MessageOf([&] { JobOf(flags, &store); }), HasSubstr("--gpu"));
}

TEST(FitJob, DefaultsLeaveOutFiguresOfTheVendor) {
  ProfileStore store;
  FitFlags flags;
  flags.gpus = {"a100-sxm4-80gb"};
  for (const ParameterRequest& request : JobOf(flags, &store).requests) {
    EXPECT_FALSE(request.names[0].key.starts_with("peak_"));
    EXPECT_NE(request.names[0].key, "memory_bandwidth");
    EXPECT_EQ(request.names[0].file, "a100-sxm4-80gb");
  }
}

}  // namespace
}  // namespace orrery
