// SPDX-License-Identifier: Apache-2.0
// Finds names, releases and arguments among the lines of a log.
#include "calib/import/log_facts.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "calib/import/log_lines.h"
#include "model/plan/ir/plan.h"

namespace orrery::measured {
namespace {

constexpr std::size_t kMostArguments = 5000, kMostValue = 400, kMostDeviceNames = 16,
                      kMostPlans = 16, kMostStarts = 65536;
constexpr double kBytesPerMib = 1048576.0, kBytesPerGib = 1073741824.0;

bool IsNameLetter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

bool IsDecimal(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Digits and dots behind `word`: "2.20.5" of "NCCL version 2.20.5+cuda12.4".
std::string VersionBehind(std::string_view text, std::string_view word) {
  std::size_t at = text.find(word);
  if (at == std::string_view::npos) return "";
  at += word.size();
  while (at < text.size() && (text[at] == ' ' || text[at] == '.' || text[at] == ':')) ++at;
  std::size_t end = at;
  while (end < text.size() && (IsDecimal(text[end]) || text[end] == '.')) ++end;
  while (end > at && text[end - 1] == '.') --end;
  const std::string_view version = text.substr(at, end - at);
  return version.find('.') == std::string_view::npos ? "" : std::string(version);
}

void FillVersion(std::string_view text, std::string_view word, const char* title,
                 std::string* out) {
  if (!out->empty()) return;
  const std::string version = VersionBehind(text, word);
  if (!version.empty()) *out = title + version;
}

// "2025-02-11" anywhere in the line.
void FillDate(std::string_view text, std::string* out) {
  constexpr std::string_view kForm = "dddd-dd-dd";
  if (!out->empty()) return;
  for (std::size_t at = text.find("20"); at != std::string_view::npos;
       at = text.find("20", at + 1)) {
    const std::string_view part = text.substr(at, kForm.size());
    if (part.size() < kForm.size() || (at > 0 && IsNameLetter(text[at - 1]))) continue;
    bool fits = at + kForm.size() >= text.size() || !IsDecimal(text[at + kForm.size()]);
    for (std::size_t i = 0; i < kForm.size(); ++i)
      fits = fits && (kForm[i] == 'd' ? IsDecimal(part[i]) : part[i] == '-');
    if (fits) {
      *out = part;
      return;
    }
  }
}

// Names of devices: what follows a maker's name, or a word of a form factor.
bool IsDeviceName(std::string_view name) {
  const bool digits = std::any_of(name.begin(), name.end(), IsDecimal);
  const auto is = [&](std::string_view part) { return Contains(name, part); };
  if (!digits || is("Release") || is("CUDA") || is("Driver")) return false;
  if (is("-SXM") || is("-PCIE") || is("-PCIe") || is("GeForce") || is("RTX")) return true;
  // "NVIDIA H100 80GB HBM3": the word behind the maker's name is letters, then a number.
  const std::size_t blank = name.find(' ');
  if (blank == std::string_view::npos) return false;
  const std::string_view word = name.substr(blank + 1, name.find(' ', blank + 1) - blank - 1);
  const bool upper = !word.empty() && std::isupper(static_cast<unsigned char>(word[0])) != 0;
  const auto digit = std::find_if(word.begin(), word.end(), IsDecimal);
  return upper && digit != word.end() && digit - word.begin() <= 3;
}

void AddDevice(std::string name, std::vector<std::string>* devices) {
  while (!name.empty() && (name.back() == ' ' || name.back() == '-')) name.pop_back();
  if (!IsDeviceName(name) || devices->size() >= kMostDeviceNames) return;
  if (std::find(devices->begin(), devices->end(), name) == devices->end())
    devices->push_back(std::move(name));
}

void FillDevices(std::string_view text, std::vector<std::string>* devices) {
  constexpr std::size_t kMostName = 40;
  bool found = false;
  for (const std::string_view maker : {"NVIDIA ", "Tesla ", "AMD Instinct "}) {
    for (std::size_t at = text.find(maker); at != std::string_view::npos;
         at = text.find(maker, at + maker.size())) {
      std::size_t end = at + maker.size();
      while (end < text.size() && end - at < kMostName &&
             (IsNameLetter(text[end]) || (text[end] == ' ' && text[end - 1] != ' ')))
        ++end;
      const std::size_t before = devices->size();
      AddDevice(std::string(text.substr(at, end - at)), devices);
      found = found || devices->size() > before;
    }
  }
  if (found) return;
  for (const std::string_view form : {"-SXM", "-PCIE", "-PCIe"}) {  // "A100-SXM4-40GB" alone
    const std::size_t at = text.find(form);
    if (at == std::string_view::npos) continue;
    std::size_t begin = at, end = at;
    while (begin > 0 && IsNameLetter(text[begin - 1])) --begin;
    while (end < text.size() && IsNameLetter(text[end])) ++end;
    const std::string_view name = text.substr(begin, end - begin);
    const auto known = [&](const std::string& one) { return Contains(one, name); };
    if (!std::any_of(devices->begin(), devices->end(), known))
      AddDevice(std::string(name), devices);
  }
}

// "15.78 GiB total capacity" or "total capacity of 79.10 GiB" (PyTorch), "40MiB / 16160MiB" (nvidia-smi).
void FillDeviceBytes(std::string_view text, LogFacts* facts) {
  if (facts->device_bytes) return;
  const std::size_t capacity = text.find("total capacity");
  if (capacity != std::string_view::npos) {
    LineCursor behind(text.substr(capacity));
    std::optional<double> gib;
    if (behind.Behind("total capacity of")) gib = behind.Number();
    const std::size_t unit = text.rfind("GiB", capacity);
    if (!gib && unit != std::string_view::npos && unit > 1) {
      std::size_t begin = unit - 1;
      while (begin > 0 && (IsDecimal(text[begin - 1]) || text[begin - 1] == '.')) --begin;
      gib = AmountIn(Trimmed(text.substr(begin, unit - begin)));
    }
    if (gib && *gib > 0) facts->device_bytes = *gib * kBytesPerGib;
    return;
  }
  const std::size_t slash = text.find("MiB /");
  if (slash == std::string_view::npos) return;
  LineCursor behind(text.substr(slash + 5));
  const auto mib = behind.Whole();
  if (mib && *mib > 0 && behind.Literal("MiB"))
    facts->device_bytes = static_cast<double>(*mib) * kBytesPerMib;
}

void FillPeak(std::string_view text, LogFacts* facts) {
  if (facts->peak_flops) return;
  LineCursor titan(text), llmc(text);
  std::optional<double> flops;
  if (titan.Behind("Peak FLOPS used for computing MFU:")) flops = titan.Number();
  if (!flops && llmc.Behind("peak bf16 TFlops") && llmc.Behind("|")) {
    flops = llmc.Number();
    if (flops) *flops *= 1e12;
  }
  if (flops && *flops > 0) facts->peak_flops = flops;
}

class FactsReader {
 public:
  LogFacts Read(const Source& source) {
    ForEachLine(source, [&](const LogLine& line) {
      line_ = line.number;
      ReadLine(line.text);
    });
    // DeepSpeed's "world_size" counts replicas where its pipelines cut the model (runtime/config.py: mpu.get_data_parallel_world_size).
    if (!facts_.world_size && facts_.has_dump) {
      facts_.world_size = facts_.Whole("world_size");
      facts_.world_line = facts_.lines["world_size"];
    }
    FillBatch();
    return std::move(facts_);
  }

 private:
  void ReadLine(std::string_view text) {
    if (Contains(text, "---- end of arguments ----")) {
      in_dump_ = false;
    } else if (Contains(text, "---- arguments ----")) {
      in_dump_ = facts_.has_dump = true;
      Starts(LogStart::Kind::kArguments);
    } else if (Contains(text, "[config.py:") && Contains(text, "print]")) {
      if (Contains(text, "DeepSpeedEngine configuration:")) Starts(LogStart::Kind::kEngine);
      ReadConfiguration(text);
    } else if (in_dump_) {
      ReadArgument(text);
    }
    FillDate(text, &facts_.date);
    FillDevices(text, &facts_.devices);
    FillDeviceBytes(text, &facts_);
    FillPeak(text, &facts_);
    FillVersion(text, "NCCL version ", "", &facts_.nccl);
    FillVersion(text, "NCCL_VERSION=", "", &facts_.nccl);
    FillVersion(text, "Driver Version:", "", &facts_.driver);
    FillVersion(text, "DeepSpeed info: version=", "DeepSpeed ", &facts_.framework);
    FillVersion(text, "deepspeed info ", "DeepSpeed ", &facts_.framework);
    FillVersion(text, "Megatron-Core version", "Megatron-Core ", &facts_.framework);
    FillVersion(text, "megatron-core==", "Megatron-Core ", &facts_.framework);
    FillVersion(text, "NVIDIA Release", "NVIDIA container ", &facts_.framework);
    if (!facts_.starts.empty() && facts_.starts.back().line + 1 == line_ &&
        facts_.starts.back().kind == LogStart::Kind::kPlan)
      ReadHeading(text);
    ReadPlan(text);
    LineCursor vocab(text);
    if (vocab.Behind("> padded vocab") && vocab.Behind("(new size:")) {
      if (const auto size = vocab.Whole())
        facts_.arguments.emplace("padded_vocab_size", std::to_string(*size));
    }
    LineCursor cursor(text);
    if (cursor.Behind("using world size:")) {
      Starts(LogStart::Kind::kWorld);
      ReadWorld(text);
      if (!facts_.world_size) SayWorld(cursor.Whole());
    }
    LineCursor batch(text);  // torchtitan's
    if (!facts_.global_batch && batch.Behind("initialized with local batch size") &&
        batch.Behind("global batch size")) {
      facts_.global_batch = batch.Number();
      facts_.batch_line = line_;
    }
    ReadRates(text);
    ReadMesh(text);
    // torchtitan's, and the Trainer's of HuggingFace.
    if (Contains(text, "Training starts at step ") ||
        Contains(text, "***** Running training *****"))
      Starts(LogStart::Kind::kTraining);
  }

  // The Trainer's at its end, with three digits behind the point: samples and steps per second.
  void ReadRates(std::string_view text) {
    constexpr double kDigit = 5e-4, kSame = 0.01;
    const auto rate = [&](std::string_view name) {
      LineCursor cursor(text);
      const bool there = cursor.Behind(name) && (cursor.Literal("':") || cursor.Literal("\":"));
      return there ? cursor.Number() : std::optional<double>();
    };
    const auto samples = rate("train_samples_per_second"), steps = rate("train_steps_per_second");
    if (facts_.global_batch || !samples || !steps || *samples <= 0 || *steps <= 2 * kDigit) return;
    facts_.global_batch = std::round(*samples / *steps);
    facts_.batch_error = *facts_.global_batch * (kSame + kDigit / *steps + kDigit / *samples) + 0.5;
    facts_.batch_line = line_;
  }

  void SayWorld(std::optional<int64_t> world) {
    if (!world || *world < 1) return;
    facts_.world_size = world;
    facts_.world_line = line_;
  }

  void Starts(LogStart::Kind kind) {
    if (facts_.starts.size() < kMostStarts) facts_.starts.push_back({line_, kind});
  }

  void ReadPlan(std::string_view text) {
    LineCursor cursor(text);
    if (!cursor.Behind(ir::kPlanLine)) return;
    const std::string_view word = Trimmed(cursor.Rest());
    const std::string digest(
        word.substr(0, std::min(word.find_first_not_of("0123456789abcdef"), word.size())));
    if (digest.size() != ir::kDigestLetters) return;
    Starts(LogStart::Kind::kPlan);
    if (facts_.plans.size() >= kMostPlans) return;
    if (std::ranges::find(facts_.plans, digest, &std::pair<std::string, int>::first) ==
        facts_.plans.end())
      facts_.plans.emplace_back(digest, line_);
  }

  void SayDegree(const char* field, int64_t degree) {
    if (degree > 0) facts_.layout.try_emplace(field, degree, line_);
  }

  // Below its plan, of `plan run`: "2 ranks on node1 over mpi: tp 2, pp 4 1f1b, ZeRO 1, micro-batch 1 of 8, fp32".
  void ReadHeading(std::string_view text) {
    LineCursor cursor(text);
    const auto ranks = cursor.Whole();
    if (!ranks || (!cursor.Literal("ranks on ") && !cursor.Literal("rank on "))) return;
    if (!facts_.world_size) SayWorld(ranks);
    if (!cursor.Behind(" over ") || !cursor.Behind(": ")) return;
    constexpr std::pair<std::string_view, const char*> kHeadingWords[] = {
        {"tp ", "tp"}, {"pp ", "pp"}, {"cp ", "cp"}, {"micro-batch ", "micro_batch"}};
    for (const std::string_view part : SplitAt(cursor.Rest(), ',')) {
      for (const auto& [word, field] : kHeadingWords) {
        LineCursor value(part);
        if (!value.Literal(word)) continue;
        SayDegree(field, value.Whole().value_or(0));
        if (facts_.global_batch || !value.Literal("of")) continue;
        facts_.global_batch = value.Number();
        facts_.batch_line = line_;
      }
      LineCursor zero(part);
      if (!zero.Literal("ZeRO ")) continue;
      if (const auto stage = zero.Whole()) facts_.layout.try_emplace("zero", *stage, line_);
    }
    for (const char* field : {"tp", "pp", "cp"}) SayDegree(field, 1);  // not said: one
    facts_.layout.try_emplace("zero", 0, line_);
  }

  // Behind "using world size: 16, data-parallel size: 4, "; encoders have degrees of their own.
  void ReadWorld(std::string_view text) {
    constexpr std::pair<std::string_view, const char*> kNames[] = {
        {" tensor-model-parallel size:", "tp"},
        {" pipeline-model-parallel size:", "pp"},
        {" context-parallel size:", "cp"}};
    for (const auto& [name, field] : kNames) {
      LineCursor cursor(text);
      if (cursor.Behind(name)) SayDegree(field, cursor.Whole().value_or(0));
    }
  }

  // torchtitan's "Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]", which has the degrees above 1, and its newer
  // "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=4, cp=1, tp=2, ep=1, etp=1". Ranks of experts are
  // among the others.
  void ReadMesh(std::string_view text) {
    LineCursor cursor(text);
    if (!cursor.Behind("device mesh with ")) return;
    Starts(LogStart::Kind::kMesh);
    std::vector<std::pair<std::string_view, std::optional<int64_t>>> mesh;
    if (cursor.Behind("parallelism:")) {
      for (const std::string_view one : SplitAt(cursor.Rest(), ',')) {
        const std::size_t sign = std::min(one.find('='), one.size());
        mesh.emplace_back(one.substr(0, sign), WholeIn(one.substr(std::min(sign + 1, one.size()))));
      }
    } else if (const std::string_view lists = cursor.Rest(); lists.starts_with('[')) {
      const std::size_t middle = lists.find("], [");
      if (middle == std::string_view::npos) return;
      const std::string_view numbers = lists.substr(middle + 4);
      const auto names = SplitAt(lists.substr(1, middle - 1), ',');
      const auto degrees = SplitAt(numbers.substr(0, numbers.find(']')), ',');
      if (names.size() != degrees.size()) return;
      for (std::size_t i = 0; i < names.size(); ++i)
        mesh.emplace_back(names[i].substr(1, std::max<std::size_t>(names[i].size(), 2) - 2),
                          WholeIn(degrees[i]));
    }
    TakeMesh(mesh);
  }

  void TakeMesh(const std::vector<std::pair<std::string_view, std::optional<int64_t>>>& mesh) {
    int64_t world = 1;
    for (const auto& [name, degree] : mesh) {
      if (name == "ep" || name == "etp") continue;
      if (!degree || *degree < 1 || world > (int64_t{1} << 30) / *degree) return;
      world *= *degree;
    }
    if (mesh.empty()) return;
    for (const char* field : {"tp", "pp", "cp"}) {
      const auto at = std::ranges::find(mesh, field, [](const auto& one) { return one.first; });
      SayDegree(field, at == mesh.end() ? 1 : *at->second);
    }
    if (!facts_.world_size) SayWorld(world);
  }

  // Of Megatron's dump, unless it grows, or of DeepSpeed's.
  void FillBatch() {
    for (const char* key : {"global_batch_size", "train_batch_size"}) {
      const auto batch = AmountIn(facts_.Argument(key));
      const bool known = facts_.global_batch && facts_.batch_error == 0;
      if (known || !batch || !facts_.Argument("rampup_batch_size").empty()) continue;
      facts_.batch_error = 0;
      facts_.global_batch = batch;
      facts_.batch_line = facts_.lines[key];
    }
  }

  // "0:   num_layers ...................... 24": the last word before the dots, all behind them.
  void ReadArgument(std::string_view text) {
    const std::size_t dots = text.find(" ..");
    if (dots == std::string_view::npos) return;
    std::size_t end = dots + 1;
    while (end < text.size() && text[end] == '.') ++end;
    const std::string_view before = Trimmed(text.substr(0, dots));
    std::size_t begin = before.size();
    while (begin > 0 && IsNameLetter(before[begin - 1])) --begin;
    AddArgument(before.substr(begin), text.substr(end));
  }

  // DeepSpeed fills its names with dots to 29 letters: "print]   train_micro_batch_size_per_gpu  2" has none.
  void ReadConfiguration(std::string_view text) {
    const std::string_view rest = Trimmed(text.substr(text.find("print]") + 6));
    std::size_t end = 0;
    while (end < rest.size() && IsNameLetter(rest[end])) ++end;
    std::size_t value = rest.find_first_not_of(' ', end);
    if (value == std::string_view::npos || value == end) return;
    const std::size_t behind = rest.find_first_not_of('.', value);
    if (behind != std::string_view::npos && rest[behind] == ' ') value = behind;
    AddArgument(rest.substr(0, end), rest.substr(value));
  }

  void AddArgument(std::string_view key, std::string_view value) {
    if (key.empty() || facts_.arguments.size() >= kMostArguments) return;
    if (facts_.arguments.emplace(key, Trimmed(value).substr(0, kMostValue)).second)
      facts_.lines.emplace(key, line_);
  }

  LogFacts facts_;
  int line_ = 0;
  bool in_dump_ = false;
};

}  // namespace

std::string LogFacts::Argument(std::string_view key) const {
  const auto found = arguments.find(std::string(key));
  return found == arguments.end() || found->second == "None" ? "" : found->second;
}

std::optional<int64_t> LogFacts::Whole(std::string_view key) const {
  return WholeIn(Argument(key));
}

bool LogFacts::Flag(std::string_view key) const { return Argument(key) == "True"; }

LogFacts ReadLogFacts(const Source& source) { return FactsReader().Read(source); }

}  // namespace orrery::measured
