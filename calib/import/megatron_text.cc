// SPDX-License-Identifier: Apache-2.0
// Reads the iteration lines of Megatron-LM and Megatron-DeepSpeed, and their timers.
//
//   iteration 100/ 500 | consumed samples: 800 | elapsed time per iteration (ms): 537.3 | ...
// Older versions print "lm loss 7.4" without a colon, newer ones a date in front, throughput per
// GPU behind the time; Megatron-DeepSpeed has seconds, samples per second and TFLOPs. Timers:
//   time (ms) | forward-compute: 123.4 | backward-compute: 234.5 |
//   (min, max) time across ranks (ms):
//       forward-backward ...............: (498.12, 499.87)
// With --timing-log-option all those of each rank, with --log-straggler the fastest and the slowest rank:
//   times across ranks (ms):
//     forward-backward:
//        rank  0: 498.12
//   ... | MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: 3468.20ms/0 | ...
// Memory of the allocator, once behind the first interval and by the first rank of each replica:
//   [Rank 0] (after 10 iterations) memory (MB) | allocated: 9091.7 | max allocated: 10234.2 | ...
// Lines of several ranks that a launcher labels ("0: ", "[rank2]:", "[default2]:") are one sample of their step.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "calib/import/log_lines.h"
#include "calib/import/rank_lines.h"
#include "calib/import/training_log.h"

namespace orrery::measured {
namespace {

constexpr std::string_view kElapsed = "elapsed time per iteration";
constexpr std::string_view kRangeTitle = "time across ranks (ms)";
constexpr std::string_view kRanksTitle = "times across ranks (ms)";

// "lm loss: 7.4" or "lm loss 7.4".
struct Field {
  std::string_view key, value;
};
Field SplitField(std::string_view text) {
  std::size_t at = text.rfind(':');
  if (at == std::string_view::npos) at = text.rfind(' ');
  if (at == std::string_view::npos) return {text, ""};
  return {Trimmed(text.substr(0, at)), Trimmed(text.substr(at + 1))};
}

class MegatronReader {
 public:
  explicit MegatronReader(const SourcePtr& source) {
    log_.source = source;
    log_.format = LogFormat::kMegatron;
  }

  TrainingLog Read() {
    ForEachLine(*log_.source, [&](const LogLine& line) { ReadLine(line); });
    PlacePeaks();
    FinishLog(
        "Megatron-LM prints a line 'iteration N/ M | ... | elapsed time per iteration (ms): T'",
        &log_);
    return std::move(log_);
  }

 private:
  void ReadLine(const LogLine& line) {
    const bool in_ranks = std::exchange(in_ranks_, false);
    if (Contains(line.text, kRangeTitle)) {
      in_ranges_ = true;
    } else if (Contains(line.text, kRanksTitle)) {
      in_ranks_ = true;
      in_ranges_ = false;
      timer_.clear();
    } else if (Contains(line.text, "MxRtt/Rnk:")) {
      ReadStragglers(line);
    } else if (Contains(line.text, "time (ms) |")) {
      ReadTimers(line);
    } else if (Contains(line.text, "memory (MB) |")) {
      ReadMemory(line);
    } else if (Contains(line.text, kElapsed) || StartsRow(line.text)) {
      in_ranges_ = false;
      ReadRow(line);
    } else if (in_ranges_) {
      in_ranges_ = ReadRange(line);
    } else if (in_ranks) {
      in_ranks_ = ReadRank(line);
    }
  }

  static bool StartsRow(std::string_view text) {
    const std::size_t at = FindCounted(text, "iteration");
    if (at == std::string_view::npos) return false;
    LineCursor cursor(text.substr(at));
    return cursor.Literal("iteration") && cursor.Whole() && cursor.Literal("/") &&
           Contains(text, "|");
  }

  void Garbled(const LogLine& line, std::string_view part, const std::string& why) {
    const auto offset = part.empty() ? 0 : part.data() - line.text.data();
    AddGarbled(line.number, line.column + static_cast<int>(offset), why, &log_);
  }

  void ReadRow(const LogLine& line) {
    StepSample step;
    step.line = line.number;
    const std::vector<std::string_view> fields = SplitAt(line.text, '|');
    LineCursor cursor(fields[0]);
    if (cursor.Behind("iteration")) step.step = cursor.Whole().value_or(-1);
    if (step.step < 0) return Garbled(line, "", "an iteration line without its number");
    for (std::size_t i = 1; i < fields.size(); ++i) {
      if (!ReadField(SplitField(fields[i]), &step)) {
        return Garbled(line, fields[i],
                       fmt::format("'{}' is no time or rate above zero", fields[i].substr(0, 60)));
      }
    }
    if (!step.seconds)
      return Garbled(line, "", "an iteration line without 'elapsed time per iteration'");
    CountSamples(fields, &step);
    const std::string_view label = line.text.substr(0, line.text.find("iteration"));
    const Printer local = PrinterOf(label);
    const bool of_node = local.rank >= 0;
    const Printer printer = of_node ? local : Printer{-1, RankOfAll(label)};
    if (printer.rank < 0) return log_.steps.push_back(std::move(step));
    if (!lines_) lines_.emplace(&log_, !of_node);
    lines_->Add(printer, TimeIn(label), std::move(step));
  }

  // Releases that print no global batch size count the samples so far.
  void CountSamples(const std::vector<std::string_view>& fields, StepSample* step) {
    for (const std::string_view text : fields) {
      const auto [key, value] = SplitField(text);
      const auto consumed = key == "consumed samples" ? AmountIn(value) : std::nullopt;
      if (!consumed) continue;
      const auto steps = static_cast<double>(step->step - consumed_step_);
      const double each = consumed_ && steps > 0 ? (*consumed - *consumed_) / steps : 0;
      if (!step->samples && each > 0) step->samples = each;
      consumed_ = consumed;
      consumed_step_ = step->step;
    }
  }

  // False: the field is one that counts and cannot be read.
  static bool ReadField(const Field& field, StepSample* step) {
    const auto [key, value] = field;
    const auto positive = [&](double unit) { return DurationIn(value, unit); };
    if (key == "elapsed time per iteration (ms)")
      return (step->seconds = positive(1e-3)).has_value();
    if (key == "elapsed time per iteration (s)") return (step->seconds = positive(1)).has_value();
    if (key == "global batch size") {
      step->samples = AmountIn(value);
      return step->samples && *step->samples > 0;
    }
    if (key == "lm loss") step->loss = AmountIn(value);  // "nan" is none
    if (key == "samples per second") step->samples_per_s = AmountIn(value);
    if (key == "throughput per GPU (TFLOP/s/GPU)" || key == "TFLOPs") {
      const auto tera = AmountIn(value);
      if (tera) step->flops_per_gpu = *tera * 1e12;
    }
    return true;
  }

  void ReadTimers(const LogLine& line) {
    const std::size_t from = line.text.find("time (ms) |") + 11;
    const int64_t rank = PrinterOf(line.text).rank >= 0 ? -1 : RankOfAll(line.text);
    bool any = false;
    for (const std::string_view text : SplitAt(line.text.substr(from), '|')) {
      if (text.empty()) continue;
      const Field field = SplitField(text);
      const std::optional<double> ms = AmountIn(field.value);
      if (!ms || *ms < 0 || *ms > kLongestSeconds * 1e3)
        return Garbled(line, text, fmt::format("'{}' is no timer", text.substr(0, 60)));
      log_.terms.push_back({std::string(field.key), *ms * 1e-3, rank, line.number});
      any = true;
    }
    if (!any) Garbled(line, "", "a line of timers without one");
  }

  // The largest of what its ranks say stands at the row of the same step.
  void ReadMemory(const LogLine& line) {
    LineCursor cursor(line.text);
    const auto step = cursor.Behind("(after") ? cursor.Whole() : std::nullopt;
    LineCursor label(line.text);
    const auto rank = label.Behind("[Rank ") ? label.Whole() : std::nullopt;
    for (const std::string_view text : SplitAt(line.text, '|')) {
      const Field field = SplitField(text);
      const bool reserved = field.key == "max reserved";
      if (field.key != "max allocated" && !reserved) continue;
      const auto mebibytes = AmountIn(field.value);
      constexpr double kMost = 1e9;  // a pebibyte
      if (!mebibytes || *mebibytes <= 0 || *mebibytes > kMost)
        return Garbled(line, text, fmt::format("'{}' is no memory", text.substr(0, 60)));
      PeakMemory peak;
      peak.Say(*mebibytes * 1048576, line.number);
      if (rank) peak.ranks.push_back({*rank, false, -1, *peak.bytes, line.number});
      Peaks& of_step = peaks_[step.value_or(-1)];
      (reserved ? of_step.reserved : of_step.allocated).Join(peak);
    }
  }

  // Behind its row, in front of it, or between others where ranks mix their lines.
  void PlacePeaks() {
    for (const auto& [step, peaks] : peaks_) {
      const int line = std::max(peaks.allocated.line, peaks.reserved.line);
      StepSample* at = nullptr;
      for (StepSample& row : log_.steps) {
        if (at == nullptr || row.step == step || (at->step != step && row.line < line)) at = &row;
      }
      if (at == nullptr) continue;
      Place(peaks.allocated, &at->allocated);
      Place(peaks.reserved, &at->reserved);
    }
  }
  static void Place(const PeakMemory& peak, PeakMemory* at) {
    if (peak.bytes.value_or(0) > at->bytes.value_or(0)) *at = peak;
  }

  // "forward-compute ....: (1.2, 3.4)": the slowest rank. False: the list has ended.
  bool ReadRange(const LogLine& line) {
    const std::size_t dots = line.text.find("..");
    const std::size_t colon = line.text.find(':', dots);
    if (dots == std::string_view::npos || colon == std::string_view::npos) return false;
    LineCursor cursor(line.text.substr(colon));
    std::optional<double> least, most;
    if (cursor.Literal(":") && cursor.Literal("(")) least = cursor.Number();
    if (least && cursor.Literal(",")) most = cursor.Number();
    if (!most || !cursor.Literal(")") || *most < 0 || *most > kLongestSeconds * 1e3) {
      Garbled(line, "", "a timer without '(least, most)'");
      return true;
    }
    const std::string_view name = SplitAt(line.text.substr(0, dots), ':').back();  // no prefix
    log_.terms.push_back({std::string(name), *most * 1e-3, -1, line.number});
    return true;
  }

  // Below the title: "forward-compute:", then "rank  5: 12.34" for each. False: the list has ended.
  bool ReadRank(const LogLine& line) {
    const std::size_t at = FindCounted(line.text, "rank");
    if (at == std::string_view::npos) {
      const std::string_view text = Trimmed(line.text);
      if (!text.ends_with(':')) return false;
      timer_ = SplitAt(text.substr(0, text.size() - 1), ' ').back();  // no prefix
      return true;
    }
    LineCursor cursor(line.text.substr(at));
    const auto rank = cursor.Literal("rank") ? cursor.Whole() : std::nullopt;
    if (timer_.empty() || !rank || !cursor.Literal(":")) return false;
    const std::optional<double> ms = cursor.Number();
    if (!ms || *ms < 0 || *ms > kLongestSeconds * 1e3)
      Garbled(line, "", "a timer of a rank without its milliseconds");
    else
      log_.terms.push_back({timer_, *ms * 1e-3, *rank, line.number});
    return true;
  }

  // Time in traced ops: compute, without waits for others.
  void ReadStragglers(const LogLine& line) {
    std::vector<TermSample> found;
    for (const std::string_view text : SplitAt(line.text, '|')) {
      const Field field = SplitField(text);
      if (field.key != "MnRtt/Rnk" && field.key != "MxRtt/Rnk") continue;
      LineCursor cursor(field.value);
      const std::optional<double> ms = cursor.Number();
      const auto rank =
          ms && cursor.Literal("ms") && cursor.Literal("/") ? cursor.Whole() : std::nullopt;
      if (!rank || *ms < 0 || *ms > kLongestSeconds * 1e3)
        return Garbled(line, text, fmt::format("'{}' is no time of a rank", text.substr(0, 60)));
      found.push_back({std::string(kStragglerTimer), *ms * 1e-3, *rank, line.number});
    }
    log_.terms.insert(log_.terms.end(), found.begin(), found.end());
  }

  struct Peaks {
    PeakMemory allocated, reserved;
  };

  TrainingLog log_;
  std::optional<RankLines> lines_;  // of labelled ranks
  std::map<int64_t, Peaks> peaks_;  // by step
  std::optional<double> consumed_;  // samples by the row before
  int64_t consumed_step_ = 0;
  bool in_ranges_ = false;  // below the title of a list of timers
  bool in_ranks_ = false;   // of one by rank
  std::string timer_;       // of that list
};

}  // namespace

TrainingLog ReadMegatron(const SourcePtr& source) { return MegatronReader(source).Read(); }

}  // namespace orrery::measured
