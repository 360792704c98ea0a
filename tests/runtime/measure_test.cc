// SPDX-License-Identifier: Apache-2.0
// `plan bench` with real ranks: its table read back, its checks, its exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>

#include "calib/import/nccl_log.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/launch/mpirun.h"
#include "runtime/timing/time_collective.h"
#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const char* const kCollectives[] = {"all_reduce", "all_gather", "reduce_scatter",
                                    "broadcast",  "all_to_all", "sendrecv"};

Outcome Bench(const std::string& text) {
  std::istringstream in("bench " + text);
  return RunPlan({std::istream_iterator<std::string>(in), {}});
}

measured::NcclRun ReadBack(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const measured::NcclLog log =
      measured::ReadNcclLog(std::make_shared<Source>(Source{"bench", outcome.out}));
  EXPECT_EQ(log.garbled_lines, 0) << Render(log.garbled, false);
  EXPECT_EQ(log.runs.size(), 1u);
  return log.runs.front();
}

TEST(Measure, OurReaderReadsWhatThreadsMeasured) {
  for (const char* collective : kCollectives) {
    SCOPED_TRACE(collective);
    const measured::NcclRun run =
        ReadBack(Bench(std::string(collective) + " --comm local -g 3 -b 1K -e 16K -f 4 -n 3 -w 1"));
    EXPECT_EQ(run.collective, collective);
    EXPECT_EQ(run.ranks, 3);
    EXPECT_EQ(run.hosts(), 1);
    ASSERT_EQ(run.measurements.size(), 3u);
    for (const measured::Measurement& row : run.measurements) {
      EXPECT_EQ(row.out_of_place->wrong, 0.0);
      EXPECT_EQ(row.in_place->wrong, 0.0);
      EXPECT_GT(row.out_of_place->us, 0);
    }
    EXPECT_TRUE(run.average_busbw.has_value());
  }
}

TEST(Measure, MpiStartsItsOwnRanks) {
#ifndef ORRERY_HAS_MPI
  GTEST_SKIP() << "no MPI";
#endif
  if (launch::FindMpirun().empty()) GTEST_SKIP() << "no mpirun";
  for (const char* collective : kCollectives) {
    SCOPED_TRACE(collective);
    const measured::NcclRun run = ReadBack(Bench(
        std::string(collective) + " --comm mpi --ranks 3 -b 12K -e 768K -f 8 -n 2 -w 1 -c 2"));
    EXPECT_EQ(run.ranks, 3);
    ASSERT_EQ(run.measurements.size(), 3u);
    for (const measured::Measurement& row : run.measurements) EXPECT_EQ(row.in_place->wrong, 0.0);
  }
}

TEST(Measure, PutsThePredictionBeside) {
  const Outcome outcome = Bench("all_reduce --comm local --ranks 2 -b 64K -e 256K -n 3 --predict");
  EXPECT_EQ(ReadBack(outcome).measurements.size(), 3u);
  EXPECT_THAT(outcome.out, HasSubstr("predicted  deviation"));
  EXPECT_THAT(outcome.out, HasSubstr("# Predicted on localhost: mean |error| "));
  const json record = json::parse(
      Bench("all_gather --comm local --ranks 2 -b 64K -e 64K -n 2 --predict --json").out);
  EXPECT_EQ(record["schema"], "orrery.bench/1");
  EXPECT_EQ(record["simulated"], false);
  EXPECT_EQ(record["topology"], "localhost");
  const json& row = record["rows"][0];
  EXPECT_GT(row["predicted_us"], 0);
  EXPECT_NEAR(row["error"],
              row["predicted_us"].get<double>() / row["out_of_place"]["time_us"].get<double>() - 1,
              1e-12);
}

TEST(Measure, TypesOperationsAndUncheckedCalls) {
  for (const char* type : {"half", "bfloat16", "double", "int32", "uint8"}) {
    const json record = json::parse(
        Bench(std::string("reduce_scatter --comm local --ranks 3 -b 4K -e 4K -n 1 --json -d ") +
              type)
            .out);
    EXPECT_EQ(record["wrong"], 0) << type;
    EXPECT_EQ(record["type"], type);
  }
  const Outcome most = Bench("all_reduce --comm local --ranks 2 -b 1K -e 1K -n 1 -o max -c 0");
  EXPECT_THAT(most.out, HasSubstr("max"));
  EXPECT_THAT(most.out, HasSubstr("N/A"));
  EXPECT_THAT(most.out, testing::Not(HasSubstr("Out of bounds")));
}

TEST(Measure, RefusesWithAHint) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"", "which collective?"},
      {"all_reduce -d int64", "ranks do not compute with int64"},
      {"all_reduce -n 0", "-n"},
      {"all_reduce -o product", "product"},
      {"all_reduce --ranks 0", "--ranks"},
      {"all_reduce --comm local --ranks 2 -b 1T -e 1T", "2 ranks on this machine need "},
      {"all_reduce --topology aws-p4d", "--topology needs --simulate or --predict"},
      {"all_reduce --log x.txt", "--log belongs to --simulate"},
      {"all_reduce --comm local --ranks 3 --predict --topology aws-g5-1gpu --nodes 2",
       "has 2 ranks here, and 3 are measured"},
      {"all_reduce --comm local --ranks 99 -e 1K --predict", "99 GPUs per node"},
  };
  for (const auto& [words, message] : kWrong) {
    const Outcome outcome = Bench(words);
    EXPECT_EQ(outcome.code, 2) << words;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << words;
  }
}

// An endpoint whose collectives end with one byte of the result turned over.
class Faulty : public comm::Endpoint {
 public:
  explicit Faulty(comm::Endpoint* sound) : sound_(sound) {}
  int64_t rank() const override { return sound_->rank(); }
  int64_t size() const override { return sound_->size(); }
  std::string host() const override { return sound_->host(); }
  comm::CommunicatorPtr Join(int32_t key, const std::vector<int64_t>& members) override {
    return std::make_unique<Line>(sound_->Join(key, members));
  }
  comm::OperationPtr Send(int64_t peer, int32_t channel, const void* bytes, int64_t n) override {
    return sound_->Send(peer, channel, bytes, n);
  }
  comm::OperationPtr Receive(int64_t peer, int32_t channel, void* bytes, int64_t n) override {
    return sound_->Receive(peer, channel, bytes, n);
  }
  comm::OperationPtr Barrier() override { return sound_->Barrier(); }
  void Idle() override { sound_->Idle(); }
  std::string Silent() override { return sound_->Silent(); }
  void Abort(const std::string& why) override { sound_->Abort(why); }

 private:
  struct Spoiled : comm::Operation {
    bool Test() override {
      if (!operation->Test()) return false;
      if (!spoiled && at != nullptr) *at ^= std::byte{0x40};
      return spoiled = true;
    }
    comm::OperationPtr operation;
    std::byte* at = nullptr;
    bool spoiled = false;
  };
  struct Line : comm::Communicator {
    explicit Line(comm::CommunicatorPtr line) : sound(std::move(line)) {}
    comm::OperationPtr Start(const comm::Collective& collective) override {
      auto operation = std::make_unique<Spoiled>();
      operation->operation = sound->Start(collective);
      if (collective.n > 1) operation->at = static_cast<std::byte*>(collective.out) + 7;
      return operation;
    }
    comm::CommunicatorPtr sound;
  };
  comm::Endpoint* sound_;
};

TEST(Measure, CountsWrongElementsOfAllRanks) {
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather,
                                      Collective::kReduceScatter, Collective::kBroadcast}) {
    bench::CallTime sound, spoiled;
    const auto measure = [&](comm::Endpoint* endpoint, bench::CallTime* time) {
      bench::CollectiveTimer timer(endpoint, {2, 1, 3, 20});
      const bench::CallTime mine = timer.Measure({collective, ir::Dtype::kF32, false, 2, 64});
      if (endpoint->rank() == 0) *time = mine;
    };
    EXPECT_EQ(launch::RunLocalRanks(2, [&](comm::Endpoint* e) { measure(e, &sound); }), "");
    EXPECT_EQ(launch::RunLocalRanks(2,
                                    [&](comm::Endpoint* e) {
                                      Faulty faulty(e);
                                      measure(&faulty, &spoiled);
                                    }),
              "");
    EXPECT_EQ(sound.out_of_place.wrong, 0);
    EXPECT_EQ(sound.in_place.wrong, 0);
    EXPECT_EQ(spoiled.out_of_place.wrong, 6) << Name(collective);  // 2 ranks, 3 checks
    EXPECT_EQ(spoiled.in_place.wrong, 6) << Name(collective);
  }
}

}  // namespace
}  // namespace orrery
