// SPDX-License-Identifier: Apache-2.0
// The Chrome trace of a simulated step, parsed again.
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "model/program/simulate/trace_json.h"
#include "tests/sim/setting.h"

namespace orrery::sim {
namespace {

using nlohmann::json;

class TraceTest : public SimTest {
 protected:
  // Simulates a layout and reads its trace back.
  void Trace(const Strategy& strategy) {
    UseRanks(strategy.ranks());
    plan_ = Build(strategy);
    const Pricer pricer(Setting(), Precision::kBf16);
    tasks_ = MakeTasks(plan_, pricer);
    communicators_ = MakeCommunicators(plan_, tasks_, cluster_, net::WiresOf(cluster_),
                                       pricer.messages, communicator_options_);
    result_ = Execute(plan_, tasks_, &communicators_, {}, &timeline_);
    report::TraceSource source{&plan_, &tasks_, &communicators_, &timeline_, &pricer};
    if (communicator_options_.log_rates) AddLinks(&source);
    Breakdown breakdown;
    breakdown.compute = result_.seconds;
    source.breakdown = &breakdown;
    std::ostringstream text;
    report::WriteTrace(source, &text);
    document_ = json::parse(text.str());
    std::ostringstream compressed;
    EXPECT_TRUE(report::WriteGzipTrace(source, &compressed));
    EXPECT_EQ(Expanded(compressed.str()), text.str());
    EXPECT_LT(compressed.str().size(), text.str().size() / 5);
  }

  std::vector<LinkTraffic> OnLinks() const {
    return TrafficOnLinks(plan_, tasks_, communicators_, cluster_.links.size());
  }

  void AddLinks(report::TraceSource* source) {
    ASSERT_TRUE(communicators_.rates_logged);
    const std::vector<LinkTraffic> traffic = OnLinks();
    links_.clear();
    for (std::size_t i = 0; i < traffic.size(); ++i) {
      if (traffic[i].bytes > 0) links_.push_back(static_cast<LinkId>(i));
    }
    const auto tracks = LinkTracks(plan_, tasks_, communicators_, timeline_, links_,
                                   net::WiresOf(cluster_).capacity);
    for (std::size_t i = 0; i < links_.size(); ++i)
      source->links.push_back({net::LinkName(cluster_, links_[i]), tracks[i]});
    tracks_ = source->links;
  }

  static std::string Expanded(const std::string& gzip) {
    z_stream stream{};
    EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(gzip.data()));
    stream.avail_in = static_cast<uInt>(gzip.size());
    std::string plain;
    std::vector<char> piece(1 << 16);
    int status = Z_OK;
    while (status == Z_OK) {
      stream.next_out = reinterpret_cast<Bytef*>(piece.data());
      stream.avail_out = static_cast<uInt>(piece.size());
      status = inflate(&stream, Z_NO_FLUSH);
      plain.append(piece.data(), piece.size() - stream.avail_out);
    }
    EXPECT_EQ(status, Z_STREAM_END);
    inflateEnd(&stream);
    return plain;
  }

  static int64_t Nanos(const json& micros) { return std::llround(micros.get<double>() * 1e3); }

  std::vector<json> Events(const std::string& phase) const {
    std::vector<json> events;
    for (const json& event : document_["traceEvents"]) {
      if (event["ph"] == phase && event.value("cat", "") != "step") events.push_back(event);
    }
    return events;
  }

  CommunicatorOptions communicator_options_;
  ir::Plan plan_;
  PlanTasks tasks_;
  CommunicatorTable communicators_;
  Timeline timeline_;
  StepResult result_;
  json document_;
  std::vector<LinkId> links_;
  std::vector<report::TracedLink> tracks_;
};

// A late host is a gap in front of a kernel, not a longer kernel, and fixed costs are part of the step.
TEST_F(TraceTest, TheBreakdownOfTheStepStandsInFront) {
  Trace(Layout(2, 1, 1));
  EXPECT_EQ(document_["breakdown"]["compute_s"], result_.seconds);
  EXPECT_EQ(document_["breakdown"]["bubble_s"], 0);
}

TEST_F(TraceTest, KernelsLastAsLongAsTheDeviceWorks) {
  UseRanks(1);
  plan_ = Build(Layout(1, 1, 1));
  const Pricer pricer(Setting(), Precision::kBf16);
  tasks_ = MakeTasks(plan_, pricer);
  double device = 0, late = 0;
  for (Task& task : tasks_.stages[0].tasks) {  // each op is issued a second after the one before
    device += task.seconds;
    late = task.earliest = std::max(task.earliest, late + 1);
    task.issued = late - task.seconds;
  }
  communicators_ = MakeCommunicators(plan_, tasks_, cluster_, net::WiresOf(cluster_),
                                     pricer.messages, communicator_options_);
  result_ = Execute(plan_, tasks_, &communicators_, {}, &timeline_);
  ASSERT_GT(result_.seconds, 100 * device);
  report::TraceSource source{&plan_, &tasks_, &communicators_, &timeline_, &pricer};
  source.fixed = 0.5;
  std::ostringstream text;
  report::WriteTrace(source, &text);
  document_ = json::parse(text.str());
  double kernels = 0, step = 0;
  for (const json& event : document_["traceEvents"]) {
    if (event["ph"] != "X") continue;
    (event["cat"] == "kernel" ? kernels : step) += 1e-6 * event["dur"].get<double>();
  }
  EXPECT_NEAR(kernels, device, 1e-6);
  EXPECT_NEAR(step, result_.seconds + 0.5, 1e-6);
}

TEST_F(TraceTest, SpansOfOneStreamFollowEachOtherAndEndWithTheStep) {
  Strategy strategy = Layout(2, 2, 4);
  strategy.overlap_grad_reduce = true;
  strategy.zero = 1;
  Trace(strategy);
  std::map<std::pair<int64_t, int64_t>, int64_t> ends;
  int64_t last = 0;
  for (const json& event : Events("X")) {
    int64_t& end = ends[{event["pid"], event["tid"]}];
    EXPECT_GE(Nanos(event["ts"]), end) << event;
    EXPECT_GE(Nanos(event["dur"]), 0) << event;
    end = Nanos(event["ts"]) + Nanos(event["dur"]);
    last = std::max(last, end);
  }
  EXPECT_GT(ends.size(), result_.ranks.size());  // compute is not the only stream
  EXPECT_NEAR(static_cast<double>(last), result_.seconds * 1e9, 1.0);
}

TEST_F(TraceTest, EveryOpAppearsAsOftenAsTheScheduleCallsIt) {
  Strategy strategy = Layout(2, 2, 2);
  strategy.recompute = Recompute::kFull;
  Trace(strategy);
  using Key = std::tuple<int64_t, std::string, int64_t, int64_t>;  // rank, block, op, micro-batch
  std::map<Key, int> expected, found;
  for (const int64_t rank : result_.ranks) {
    const ir::Program& program = plan_.programs[plan_.mesh.Coords(rank)[plan_.mesh.program_axis]];
    for (const ir::Instance& at : ir::Unfold(plan_, program, ir::ComputeLayout(plan_, program)))
      ++expected[{rank, program.blocks[at.block].name, at.op, at.micro_batch}];
  }
  for (const json& event : Events("X")) {
    const json& arguments = event["args"];
    ++found[{event["pid"], arguments["block"], arguments["op"], arguments["micro_batch"]}];
  }
  EXPECT_GT(expected.size(), 1000u);
  EXPECT_EQ(found, expected);
}

TEST_F(TraceTest, ComputeSpansAddUpToTheRanksAccount) {
  Trace(Layout(2, 2, 2));
  std::map<int64_t, int64_t> compute;
  for (const json& event : Events("X")) {
    if (!event["args"].contains("bytes")) compute[event["pid"]] += Nanos(event["dur"]);
  }
  for (std::size_t r = 0; r < result_.ranks.size(); ++r) {
    const double account = result_.times[r].compute + result_.times[r].overlapped;
    EXPECT_NEAR(static_cast<double>(compute[result_.ranks[r]]) * 1e-9, account, 1e-6 * account);
  }
}

TEST_F(TraceTest, ArrowsJoinEachSendWithItsReceive) {
  Trace(Layout(1, 4, 2));
  std::map<int64_t, json> starts;
  for (const json& event : Events("s")) EXPECT_TRUE(starts.emplace(event["id"], event).second);
  const std::vector<json> ends = Events("f");
  ASSERT_GT(ends.size(), 100u);
  EXPECT_EQ(ends.size(), starts.size());
  for (const json& end : ends) {
    ASSERT_TRUE(starts.contains(end["id"])) << end;
    const json& start = starts[end["id"]];
    EXPECT_NE(start["pid"], end["pid"]);
    EXPECT_EQ(start["ts"], end["ts"]);  // both have come: the transfer begins
    EXPECT_EQ(Nanos(start["ts"]) >= 0 && Nanos(end["ts"]) <= result_.seconds * 1e9 + 1, true);
  }
}

TEST_F(TraceTest, MemoryCountersStayWithinTheLayoutAndTheStep) {
  Trace(Layout(2, 2, 2));
  std::map<int64_t, int64_t> last;
  for (const json& event : Events("C")) {
    const int64_t rank = event["pid"];
    const ir::Program& program = plan_.programs[plan_.mesh.Coords(rank)[plan_.mesh.program_axis]];
    const int64_t bytes = event["args"]["live bytes"];
    EXPECT_GT(bytes, 0);
    EXPECT_LE(bytes, ir::ComputeLayout(plan_, program).arena_bytes);
    EXPECT_GE(Nanos(event["ts"]), last[rank]);
    EXPECT_LE(static_cast<double>(Nanos(event["ts"])), result_.seconds * 1e9 + 1);
    last[rank] = Nanos(event["ts"]);
  }
  EXPECT_EQ(last.size(), result_.ranks.size());
}

TEST_F(TraceTest, LinkCountersStayWithinBandwidthAndCarryAllBytes) {
  communicator_options_.keep_links = communicator_options_.log_rates = true;
  for (const bool merged : {false, true}) {
    Strategy strategy = Layout(2, 2, 4);
    strategy.overlap_grad_reduce = true;
    strategy.zero = 1;
    communicator_options_.merged = merged ? Replicas(Build(strategy)) : 0;
    Trace(strategy);
    ASSERT_GT(tracks_.size(), 10u);
    const std::vector<LinkTraffic> traffic = OnLinks();
    for (std::size_t i = 0; i < tracks_.size(); ++i) {
      double carried = 0, share = 0, since = 0;
      for (const LinkPoint& point : tracks_[i].points) {
        carried += share * (point.time - since);
        EXPECT_GE(point.share, 0) << tracks_[i].name;
        EXPECT_LE(point.share, 1 + 1e-6) << tracks_[i].name;
        share = point.share, since = point.time;
      }
      EXPECT_EQ(share, 0) << tracks_[i].name;
      const std::size_t link = static_cast<std::size_t>(links_[i]);
      const double expected = traffic[link].occupied / cluster_.links[link].capacity.value;
      EXPECT_NEAR(carried, expected, 1e-6 * expected) << tracks_[i].name;
    }
    const int64_t pid = plan_.mesh.ranks();
    const std::vector<json> counters = Events("C");
    EXPECT_TRUE(std::ranges::any_of(counters, [&](const json& c) { return c["pid"] == pid; }));
  }
}

// A ring over two nodes sends 2 (n-1) / n of the gradients out of each of them, however slow its lines are.
TEST_F(TraceTest, LinksReportTheBytesThatCrossThemApartFromEfficiency) {
  communicator_options_.keep_links = true;
  framework_.algorithm = "ring";
  fabric_.nic_ring_efficiency = 0.25;
  const Strategy strategy = Layout(1, 1, 16);
  Trace(strategy);
  double gradients = 0;
  for (const Task& task : tasks_.stages.front().tasks) {
    if (task.line < 0) continue;
    const Message& message = tasks_.lines[static_cast<std::size_t>(task.line)]
                                 .messages[static_cast<std::size_t>(task.message)];
    gradients += message.bytes * message.share;
  }
  double out = 0;
  int ports = 0;
  for (const LinkTraffic& link : OnLinks()) {
    const Link& at = cluster_.links[static_cast<std::size_t>(link.link)];
    const Device& from = cluster_.devices[static_cast<std::size_t>(at.from)];
    if (at.kind != LinkKind::kNicPort || from.kind != DeviceKind::kNic || from.node != 0) continue;
    out += link.bytes;
    if (link.bytes == 0) continue;
    EXPECT_NEAR(link.efficiency(), 0.25 * framework_.data_nic_use, 1e-6);
    ++ports;
  }
  EXPECT_GT(ports, 0);
  EXPECT_NEAR(out, 2 * 15 / 16.0 * gradients, 1e-6 * out);
}

TEST_F(TraceTest, NamesProcessesAndThreads) {
  Trace(Layout(2, 1, 1));
  std::map<std::string, int> names;
  for (const json& event : Events("M")) {
    if (event["name"] == "process_name") ++names[event["args"]["name"]];
    if (event["name"] == "thread_name") ++names[event["args"]["name"]];
  }
  EXPECT_EQ(names["rank 0"], 1);
  EXPECT_EQ(names["rank 1"], 1);
  EXPECT_EQ(names["stream 0 " + plan_.streams[0]], 2);
}

TEST_F(TraceTest, WatchingChangesNothing) {
  const Strategy strategy = Layout(2, 2, 4);
  Trace(strategy);
  EXPECT_EQ(result_.seconds, Simulate(strategy).seconds);
}

TEST_F(TraceTest, LinksCarryTheSameWhetherReplicasAreMergedOrNot) {
  Strategy strategy = Layout(2, 2, 4);
  communicator_options_.keep_links = true;
  Trace(strategy);
  const std::vector<LinkTraffic> all = OnLinks();
  communicator_options_.merged = Replicas(plan_);
  Trace(strategy);
  const std::vector<LinkTraffic> merged = OnLinks();
  double total = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_NEAR(merged[i].bytes, all[i].bytes, 1e-9 * all[i].bytes) << i;
    EXPECT_NEAR(merged[i].occupied, all[i].occupied, 1e-9 * all[i].occupied) << i;
    total += all[i].bytes;
  }
  EXPECT_GT(total, 1e9);
}

}  // namespace
}  // namespace orrery::sim
