// SPDX-License-Identifier: Apache-2.0
// From flags to cases, their times, a table and a CSV.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>

#include "model/base/write_file.h"
#include "runtime/program/bench/bench_cases.h"
#include "runtime/program/bench/bench_command.h"
#include "runtime/program/common/device.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;
using measured::KernelSample;

constexpr std::size_t kAfterBench = 2;
constexpr const char* kKernels[] = {"gemm", "attention", "memory"};
constexpr std::pair<const char*, ir::Dtype> kDtypes[] = {
    {"fp32", ir::Dtype::kF32}, {"bf16", ir::Dtype::kBf16}, {"fp16", ir::Dtype::kF16}};
constexpr const char* kDefaultModel = "gpt2-small";
constexpr int64_t kDefaultTokens = 1024;
constexpr int64_t kMostTokens = int64_t{1} << 24;

struct KernelFlags {
  cli::Flag kernel, model, tokens, dtype, device, seconds, total, output;
  cli::FlagSet set{"bench gemm|attention|memory [flags]",
                   "Times the kernels of `plan run`, one at a time, at the shapes of a model's "
                   "plan: matrix products, attention, or norms and activations. --output writes "
                   "the CSV that `plan calibrate` reads.",
                   {"plan bench gemm --model gpt2-small --tokens 512",
                    "plan bench attention --dtype bf16 --output attention.csv"}};

  KernelFlags() {
    set.Positional(&kernel, "KERNEL", "gemm, attention or memory", cli::Words::kList,
                   {std::begin(kKernels), std::end(kKernels)});
    set.Value(&model, "--model", "NAME", "model that gives the shapes (default gpt2-small)",
              cli::Words::kModel);
    set.Value(&tokens, "--tokens", "N",
              "tokens per micro-batch, at least one sequence (default 1024)");
    set.Value(&dtype, "--dtype", "TYPE", "fp32 (default), bf16 or fp16", cli::Words::kList,
              {"fp32", "bf16", "fp16"});
    set.Value(&device, "--device", "KIND", "cpu (default) or cuda: the first GPU",
              cli::Words::kList, {"cpu", "cuda"});
    set.Value(&seconds, "--each", "MILLISECONDS", "time per kernel (default 200)");
    set.Value(&total, "--total", "SECONDS", "start no kernel after this time (default 120)");
    set.Output(&output, "--output", "FILE", "also as CSV", "date,script,device,");
  }
};

struct KernelJob {
  std::string kernel, model, output;
  int64_t tokens = kDefaultTokens;
  ir::Dtype dtype = ir::Dtype::kF32;
  double seconds = 0.2, total_s = 120;
};

KernelJob ReadJob(const KernelFlags& flags) {
  KernelJob job;
  Diagnostics diagnostics;
  const std::vector<std::string> kernels(std::begin(kKernels), std::end(kKernels));
  job.kernel = kernels[cli::ReadName(flags.kernel, kernels, &diagnostics).value_or(0)];
  job.model = flags.model.given ? flags.model.text : kDefaultModel;
  job.output = flags.output.text;
  job.tokens =
      cli::ReadInteger(flags.tokens, 1, kMostTokens, &diagnostics).value_or(kDefaultTokens);
  job.dtype =
      cli::ReadChoice<ir::Dtype>(flags.dtype, kDtypes, &diagnostics).value_or(ir::Dtype::kF32);
  job.seconds = 1e-3 * static_cast<double>(
                           cli::ReadInteger(flags.seconds, 1, 60000, &diagnostics).value_or(200));
  job.total_s =
      static_cast<double>(cli::ReadInteger(flags.total, 1, 1000000, &diagnostics).value_or(120));
  diagnostics.ThrowIfAny();
  return job;
}

// Fused activations are no op of their own here: their product stands there without them.
std::vector<BenchCase> CasesOf(const KernelJob& job) {
  const LoadedModel model = LoadModel(job.model);
  const std::vector<ModelShape> shapes = ShapesOf(model, job.model, job.tokens);
  std::vector<BenchCase> cases;
  std::set<int64_t> widths;
  for (const ModelShape& row : shapes) {
    const DeviceShape& shape = row.shape;
    if (!shape.attention && shape.epilogue.ends_with("gelu")) continue;
    if (job.kernel == "gemm" && !shape.attention) cases.push_back(ProductCase(shape, job.dtype));
    if (job.kernel == "attention" && shape.attention && shape.seq_q == shape.seq_kv)
      cases.push_back(AttentionCase(shape, job.dtype));
  }
  if (job.kernel != "memory") return cases;
  for (const int64_t width : {model.spec.hidden, model.spec.ffn}) {
    if (widths.insert(width).second) {
      std::vector<BenchCase> more = MemoryCases(job.tokens, width, job.dtype);
      std::move(more.begin(), more.end(), std::back_inserter(cases));
    }
  }
  return cases;
}

std::string ShapeText(const KernelSample& row) {
  if (row.kind == measured::KernelKind::kAttention) {
    return fmt::format("{} x {} heads ({} of keys) x {} x {}{}", row.batch, row.heads, row.kv_heads,
                       row.seq_q, row.head_dim, row.causal ? ", causal" : "");
  }
  if (row.kind == measured::KernelKind::kMemory) return fmt::format("{} x {}", row.m, row.n);
  return fmt::format("{} x {} x {} {}", row.m, row.n, row.k, row.epilogue);
}

std::string RowText(const KernelSample& row) {
  return fmt::format("{:<15} {:<44} {:>11.2f} {:>11.2f} {:>9.2f} {:>9.2f} {:>6}\n", row.op,
                     ShapeText(row), 1e6 * row.seconds, 1e6 * (row.high_s - row.low_s),
                     1e-9 * row.flops / row.seconds, 1e-9 * row.bytes / row.seconds, row.calls);
}

std::string Heading(const KernelJob& job, const std::string& device) {
  return fmt::format(
      "{} of {}, {} tokens, {} on {}\n{:<15} {:<44} {:>11} {:>11} {:>9} {:>9} {:>6}\n", job.kernel,
      job.model, job.tokens,
      kDtypes[0].second == job.dtype   ? "fp32"
      : kDtypes[1].second == job.dtype ? "bf16"
                                       : "fp16",
      device, "op", "shape", "median us", "80% us", "GFLOP/s", "GB/s", "calls");
}

std::string Today() {
  return fmt::format(
      "{:%Y-%m-%dT%H:%M:%SZ}",
      fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

std::unique_ptr<bench::KernelDevice> OpenDevice(const cli::Flag& flag, int64_t bytes) {
  cli::RankJob one;
  cli::ReadDeviceFlag(flag, 1, static_cast<double>(bytes), &one);
  return one.on_cuda ? bench::MakeKernelDevice(cli::OpenAccelerator(one, 0), bytes)
                     : bench::MakeCpuDevice(bytes);
}

void WriteCsv(const std::string& path, const std::vector<KernelSample>& rows) {
  if (const std::string why = WriteTextFile(path, measured::KernelCsv(rows, "plan bench"));
      !why.empty())
    throw InputError(fmt::format("cannot write '{}': {}", path, why), "choose another --output");
}

}  // namespace

bool BenchesKernels(const cli::CommandLine& line) {
  if (line.words().size() <= kAfterBench) return false;
  const std::string& word = line.words()[kAfterBench];
  return std::find(std::begin(kKernels), std::end(kKernels), word) != std::end(kKernels);
}

cli::Answer BenchKernels(const cli::CommandLine& line) {
  KernelFlags flags;
  if (flags.set.Parse(line, kAfterBench)) return {cli::ExitCode::kOk, flags.set.Describe().help};
  const KernelJob job = ReadJob(flags);
  std::vector<BenchCase> cases = CasesOf(job);
  int64_t bytes = 0;
  for (const BenchCase& one : cases) bytes = std::max(bytes, bench::ArenaBytes(one.run));
  const auto device = OpenDevice(flags.device, bytes);
  fmt::print("{}", Heading(job, device->Name()));
  const std::string driver = flags.device.text == "cuda" ? cli::DriverText() : "";
  std::vector<KernelSample> rows;
  const auto until = Clock::now() + std::chrono::duration<double>(job.total_s);
  for (BenchCase& one : cases) {
    if (Clock::now() > until) break;
    const bench::KernelTime time = bench::TimeKernel(one.run, device.get(), job.seconds);
    KernelSample& row = one.row;
    row.seconds = time.seconds;
    row.low_s = time.low;
    row.high_s = time.high;
    row.calls = time.calls;
    row.device = device->Name();
    row.library = "orrery";
    row.driver = driver;
    row.date = Today();
    rows.push_back(row);
    fmt::print("{}", RowText(row));
    std::fflush(stdout);
    if (!job.output.empty()) WriteCsv(job.output, rows);
  }
  const std::size_t left = cases.size() - rows.size();
  return {cli::ExitCode::kOk,
          left == 0 ? "" : fmt::format("{} kernels not timed: --total is reached\n", left)};
}

}  // namespace orrery
