// SPDX-License-Identifier: Apache-2.0
// What the logs and traces of training programs measured, in one shape.
//
// Text logs (one parser each): Megatron-LM, DeepSpeed, torchtitan, nanotron, HuggingFace's Trainer, llm.c, nanoGPT, `plan run`,
// CSV with units in its header. JSON: Chrome traces of PyTorch's profiler (Kineto) and of this project, this project's
// records. A line that looks like a measurement and is none is counted and named; a file without a
// single measurement is an InputError. Rows may stand among other output and behind prefixes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/base/diagnostics.h"

namespace orrery::measured {

// What the allocator of one rank held in a step.
struct RankPeak {
  int64_t rank = 0;
  bool local = false;  // of its node, as torchrun counts
  int64_t task = -1;   // of srun --label, which starts the ranks of a node; -1: not said
  double bytes = 0;
  int line = 0;
};

// What the allocators held in a step: the most of the ranks that say it.
struct PeakMemory {
  std::optional<double> bytes;
  int line = 0;
  std::vector<RankPeak> ranks;  // empty: nobody says whose they are

  void Say(double peak, int at) { bytes = peak, line = at; }
  void Join(const PeakMemory& other);
};

// How long a rank took for a step, where each prints a line of its own.
struct RankTime {
  int64_t rank = 0;
  bool local = false;  // as of RankPeak
  int64_t task = -1;
  double taken =
      0;  // seconds, or those of one unit of a throughput: to be held against others of this step
};

// A line on a step, or on the mean of several; at least one of the figures is there. Where each rank prints a line, one
// sample is the step of all: the slowest rank's figures, the largest peak.
struct StepSample {
  int64_t step = -1;              // as the log counts; -1: it does not
  int64_t steps = 1;              // that its figures are means of, where the program says
  std::optional<double> seconds;  // of one optimizer step
  std::optional<double> samples_per_s, tokens_per_s;
  std::optional<double> tokens_per_s_of_gpu;  // where the program prints it for one GPU
  bool disturbed = false;                     // other programs took a core
  bool running_mean = false;                  // samples_per_s: of all steps so far, not of this one
  std::optional<double> samples;              // of one step: the global batch
  std::optional<double> loss;                 // absent: not printed, or no number
  std::optional<double> mfu;                  // 0 to 1, by the program's own convention
  std::optional<double> flops_per_gpu;        // FLOP/s, likewise
  std::optional<double>
      peak_share;  // of a prediction: mfu without what masks leave out, which no step has above 1
  std::vector<RankTime> ranks;     // empty: nobody says whose line it is
  PeakMemory allocated, reserved;  // handed out; with the free blocks that the allocator keeps
  int line = 0;
  int first = 0;  // of the lines of several ranks; 0: there is one
  int FirstLine() const { return first > 0 ? first : line; }
};

// A named part of a step as the program's timers saw it.
struct TermSample {
  std::string name;  // "forward_microstep"
  double seconds = 0;
  int64_t rank = -1;  // -1: not said
  int line = 0;
};

// The name of a rank's time that Megatron's --log-straggler says of the fastest and the slowest rank alone.
inline constexpr char kStragglerTimer[] = "straggler";

// What a kernel or an operation works at.
enum class Work {
  kProduct,
  kAttention,
  kElementwise,
  kOptimizer,
  kCollective,
  kPointToPoint,
  kCopy,
  kOther
};
inline constexpr int kWorks = 8;
std::span<const std::pair<const char*, Work>> WorkNames();  // "product", in the order of the enum
const char* Name(Work work);

// One operation of a trace.
struct SpanSample {
  std::string name;
  Work work = Work::kOther;
  int64_t rank = 0;
  std::string stream;  // "stream 0 compute", or the thread's number
  std::string phase;   // "fwd"; "": the trace does not say
  std::string term;    // of the step's breakdown; "": likewise
  double begin = 0;    // seconds on the trace's clock
  double seconds = 0;
  int line = 0;
};

enum class LogFormat {
  kMegatron,
  kDeepSpeed,
  kLlmC,
  kNanoGpt,
  kCsv,
  kTrace,   // of PyTorch's profiler or of this project
  kRecord,  // --json of plan run, simulate, predict, export
  kTorchtitan,
  kTrainer,  // of HuggingFace
  kNanotron,
  kRunText,  // what plan run and exported PyTorch programs print
  kNccl,     // nccl-tests; read with ReadNcclLog
};
std::span<const std::pair<const char*, LogFormat>> LogFormatNames();  // in the order of the enum
const char* Name(LogFormat format);

// What a step works on, over all GPUs; 0: not known.
struct StepSize {
  double samples = 0, tokens = 0;
  double gpus = 0;
};

// Seconds of a step: as printed, else its work over the throughput (of a GPU x GPUs; tokens; samples, by the log's own
// global batch where it prints one). Absent: the log or `size` does not say enough. A running mean counts like any other.
std::optional<double> SecondsOf(const StepSample& step, const StepSize& size);

struct TrainingLog {
  SourcePtr source;
  LogFormat format = LogFormat::kCsv;
  bool own = false;                                   // written by this project
  bool measured = false;                              // a record of plan run
  std::string digest;                                 // of the plan; "": not said
  std::string precision, optimizer;                   // of the job: "bf16", "adam"; "": likewise
  std::optional<std::pair<double, double>> interval;  // seconds of a step, of predictions
  StepSize size;                                      // likewise, and of plan run
  std::vector<StepSample> steps;
  std::vector<TermSample> terms;
  std::vector<SpanSample> spans;
  std::vector<Diagnostic> garbled;  // the first hundred of them
  int64_t garbled_lines = 0;
};

// By content, never by name. Throws InputError: nothing that is known.
LogFormat FormatOf(const SourcePtr& source);

// A file, also one that gzip compressed.
SourcePtr ReadLogSource(const std::string& path);

// Reads any of them but kNccl, which is refused with a hint. Throws InputError.
TrainingLog ReadTrainingLog(const SourcePtr& source);

TrainingLog ReadMegatron(const SourcePtr& source);
TrainingLog ReadDeepSpeed(const SourcePtr& source);
TrainingLog ReadLlmC(const SourcePtr& source);
TrainingLog ReadNanoGpt(const SourcePtr& source);
TrainingLog ReadStepCsv(const SourcePtr& source);
TrainingLog ReadTorchtitan(const SourcePtr& source);
TrainingLog ReadTrainer(const SourcePtr& source);
TrainingLog ReadNanotron(const SourcePtr& source);
TrainingLog ReadRunText(const SourcePtr& source);
bool IsRunLine(std::string_view line);  // a step of one of these
TrainingLog ReadTrace(const SourcePtr& source);
TrainingLog ReadRecord(const SourcePtr& source);

// Median seconds of a step; several steps: without the first, which warms up, and without disturbed ones where others are
// left. Throughput tells it where no step is timed and `size` says of what work; means since the start do not. Absent: none.
std::optional<double> MedianStep(const TrainingLog& log, const StepSize& size = {});

// Shared by the readers.
[[noreturn]] void RefuseLog(const SourcePtr& source, const std::string& why,
                            const std::string& hint);
void AddGarbled(int line, int column, const std::string& why, TrainingLog* log);
void FinishLog(const std::string& hint, TrainingLog* log);  // throws when nothing was measured

}  // namespace orrery::measured
