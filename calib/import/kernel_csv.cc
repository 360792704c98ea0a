// SPDX-License-Identifier: Apache-2.0
// Rows of timed operations: columns by name, each kind with what it needs.
#include "calib/import/kernel_csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery::measured {
namespace {

constexpr int64_t kMostWidth = int64_t{1} << 48;
constexpr double kMostAmount = 1e24;
constexpr double kLongest = 1e6;  // seconds of one call

constexpr std::pair<const char*, KernelKind> kKinds[] = {
    {"gemm", KernelKind::kGemm},           {"grouped", KernelKind::kGrouped},
    {"attention", KernelKind::kAttention}, {"memory", KernelKind::kMemory},
    {"optimizer", KernelKind::kOptimizer}, {"launch", KernelKind::kLaunch}};
constexpr const char* kDtypeNames[] = {"bf16", "fp16", "tf32", "fp32"};

class KernelRow {
 public:
  KernelRow(const CsvTable& table, std::size_t row, Diagnostics* diagnostics)
      : table_(table), row_(row), diagnostics_(diagnostics) {}

  KernelSample Read() {
    sample_.where = table_.where(row_, "kind");
    ReadNames();
    ReadShape();
    sample_.bytes = Amount("bytes", kMostAmount);
    sample_.flops = Amount("flops", kMostAmount);
    sample_.seconds = Amount("seconds", kLongest);
    sample_.low_s = Amount("low_s", kLongest);
    sample_.high_s = Amount("high_s", kLongest);
    sample_.calls = Whole("calls", 0);
    sample_.sm_mhz = Amount("sm_mhz", 1e6);
    if (table_.Text(row_, "seconds").empty() || sample_.seconds <= 0)
      Complain("seconds", "a row without a time", "seconds of one call, above 0");
    return std::move(sample_);
  }

 private:
  void ReadNames() {
    const std::string& kind = table_.Text(row_, "kind");
    const auto* known = std::find_if(std::begin(kKinds), std::end(kKinds),
                                     [&](const auto& row) { return kind == row.first; });
    if (known == std::end(kKinds)) {
      std::vector<std::string> names;
      for (const auto& [name, unused] : kKinds) names.emplace_back(name);
      Complain("kind", fmt::format("'{}' is no kind of operation", kind), SuggestName(kind, names));
    } else {
      sample_.kind = known->second;
    }
    sample_.op = table_.Text(row_, "op");
    sample_.dtype = table_.Text(row_, "dtype");
    const std::vector<std::string> dtypes(std::begin(kDtypeNames), std::end(kDtypeNames));
    const bool timed_alone = sample_.kind == KernelKind::kLaunch && sample_.dtype.empty();
    if (!timed_alone && std::find(dtypes.begin(), dtypes.end(), sample_.dtype) == dtypes.end())
      Complain("dtype", fmt::format("'{}' is no type of operands", sample_.dtype),
               SuggestName(sample_.dtype, dtypes));
    for (const auto& [column, text] : {std::pair{"epilogue", &sample_.epilogue},
                                       {"algorithm", &sample_.algorithm},
                                       {"device", &sample_.device},
                                       {"driver", &sample_.driver},
                                       {"library", &sample_.library},
                                       {"date", &sample_.date}})
      *text = table_.Text(row_, column);
  }

  void ReadShape() {
    sample_.m = Whole("m", 0);
    sample_.n = Whole("n", 0);
    sample_.k = Whole("k", 0);
    sample_.batch = Whole("batch", 1);
    sample_.heads = Whole("heads", 0);
    sample_.kv_heads = Whole("kv_heads", sample_.heads);
    sample_.seq_q = Whole("seq_q", 0);
    sample_.seq_kv = Whole("seq_kv", sample_.seq_q);
    sample_.head_dim = Whole("head_dim", 0);
    sample_.causal = Whole("causal", 0) != 0;
    const auto need = [&](std::initializer_list<std::pair<const char*, int64_t>> columns) {
      for (const auto& [column, value] : columns) {
        if (value <= 0)
          Complain(column, fmt::format("{} without {}", Name(sample_.kind), column),
                   "a whole number above 0");
      }
    };
    if (sample_.kind == KernelKind::kGemm || sample_.kind == KernelKind::kGrouped) {
      need({{"m", sample_.m}, {"n", sample_.n}, {"k", sample_.k}, {"batch", sample_.batch}});
    } else if (sample_.kind == KernelKind::kAttention) {
      need({{"batch", sample_.batch},
            {"heads", sample_.heads},
            {"seq_q", sample_.seq_q},
            {"head_dim", sample_.head_dim}});
    } else if (sample_.kind == KernelKind::kMemory && Amount("bytes", kMostAmount) <= 0) {
      Complain("bytes", "memory-bound operation without bytes", "what is read and written, once");
    }
  }

  double Amount(const char* column, double most) const {
    return table_.Number(row_, column, 0, most).value_or(0);
  }
  int64_t Whole(const char* column, int64_t otherwise) const {
    return table_.Integer(row_, column, 0, kMostWidth).value_or(otherwise);
  }
  void Complain(const char* column, const std::string& message, const std::string& hint) {
    Location where = table_.where(row_, table_.HasColumn(column) ? column : "kind");
    diagnostics_->Error(std::move(where), message, hint);
  }

  const CsvTable& table_;
  std::size_t row_;
  Diagnostics* diagnostics_;
  KernelSample sample_;
};

// 0: an empty cell.
std::string Whole(int64_t value) { return value == 0 ? "" : std::to_string(value); }
std::string Amount(double value) { return value == 0 ? "" : fmt::format("{}", value); }

std::string Quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

const char* Name(KernelKind kind) { return kKinds[static_cast<std::size_t>(kind)].first; }

const std::vector<std::string>& KernelColumns() {
  static const std::vector<std::string> kColumns = {
      "date",  "script", "device",   "driver", "library", "sm_mhz",   "kind",
      "op",    "m",      "n",        "k",      "batch",   "heads",    "kv_heads",
      "seq_q", "seq_kv", "head_dim", "causal", "dtype",   "epilogue", "algorithm",
      "bytes", "flops",  "seconds",  "low_s",  "high_s",  "calls",    "note"};
  return kColumns;
}

bool IsKernelHeader(std::string_view header) {
  const std::string columns =
      fmt::format(",{},", header.substr(0, header.find_last_not_of("\r") + 1));
  const auto has = [&](const char* column) { return columns.find(column) != std::string::npos; };
  return (has(",kind,") && has(",seconds,")) || (has(",op,") && has(",shape,") && has(",tflops,"));
}

std::vector<KernelSample> ReadKernelCsv(const SourcePtr& source) {
  const std::string header = source->text.substr(0, source->text.find('\n'));
  if (header.find("kind") == std::string::npos && IsKernelHeader(header))
    return ReadShapeCsv(source);
  Diagnostics diagnostics;
  const CsvTable table = CsvTable::Parse(source, {"kind", "op", "dtype", "seconds"}, &diagnostics);
  diagnostics.ThrowIfAny();
  std::vector<KernelSample> samples;
  samples.reserve(table.rows());
  for (std::size_t i = 0; i < table.rows(); ++i)
    samples.push_back(KernelRow(table, i, &diagnostics).Read());
  if (samples.empty())
    diagnostics.Error({source, 0, 0}, "no timed operation in it", "a row per operation");
  diagnostics.ThrowIfAny();
  return samples;
}

std::string KernelCsv(const std::vector<KernelSample>& samples, const std::string& script) {
  std::string text = fmt::format("{}\n", fmt::join(KernelColumns(), ","));
  for (const KernelSample& s : samples) {
    const bool attention = s.kind == KernelKind::kAttention;
    const bool batched = attention || s.kind == KernelKind::kGemm || s.kind == KernelKind::kGrouped;
    text += fmt::format("{},{},{},{},{},{},{},{},", s.date, script, Quoted(s.device), s.driver,
                        Quoted(s.library), Amount(s.sm_mhz), Name(s.kind), s.op);
    text += fmt::format("{},{},{},{},", Whole(s.m), Whole(s.n), Whole(s.k),
                        Whole(batched ? s.batch : 0));
    text +=
        fmt::format("{},{},{},{},{},{},", Whole(s.heads), Whole(s.kv_heads), Whole(s.seq_q),
                    Whole(s.seq_kv), Whole(s.head_dim), attention ? (s.causal ? "1" : "0") : "");
    text += fmt::format("{},{},{},{},{},{},{},{},{},\n", s.dtype, s.epilogue, s.algorithm,
                        Amount(s.bytes), Amount(s.flops), Amount(s.seconds), Amount(s.low_s),
                        Amount(s.high_s), Whole(s.calls));
  }
  return text;
}

}  // namespace orrery::measured
