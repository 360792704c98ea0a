// SPDX-License-Identifier: Apache-2.0
// Profile files: every one in the tree loads; every slip is reported with its place.
#include "model/framework/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "model/framework/profile.h"
#include "model/hardware/profile_tables.h"

namespace orrery {
namespace {

using testing::HasSubstr;

std::map<std::string, std::string>& Texts() {
  static std::map<std::string, std::string> texts;
  return texts;
}

SourcePtr FromTexts(const std::string&, const std::string& id) {
  if (!Texts().contains(id)) throw InputError("no profile named '" + id + "'");
  return std::make_shared<Source>(Source{id + ".yaml", Texts()[id]});
}

std::string FabricText(const std::string& extra = "") {
  std::string text = "title: \"a fabric\"\nconstants:\n";
  for (const auto& row : FabricConstants()) {
    const std::string key = row.key;
    const std::string value = key == "hop" || key.ends_with("launch") || key.ends_with("channel")
                                  ? "5us"
                              : key == "socket_stream" || key == "driver_rate" ? "1GB/s"
                              : key == "socket_channels"                       ? "2"
                                                                               : "0.5";
    text += "  " + key + ": {value: " + value + ", source: \"a test\"}\n";
  }
  return text + extra;
}

std::string ErrorOf(const std::function<void()>& read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Profiles, EveryFileInTheTreeLoads) {
  for (const std::string& id : ProfileIds("gpu")) {
    const GpuProfile gpu = LoadGpuProfile(id);
    EXPECT_GT(gpu.peak_fp32.value, 0) << id;
    EXPECT_FALSE(gpu.header.title.empty()) << id;
  }
  for (const std::string& id : ProfileIds("fabric"))
    EXPECT_GT(LoadFabricProfile(id).hop.value, 0) << id;
  for (const std::string& id : ProfileIds("framework")) {
    const FrameworkProfile framework = LoadFrameworkProfile(id);
    EXPECT_LE(framework.residual_low, 1) << id;
    EXPECT_GE(framework.residual_high, 1) << id;
    if (framework.without_flash.empty()) continue;
    EXPECT_NO_THROW(LoadFrameworkProfile(framework.without_flash)) << id;
  }
  EXPECT_THAT(ProfileIds("framework"),
              testing::IsSupersetOf({"megatron", "deepspeed", "fsdp", "ddp", "orrery"}));
}

TEST(Profiles, EveryConstantNamesItsSource) {
  for (const std::string& id : ProfileIds("gpu")) {
    for (const auto& [key, provenance] : LoadGpuProfile(id).header.constants) {
      EXPECT_FALSE(provenance.source.empty()) << id << " " << key;
      EXPECT_FALSE(provenance.file.empty()) << id << " " << key;
    }
  }
}

TEST(Profiles, AFamilyFileIsNoChip) {
  EXPECT_THAT(ProfileIds("gpu"), testing::Not(testing::Contains("family-ampere")));
}

TEST(Profiles, AChipOverridesItsFamily) {
  EXPECT_EQ(LoadGpuProfile("a100-sxm4-80gb")
                    .header.constants.at("attention_fa2")
                    .file.find("family-ampere") != std::string::npos,
            true);
  EXPECT_GT(LoadGpuProfile("v100-sxm2-32gb-450w").gemm_efficiency_fp16,
            LoadGpuProfile("v100-sxm2-32gb").gemm_efficiency_fp16);
}

TEST(Profiles, AnUnknownNameListsTheNearest) {
  EXPECT_THAT(ErrorOf([] { LoadGpuProfile("a100-sxm4-80g"); }), HasSubstr("a100-sxm4-80gb"));
}

TEST(Profiles, AnUnknownConstantIsAnErrorWithItsPlaceAndTheRightName) {
  Texts()["f"] = FabricText("  nic_ring_eficiency: {value: 0.5, source: \"x\"}\n");
  const std::string error = ErrorOf([] { ReadFabricProfile("f", FromTexts); });
  EXPECT_THAT(error, HasSubstr("f.yaml:23:3"));
  EXPECT_THAT(error, HasSubstr("nic_ring_efficiency"));
}

TEST(Profiles, AMissingConstantIsNamed) {
  Texts()["f"] = "constants:\n  hop: {value: 5us, source: \"x\"}\n";
  EXPECT_THAT(ErrorOf([] { ReadFabricProfile("f", FromTexts); }),
              HasSubstr("lacks nic_ring_efficiency"));
}

TEST(Profiles, ABareNumberWhereAQuantityIsDueIsAnError) {
  std::string text = FabricText();
  text.replace(text.find("5us"), 3, "5");
  Texts()["f"] = text;
  EXPECT_NE(ErrorOf([] { ReadFabricProfile("f", FromTexts); }), "");
}

TEST(Profiles, AValueOutOfRangeIsAnError) {
  std::string text = FabricText();
  text.replace(text.find("0.5"), 3, "5.5");
  Texts()["f"] = text;
  EXPECT_THAT(ErrorOf([] { ReadFabricProfile("f", FromTexts); }), HasSubstr("f.yaml:3"));
}

TEST(Profiles, AConstantWithoutSourceIsAnError) {
  std::string text = FabricText();
  text.replace(text.find(", source: \"a test\""), 18, "");
  Texts()["f"] = text;
  EXPECT_THAT(ErrorOf([] { ReadFabricProfile("f", FromTexts); }), HasSubstr("source"));
}

TEST(Profiles, ACycleOfInheritanceIsAnErrorAndNoHang) {
  Texts()["a"] = "inherits: b\nconstants: {}\n";
  Texts()["b"] = "inherits: a\nconstants: {}\n";
  EXPECT_THAT(ErrorOf([] { ReadFabricProfile("a", FromTexts); }),
              AllOf(HasSubstr("b.yaml:1:11"), HasSubstr("profile 'a' inherits itself")));
  Texts()["a"] = "inherits: a\nconstants: {}\n";
  EXPECT_THAT(ErrorOf([] { ReadFabricProfile("a", FromTexts); }), HasSubstr("a.yaml:1:11"));
}

TEST(Profiles, ALongLineOfHeirsIsNoCycle) {
  for (int i = 0; i < 12; ++i)
    Texts()[fmt::format("heir-{}", i)] = fmt::format("inherits: heir-{}\nconstants: {{}}\n", i + 1);
  EXPECT_THAT(ErrorOf([] { ReadFabricProfile("heir-0", FromTexts); }),
              AllOf(HasSubstr("heir-8.yaml:1:11"), HasSubstr("more than 8 profiles")));
}

TEST(Profiles, BrokenTextNeverCrashes) {
  const std::string good = FabricText();
  const std::size_t whole = good.size() - 1;  // without the newline at its end
  for (std::size_t cut = 0; cut < whole; cut += 7) {
    Texts()["f"] = good.substr(0, cut);
    EXPECT_NE(ErrorOf([] { ReadFabricProfile("f", FromTexts); }), "") << "cut at " << cut;
  }
}

TEST(FrameworkSelection, PrefersTheSiteThenTheGeneration) {
  EXPECT_EQ(SelectFrameworkProfile("megatron-deepspeed", "vtrain-a100", false).header.id,
            "megatron-deepspeed@vtrain-a100");
  EXPECT_EQ(SelectFrameworkProfile("megatron", "selene", false).header.id, "megatron@2021");
  EXPECT_EQ(SelectFrameworkProfile("megatron", "selene", true).header.id, "megatron");
  EXPECT_EQ(SelectFrameworkProfile("fsdp", "fms-a100", false).header.id, "fsdp");
  EXPECT_THROW(SelectFrameworkProfile("megatorn", "selene", true), InputError);
}

// A profile file of its own, named by its path.
std::string ErrorOfCpu(const std::string& text) {
  const std::string path = testing::TempDir() + "/cpu.yaml";
  std::ofstream(path) << "title: test\ninherits: localhost-cpu\nconstants: {}\n" << text;
  return ErrorOf([&] { LoadGpuProfile(path); });
}

TEST(Profiles, MeasuredTablesAreReadOrRefusedAtTheirPlace) {
  EXPECT_EQ(ErrorOfCpu("kernels: {fp32: {mm: [[8, 8, 8, 1.5]], gelu: [[64, 0.1], [128, 0.2]]}}\n"
                       "collectives: {all_reduce: [[2, 1024, 5.5]]}\n"),
            "");
  EXPECT_THAT(ErrorOfCpu("kernels: {fp33: {mm: [[8, 8, 8, 1.5]]}}\n"), HasSubstr("fp33"));
  EXPECT_THAT(ErrorOfCpu("kernels: {fp32: {mm: [[1.5]]}}\n"), HasSubstr("cpu.yaml:4"));
  EXPECT_THAT(ErrorOfCpu("kernels: {fp32: {mm: [[1, 2, 3, 4, 5, 6]]}}\n"),
              HasSubstr("one to four extents"));
  for (const std::string wrong :
       {"kernels: 3\n", "kernels: {fp32: 3}\n", "kernels: {fp32: {mm: 3}}\n",
        "kernels: {fp32: {mm: [3]}}\n", "kernels: {fp32: {mm: [[0, 1]]}}\n",
        "kernels: {fp32: {mm: [[8, -1]]}}\n", "kernels: {fp32: {mm: [[8, x]]}}\n",
        "kernels: {fp32: {mm: [[[8], 1]]}}\n", "collectives: {all_reduce: [[1, 8, 1]]}\n",
        "collectives: {all_reduce: [[2, 8]]}\n", "collectives: {all_reduce: 3}\n",
        "collectives: 3\n"}) {
    EXPECT_THAT(ErrorOfCpu(wrong), HasSubstr("cpu.yaml:4")) << wrong;
  }
}

}  // namespace
}  // namespace orrery
