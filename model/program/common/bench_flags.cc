// SPDX-License-Identifier: Apache-2.0
// Declares the flags of `plan bench` and reads its sizes.
#include "model/program/common/bench_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "model/base/plain_text.h"
#include "model/hardware/nccl_release.h"
#include "model/program/common/answer.h"
#include "model/program/common/simulate_flags.h"

namespace orrery::cli {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 44;  // 16 TiB
constexpr std::size_t kMostSizes = 4096;
constexpr int64_t kDefaultBegin = 8, kDefaultEnd = int64_t{1} << 27, kDefaultFactor = 2;

constexpr std::pair<const char*, Collective> kCollectiveNames[] = {
    {"all_reduce", Collective::kAllReduce},         {"all_gather", Collective::kAllGather},
    {"reduce_scatter", Collective::kReduceScatter}, {"broadcast", Collective::kBroadcast},
    {"all_to_all", Collective::kAllToAll},          {"sendrecv", Collective::kSendRecv},
};

constexpr ElementType kTypes[] = {{"float", 4}, {"half", 2},  {"bfloat16", 2}, {"double", 8},
                                  {"int8", 1},  {"uint8", 1}, {"int32", 4},    {"uint32", 4},
                                  {"int64", 8}, {"uint64", 8}};

std::vector<std::string> TypeNames() {
  std::vector<std::string> names;
  for (const ElementType& type : kTypes) names.emplace_back(type.name);
  return names;
}

std::vector<std::string> CollectiveNames() {
  return NamesOf<Collective>(NameTable<Collective>(kCollectiveNames));
}

int64_t ReadSize(const Flag& flag, int64_t otherwise, Diagnostics* diagnostics) {
  if (!flag.given) return otherwise;
  int64_t bytes = 0;
  if (!ParseSize(flag.text, &bytes)) {
    diagnostics->Error(flag.where,
                       fmt::format("{}: '{}' is no size in bytes", flag.name, flag.text),
                       fmt::format("such as {} 8, {} 64K or {} 1G (powers of 1024)", flag.name,
                                   flag.name, flag.name));
    return otherwise;
  }
  if (bytes > kMostBytes) {
    diagnostics->Error(flag.where, fmt::format("{}: {} is too large", flag.name, flag.text),
                       "at most 16T");
    return otherwise;
  }
  return bytes;
}

Collective ReadCollective(const Flag& flag, Diagnostics* diagnostics) {
  if (!flag.given) {
    diagnostics->Error(flag.where, "which collective?",
                       fmt::format("one of: {}", fmt::join(CollectiveNames(), ", ")));
    return Collective::kAllReduce;
  }
  Flag name = flag;  // also as nccl-tests names its programs
  if (name.text.ends_with("_perf")) name.text.resize(name.text.size() - 5);
  if (name.text == "alltoall") name.text = "all_to_all";
  return ReadChoice<Collective>(name, kCollectiveNames, diagnostics)
      .value_or(Collective::kAllReduce);
}

std::vector<int64_t> ReadSizes(const BenchFlags& flags, Diagnostics* diagnostics) {
  const int64_t begin = ReadSize(flags.begin, kDefaultBegin, diagnostics);
  const int64_t end = ReadSize(flags.end, std::max(begin, kDefaultEnd), diagnostics);
  const int64_t step = ReadSize(flags.step, 0, diagnostics);
  const int64_t factor =
      ReadInteger(flags.factor, 2, kMostBytes, diagnostics).value_or(kDefaultFactor);
  if (flags.step.given && flags.factor.given) {
    diagnostics->Error(flags.step.where, "-i and -f exclude each other", "keep one of them");
  } else if (flags.step.given && step == 0) {
    diagnostics->Error(flags.step.where, "-i 0 never arrives", "a step of at least 1");
  }
  if (begin > end) {
    diagnostics->Error(flags.begin.given ? flags.begin.where : flags.end.where,
                       fmt::format("the sizes from {} to {} are none", begin, end),
                       "-b is the smallest size, -e the largest");
  }
  if (!diagnostics->ok()) return {};
  std::vector<int64_t> sizes;
  for (int64_t size = begin; size <= end; size = flags.step.given ? size + step : size * factor) {
    if (sizes.size() == kMostSizes) {
      diagnostics->Error(flags.step.where, fmt::format("more than {} sizes", kMostSizes),
                         "a larger -i, or -f 2");
      return {};
    }
    sizes.push_back(size);
    if (size == 0 && !flags.step.given) break;
  }
  return sizes;
}

}  // namespace

BenchFlags::BenchFlags()
    : set("bench [--simulate] COLLECTIVE [flags]",
          "Times a collective among CPU ranks, or GPUs (--device cuda), over the communicator of "
          "`plan run`, checks its results, and prints the table of nccl-tests. This command or "
          "mpirun starts the ranks. With --simulate it predicts the table of nccl-tests on a "
          "cluster: traffic over routed links, latency and protocols from the profiles. With --log "
          "it compares the prediction with a measured table.",
          {"plan bench all_reduce --ranks 2 -b 1K -e 16M -f 4",
           "plan bench all_gather --ranks 4 -e 1M --predict", "plan bench --calibrate machine",
           "plan bench --simulate all_reduce -b 8 -e 1G --topology aws-g5-1gpu --nodes 2",
           "plan bench --simulate all_gather -b 1M -e 64M -i 1M --topology dgx-h100 --nodes 4",
           "plan bench --simulate all_reduce --topology aws-g5-1gpu --nodes 2 --log run.txt",
           "plan bench --simulate --from scenarios/seeds/s1.yaml"}) {
  set.Group("The collective and its sizes, as nccl-tests names them");
  set.Positional(&collective, "COLLECTIVE", fmt::format("{}", fmt::join(CollectiveNames(), ", ")),
                 Words::kList, CollectiveNames());
  set.Value(&from, "--from", "FILE",
            "takes what is left out from the section `bench` of a scenario, such as "
            "scenarios/seeds/s1.yaml",
            Words::kFile);
  set.Value(&begin, "-b", "SIZE", "smallest size: bytes, or with K, M, G, T (default 8)");
  set.Value(&end, "-e", "SIZE", "largest size (default 128M); with --log: all sizes of the log");
  set.Value(&factor, "-f", "N", "factor between sizes (default 2)");
  set.Value(&step, "-i", "SIZE", "instead: a constant step between sizes");
  set.Value(&type, "-d", "TYPE", "type of an element (default float)", Words::kList, TypeNames());
  set.Group("Measuring");
  set.Value(
      &ranks, "--ranks", "N",
      "ranks, also -g N (default: those of mpirun, else one per core, or GPU, of this machine)");
  set.Value(&comm, "--comm", "KIND",
            "mpi (processes; default where available), local (threads of one process) or tcp "
            "(processes of another launcher; default where MASTER_ADDR is set)",
            Words::kList, {"mpi", "local", "tcp"});
  set.Value(
      &device, "--device", "KIND",
      "cpu (default) or cuda: over NCCL, or among threads that share the first GPU (--comm local)",
      Words::kList, {"cpu", "cuda"});
  set.Value(&iterations, "-n", "N", "timed calls of each size (default 20)");
  set.Value(&warmup, "-w", "N", "warm-up calls before them (default 5)");
  set.Value(&check, "-c", "N", "checked calls, 0: none (default 1)");
  set.Value(&operation, "-o", "OP", "sum (default) or max", Words::kList, {"sum", "max"});
  set.Value(&timeout, "--timeout", "TIME",
            "abort when no message arrives from a peer within this time (default 120s)");
  set.Switch(&predict, "--predict",
             "also predict each measured time, on --topology (default localhost)");
  set.Value(
      &calibrate, "--calibrate", "DIR",
      "instead of a collective: measure this machine's kernels and collectives (a minute) and "
      "write DIR/machine.yaml, a topology for `plan run`, `plan simulate` and --predict",
      Words::kOutputFolder);
  set.Group("The cluster");
  set.Switch(&simulate, "--simulate", "predict with the model instead of measuring");
  set.Value(&topology, "--topology", "NAME", "a cluster of `plan list topologies`, or a YAML file",
            Words::kTopology);
  set.Value(&nodes, "--nodes", "N", "compute nodes (default: those of the topology)");
  set.Value(&gpus_per_node, "--gpus-per-node", "N", "GPUs in use on each node (default: all)");
  set.Value(&gpu, "--gpu", "NAME", "replace the GPU of these nodes", Words::kGpu);
  set.Value(&collectives, "--collectives", "FILE",
            "times measured on this machine, from `plan calibrate`, instead of the profiles'",
            Words::kFile);
  set.Value(&network, "--network", "NAME",
            "fluid (default: own solver, fast) or simgrid (the library, where it was built in)",
            Words::kList, NamesOf<net::Backend>(kNetworkNames));
  set.Value(
      &algorithm, "--algorithm", "NAME",
      "fixed algorithm, as by NCCL_ALGO (default: NCCL's choice between nodes, else the fastest)",
      Words::kList, AlgorithmNames());
  set.Value(&nccl_release, "--nccl-release", "VERSION",
            fmt::format("by whose rules NCCL chooses between nodes, 2.{} to 2.{} (default {}; with "
                        "--nccl and a log: the log's)",
                        nccl::kFirstMinor, nccl::kLastMinor, nccl::ReleaseText(nccl::kOwnRelease)));
  set.Group("The output");
  set.Value(&log, "--log", "FILE", "output of nccl-tests there: compares measured with predicted",
            Words::kFile);
  set.Value(&nccl, "--nccl", "FILE",
            "with --simulate: a log with NCCL_DEBUG=INFO, or a dump of NCCL's topology or graphs: "
            "compares its choices and channels with the twin's (calib/nccl-logs.md)",
            Words::kFile);
  DeclareJson(&json, &set, "bench");
}

namespace {

void FillFromScenario(BenchFlags* flags) {
  const SourcePtr source = ReadSource(flags->from.text);
  Diagnostics diagnostics;
  const Node root = Node::Parse(source, &diagnostics);
  diagnostics.ThrowIfAny();
  root.String("description");
  if (!root.Has("bench"))
    throw InputError({{{source, 1, 1},
                       fmt::format("{} is no benchmark of messages", source->name),
                       fmt::format("plan predict --from {}", source->name)}});
  // Keys are the words for which nccl-tests has letters. What is of the cluster alone means nothing to ranks here.
  Flag unused[3];
  const bool here = !flags->simulate.given;
  const std::pair<const char*, Flag*> rows[] = {
      {"--collective", &flags->collective},
      {"--begin", &flags->begin},
      {"--end", &flags->end},
      {"--factor", &flags->factor},
      {"--step", &flags->step},
      {"--type", &flags->type},
      {"--topology", here ? &unused[0] : &flags->topology},
      {"--nodes", here ? &unused[1] : &flags->nodes},
      {"--gpus-per-node", here ? &unused[2] : &flags->gpus_per_node},
      {"--ranks", &flags->ranks},
      {"--iterations", &flags->iterations}};
  std::vector<Flag*> all;
  std::vector<std::string> names;
  for (const auto& [name, flag] : rows) {
    names.push_back(flag->name);
    flag->name = name;
    all.push_back(flag);
  }
  if (here) FillFlags(root, "run", all);
  (void)root.Has("run");
  FillFlags(root, "bench", all);
  for (std::size_t i = 0; i < all.size(); ++i) all[i]->name = names[i];
  root.RejectUnknownKeys();
  diagnostics.ThrowIfAny();
}

// "nvlstree" of "NVLSTree" and "nvls-tree".
std::string Letters(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (c != '-' && c != '_')
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return letters;
}

// Algorithms may be spelled as NCCL_ALGO spells them.
void TakeAlgorithm(Flag* algorithm) {
  if (!algorithm->given) return;
  const std::string letters = Letters(algorithm->text);
  for (const std::string& name : AlgorithmNames()) {
    if (Letters(name) == letters) algorithm->text = name;
  }
  if (letters == "pat" || letters.starts_with("collnet"))
    AtFlag(*algorithm, [&] {
      throw InputError(fmt::format("algorithm '{}' has no price here", algorithm->text),
                       "leave it out: what NCCL gives to PAT or CollNet is priced as the fastest "
                       "of the others");
    });
}

}  // namespace

void TakeBenchScenario(BenchFlags* flags) {
  if (flags->from.given) AtFile(flags->from, "a scenario", [&] { FillFromScenario(flags); });
  TakeAlgorithm(&flags->algorithm);
}

Description DescribeBench() { return BenchFlags().set.Describe(); }

Sweep ReadSweep(const BenchFlags& flags) {
  Diagnostics diagnostics;
  Sweep sweep;
  sweep.collective = ReadCollective(flags.collective, &diagnostics);
  if (const auto index = ReadName(flags.type, TypeNames(), &diagnostics))
    sweep.type = kTypes[*index];
  ReadName(flags.algorithm, AlgorithmNames(), &diagnostics);
  sweep.bytes = ReadSizes(flags, &diagnostics);
  diagnostics.ThrowIfAny();
  return sweep;
}

bool ParseSize(const std::string& text, int64_t* bytes) {
  std::string_view digits = text;
  if (digits.ends_with("iB")) digits.remove_suffix(2);
  const bool binary = digits.size() < text.size();
  int shift = 0;
  constexpr std::string_view kSuffixes = "KMGT";
  if (!digits.empty()) {
    const char last = static_cast<char>(std::toupper(static_cast<unsigned char>(digits.back())));
    const std::size_t at = kSuffixes.find(last);
    if (at != std::string_view::npos) {
      shift = 10 * (static_cast<int>(at) + 1);
      digits.remove_suffix(1);
    }
  }
  if (binary && shift == 0) return false;
  double number = 0;
  if (ParseNumber(digits, &number) != NumberFault::kNone || number < 0) return false;
  const double value = std::floor(std::ldexp(number, shift));
  *bytes = value < std::ldexp(1.0, 62) ? static_cast<int64_t>(value) : int64_t{1} << 62;
  return true;
}

FittedSize FitSize(Collective collective, int64_t bytes, int ranks, const ElementType& type) {
  const int64_t count = bytes / type.bytes;
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kSendRecv:
      return {count * type.bytes, count};
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      break;
  }
  const int64_t whole = std::max<int64_t>(1, 16 / type.bytes);
  const int64_t part = count / ranks / whole * whole;
  return {part * ranks * type.bytes, part};
}

std::string NcclProgram(Collective collective) {
  return collective == Collective::kAllToAll ? "alltoall_perf"
                                             : fmt::format("{}_perf", Name(collective));
}

const char* ReductionOf(Collective collective) {
  const bool reduces =
      collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
  return reduces ? "sum" : "none";
}

int RootOf(Collective collective) { return collective == Collective::kBroadcast ? 0 : -1; }

}  // namespace orrery::cli
