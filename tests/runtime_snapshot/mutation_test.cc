// SPDX-License-Identifier: Apache-2.0
// Manifests that somebody changed and hashed again: refused by name or harmless, never a crash, a loop
// or a training state that nobody wrote. ORRERY_MUTATIONS sets how many (200), ORRERY_MUTATION_SEED
// the seed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "runtime/comm/local.h"
#include "runtime/data/synthetic.h"
#include "runtime/train/snapshot/manifest.h"
#include "runtime/train/snapshot/snapshot.h"
#include "tests/from_environment.h"
#include "tests/runtime_data/testing.h"
#include "tests/runtime_snapshot/training.h"

namespace orrery::snapshot {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;
using train::Folder;

constexpr char kFirstLine[] = "orrery-snapshot 1 ";

std::string Hashed(const std::string& rest) { return kFirstLine + HashOf(rest) + "\n" + rest; }
std::string BodyOf(const std::string& manifest) { return manifest.substr(manifest.find('\n') + 1); }

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string Mutated(const std::string& body) {
    if (Below(5) == 0) return FlippedBytes(body);
    Json json = Json::parse(body);
    for (std::size_t n = 1 + Below(3); n > 0; --n) Change(&json);
    return json.dump() + "\n";
  }

 private:
  std::size_t Below(std::size_t bound) { return random_() % bound; }

  std::string FlippedBytes(std::string body) {
    for (std::size_t n = 1 + Below(4); n > 0; --n)
      body[Below(body.size())] ^= static_cast<char>(1u << Below(8));
    if (Below(8) == 0) body.resize(Below(body.size()));
    return body;
  }

  // Walks down to a value and changes it, or the list that holds it.
  void Change(Json* json) {
    while (json->is_structured() && !json->empty()) {
      if (Below(12) == 0) return ChangeMembers(json);
      auto it = json->begin();
      std::advance(it, Below(json->size()));
      json = &*it;
    }
    *json = Value(*json);
  }

  void ChangeMembers(Json* json) {
    if (json->is_object()) {
      json->erase(std::next(json->begin(), static_cast<int>(Below(json->size()))));
      return;
    }
    const std::size_t at = Below(json->size());
    const Json one = (*json)[at];
    if (Below(2) == 0) json->erase(at);
    if (Below(2) == 0) json->insert(json->begin(), one);
  }

  Json Value(const Json& old) {
    constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
    constexpr int64_t kFar = int64_t{1} << 62;
    const int64_t near = old.is_number_integer() ? std::clamp(old.get<int64_t>(), -kFar, kFar) : 0;
    const Json values[] = {0,
                           1,
                           -1,
                           2,
                           3,
                           7,
                           64,
                           near + 1,
                           near - 1,
                           near / 2,
                           int64_t{1} << 31,
                           int64_t{1} << 40,
                           int64_t{1} << 62,
                           kLeast,
                           kLeast + 1,
                           std::numeric_limits<uint64_t>::max(),
                           0.5,
                           1e300,
                           -1e18,
                           nullptr,
                           true,
                           "",
                           "weights",
                           "../rank-00000.shard",
                           "m",
                           "\x1b[2J",
                           Json::array(),
                           Json::object(),
                           Json::array({Json::array({Json::array()})})};
    return values[Below(std::size(values))];
  }

  std::mt19937_64 random_;
};

// Everything by which a manifest decides what is loaded; the rest is told or free.
Json Decisive(const std::string& body) {
  Json json = Json::parse(body);
  for (const char* free : {"samples", "data", "plan", "conditions", "loss_scale"}) json.erase(free);
  for (Json& shard : json["shards"]) {
    for (Json& slice : shard["slices"]) {  // the same bytes, the same numbers
      if (slice[3] == static_cast<int>(ir::Dtype::kTf32))
        slice[3] = static_cast<int>(ir::Dtype::kF32);
    }
  }
  std::map<std::string, Json> model;  // in any order
  for (const Json& param : json["model"]) model[param[0]] = param[1];
  json["model"] = model;
  return json;
}

class ManifestMutations : public testing::Test {
 protected:
  ManifestMutations() {
    job_ = runtime_test::InPrecision(parity::TinyMlp(), Precision::kFp32);
    Strategy two;
    two.dp = 2;
    two.zero = 1;
    EXPECT_EQ(Train(job_, two, 2, Saving(folder_ / "s", 0)).failure, "");
    path_ = folder_ / "s/step-00000002/manifest";
    body_ = BodyOf(ReadWhole(path_));
    plan_ = runtime_test::LowerFor(job_, {});
    endpoint_ = world_.Connect(0);
    train::DataSpec spec;
    spec.vocab = job_.model.vocab;
    data_ = std::make_unique<train::SyntheticSource>(spec);
    executor_ = std::make_unique<exec::Executor>(plan_, endpoint_.get(), data_.get(),
                                                 exec::ExecuteOptions{});
  }

  // The refusal; empty: it was used.
  std::string Use(const std::string& body) {
    train::WriteBytes(path_, Hashed(body));
    std::string refusal;
    ResumeOptions options;
    options.folder = folder_ / "s";
    options.data = "synthetic";
    options.note = [&](const std::string& text) {
      if (text.find("is not used") != std::string::npos) refusal = text;
    };
    try {
      Resume(executor_.get(), endpoint_.get(), options);
      EXPECT_EQ(refusal, "");
      return "";
    } catch (const SnapshotError& error) {
      EXPECT_NE(refusal, "") << error.what();
      return refusal;
    }
  }

  // One value of the first slice.
  std::string WithSlice(std::size_t member, const Json& value) {
    Json json = Json::parse(body_);
    json["shards"][0]["slices"][0][member] = value;
    return json.dump() + "\n";
  }

  const Folder folder_;
  parity::Job job_;
  std::string path_, body_;
  ir::Plan plan_;
  comm::LocalWorld world_{1};
  std::unique_ptr<comm::Endpoint> endpoint_;
  std::unique_ptr<train::DataSource> data_;
  std::unique_ptr<exec::Executor> executor_;
};

// Each of these divided by zero, looped for ever, or read outside of its buffer.
TEST_F(ManifestMutations, WhatCrashedIsRefusedWithItsShardAndParameter) {
  ASSERT_EQ(Use(body_), "");
  const std::pair<std::size_t, Json> lies[] = {{2, Json::array({0, 0})},
                                               {2, Json::array({-4, -4})},
                                               {2, Json::array()},
                                               {3, 200},
                                               {4, 5},
                                               {5, 0},
                                               {5, -1},
                                               {6, 99},
                                               {7, -8},
                                               {8, 1e300},
                                               {8, int64_t{1} << 62},
                                               {9, -64}};
  for (const auto& [member, value] : lies) {
    SCOPED_TRACE(fmt::format("member {} is {}", member, value.dump()));
    const std::string refusal = Use(WithSlice(member, value));
    EXPECT_THAT(refusal, HasSubstr("step-00000002 is not used: "));
    EXPECT_THAT(refusal, HasSubstr("manifest"));
  }
  EXPECT_THAT(Use(WithSlice(5, 0)), HasSubstr("rank-00000.shard: "));
  EXPECT_THAT(Use(WithSlice(5, 0)), HasSubstr("copy the snapshot again"));
}

// Bytes of another type in the room of the right ones: padding hides that they are fewer.
TEST_F(ManifestMutations, TypesAreThePlans) {
  const auto place = [](const Json& slice) {
    const int64_t begin = slice[7], end = slice[8];
    return (end - begin) * 4 % 64 != 0 && (end - begin) * 2 <= 64 && (end - begin) * 4 <= 64;
  };
  int tried = 0;
  const Json whole = Json::parse(body_);
  for (const Json& slice : whole["shards"][0]["slices"]) {
    if (!place(slice)) continue;
    Json json = whole;
    for (Json& shard : json["shards"]) {
      for (Json& one : shard["slices"])
        if (one[0] == slice[0] && one[1] == slice[1]) one[3] = static_cast<int>(ir::Dtype::kBf16);
    }
    // The size of a file is that of its last slice.
    for (Json& shard : json["shards"]) {
      const Json& last = shard["slices"].back();
      const int64_t width = last[3] == static_cast<int>(ir::Dtype::kBf16) ? 2 : 4;
      if (shard["bytes"] !=
          last[9].get<int64_t>() + (last[8].get<int64_t>() - last[7].get<int64_t>()) * width)
        json["shards"] = nullptr;
      if (json["shards"].is_null()) break;
    }
    if (json["shards"].is_null()) continue;
    ++tried;
    EXPECT_THAT(Use(json.dump() + "\n"),
                AllOf(HasSubstr(slice[1].get<std::string>()), HasSubstr("are of type bf16"),
                      HasSubstr("this plan keeps f32")));
  }
  EXPECT_GT(tried, 0);
}

// Rows that fill up the last shard are legal for a vocabulary alone.
TEST_F(ManifestMutations, ShapesAreThePlans) {
  Json json = Json::parse(body_);
  for (Json& shard : json["shards"]) {
    for (Json& slice : shard["slices"]) slice[2][0] = slice[2][0].get<int64_t>() + 1;
  }
  EXPECT_THAT(Use(json.dump() + "\n"), HasSubstr("and the plan's is ["));
}

TEST_F(ManifestMutations, ShardsOutsideOfTheFolderAreNotRead) {
  Json json = Json::parse(body_);
  json["shards"][0]["file"] = "../../rank-00000.shard";
  EXPECT_THAT(Use(json.dump() + "\n"), HasSubstr("shard 0 is called '../../rank-00000.shard'"));
}

TEST_F(ManifestMutations, ConditionsOfTrainingAreTextsByName) {
  Json json = Json::parse(body_);
  for (const Json& wrong : {Json::array({"--lr"}), Json("--lr"), Json({{"--lr", 0.1}})}) {
    json["conditions"] = wrong;
    EXPECT_THAT(Use(json.dump() + "\n"), HasSubstr("of another version")) << wrong;
  }
  json["conditions"] = {{"--lr", "0.1"}, {"\x1b[2J", "x"}};
  EXPECT_EQ(Use(json.dump() + "\n"), "");
  json.erase("conditions");  // of an older release
  EXPECT_EQ(Use(json.dump() + "\n"), "");
}

TEST_F(ManifestMutations, KeysOfOtherVersionsAreRefused) {
  Json json = Json::parse(body_);
  json.erase("conditions");
  json["aonditions"] = Json::object();
  EXPECT_THAT(Use(json.dump() + "\n"),
              HasSubstr("its manifest has 'aonditions', which this version does not know"));
}

TEST_F(ManifestMutations, TextsOfOthersDoNotReachTheTerminal) {
  Json json = Json::parse(body_);
  json["shards"][0]["file"] = "\x1b[2J\n";
  EXPECT_THAT(Use(json.dump() + "\n"), HasSubstr("is called '?[2J?'"));
}

TEST_F(ManifestMutations, AreRefusedOrHarmless) {
  const auto cases = static_cast<int>(FromEnvironment("ORRERY_MUTATIONS", 200));
  Mutator mutator(FromEnvironment("ORRERY_MUTATION_SEED", 1));
  int refused = 0;
  for (int i = 0; i < cases; ++i) {
    const std::string body = mutator.Mutated(body_);
    alarm(30);  // an endless loop ends the test
    const std::string refusal = Use(body);
    alarm(0);
    if (!refusal.empty()) {
      ++refused;
      continue;
    }
    ASSERT_EQ(Decisive(body), Decisive(body_)) << "case " << i << " was used: " << body;
  }
  EXPECT_GT(refused, cases / 2);
  RecordProperty("refused", refused);
}

}  // namespace
}  // namespace orrery::snapshot
