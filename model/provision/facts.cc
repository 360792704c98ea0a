// SPDX-License-Identifier: Apache-2.0
// Reads the facts of long runs.
#include "model/provision/facts.h"

#include <fmt/format.h>

#include "model/base/node.h"
#include "model/hardware/profile_reader.h"

namespace orrery {
namespace {

// One file: facts by key, each with its source.
class FactFile {
 public:
  FactFile(const std::string& folder, const std::string& name)
      : root_(Node::Parse(LoadProfileFile(folder, name), &diagnostics_)) {
    diagnostics_.ThrowIfAny();
    title_ = root_.String("title");
  }

  const std::string& title() const { return title_; }
  std::string Text(const char* key) { return root_.String(key, ""); }
  bool Flag(const char* key) { return root_.Bool(key, false); }

  Range Number(const char* key, double min, double max) {
    const Node fact = root_.Child(key);
    Range range;
    range.value = fact.Number("value", min, max);
    range.low = fact.Number("low", min, max, range.value);
    range.high = fact.Number("high", min, max, range.value);
    if (range.low > range.value || range.high < range.value)
      fact.ErrorAt("value", "the value is not between low and high");
    Check(fact);
    return range;
  }
  std::optional<Range> MaybeNumber(const char* key, double min, double max) {
    if (!root_.Has(key)) return std::nullopt;
    return Number(key, min, max);
  }
  Seconds Time(const char* key) {
    const Node fact = root_.Child(key);
    const Seconds time = fact.ReadSeconds("value");
    Check(fact);
    return time;
  }
  Seconds MaybeTime(const char* key) { return root_.Has(key) ? Time(key) : Seconds(0); }
  std::optional<BytesPerSecond> Rate(const char* key) {
    if (!root_.Has(key)) return std::nullopt;
    const Node fact = root_.Child(key);
    const BytesPerSecond rate = fact.ReadBytesPerSecond("value");
    Check(fact);
    return rate;
  }
  std::map<std::string, double> Numbers(const char* key, double min, double max) {
    std::map<std::string, double> numbers;
    const Node map = root_.Child(key);
    for (const std::string& name : map.Keys()) {
      const Node fact = map.Child(name);
      numbers[name] = fact.Number("value", min, max);
      Check(fact);
    }
    return numbers;
  }
  const std::string& source() const { return source_; }  // of the fact read last

  void Finish() {
    root_.RejectUnknownKeys();
    diagnostics_.ThrowIfAny();
  }

 private:
  void Check(const Node& fact) {
    source_ = fact.String("source");
    (void)fact.String("unit", "");
    const std::string evidence = fact.String("evidence");
    if (!fact.Has("evidence")) return fact.RejectUnknownKeys();  // that it is missing was said
    if (evidence != "A" && evidence != "B" && evidence != "C")
      fact.ErrorAt("evidence", fmt::format("evidence is '{}'", evidence),
                   "A several sources agree or data of the vendor, B one source, C a prior");
    fact.RejectUnknownKeys();
  }

  Diagnostics diagnostics_;
  Node root_;
  std::string title_, source_;
};

constexpr double kMostRate = 1e4;  // stops per 1000 node-days

}  // namespace

std::vector<std::string> FactNames(const std::string& folder) { return AllProfileIds(folder); }

FailureFacts LoadFailures(const std::string& name) {
  FactFile file("failures", name);
  FailureFacts facts{name, file.title(), "", file.Number("rate", 0, kMostRate)};
  facts.source = file.source();
  file.Finish();
  return facts;
}

RecoveryFacts LoadRecovery(const std::string& name) {
  FactFile file("recovery", name);
  RecoveryFacts facts;
  facts.name = name;
  facts.title = file.title();
  facts.detection = file.Time("detection");
  facts.restart = file.Time("restart");
  facts.repair = file.Time("repair");
  facts.elastic = file.Flag("elastic");
  facts.pause = file.MaybeTime("pause");
  file.Finish();
  return facts;
}

CheckpointFacts LoadCheckpoint(const std::string& name) {
  FactFile file("checkpoint", name);
  CheckpointFacts facts;
  facts.name = name;
  facts.title = file.title();
  facts.blocks = file.Flag("blocks");
  facts.overhead = file.Time("overhead");
  facts.copy_efficiency = file.Number("copy_efficiency", 0.01, 1).value;
  facts.front_end_share = file.Number("front_end_share", 0.01, 1).value;
  file.Finish();
  return facts;
}

StorageFacts LoadStorage(const std::string& name) {
  FactFile file("storage", name);
  StorageFacts facts;
  facts.name = name;
  facts.title = file.title();
  facts.write = file.Rate("write");
  facts.read = file.Rate("read");
  facts.client = file.Rate("client");
  facts.per_tib = file.Rate("per_tib");
  if (!facts.write) facts.write_within = file.Time("write_within");
  file.Finish();
  return facts;
}

InputFacts LoadInput(const std::string& name) {
  FactFile file("input", name);
  InputFacts facts;
  facts.name = name;
  facts.title = file.title();
  facts.bytes_per_token = file.Number("bytes_per_token", 0, 1e9).value;
  facts.source = file.source();
  if (const auto reader = file.MaybeNumber("reader", 1e-3, 1e15)) {
    facts.reader = reader->value;
    facts.source = file.source();
  }
  file.Finish();
  return facts;
}

BatchFacts LoadBatch() {
  FactFile file("batch", "critical");
  BatchFacts facts;
  facts.anchor_batch = file.Number("anchor_batch", 1, 1e12).value;
  facts.anchor_tokens = file.Number("anchor_tokens", 1, 1e18).value;
  facts.least_share = file.Number("least_share", 0.001, 1).value;
  for (const auto& [run, tokens] : file.Numbers("published_tokens", 1, 1e18))
    facts.published[run].tokens = tokens;
  for (const auto& [run, batch] : file.Numbers("published_batch", 1, 1e12))
    facts.published[run].batch = batch;
  facts.exponent = file.Number("exponent", 0, 1).value;
  facts.source = file.source();
  facts.note = file.Text("note");
  file.Finish();
  return facts;
}

EnergyFacts LoadEnergy() {
  FactFile file("energy", "default");
  EnergyFacts facts;
  facts.node_factor = file.Number("node_factor", 1, 10).value;
  facts.pue = file.Number("pue", 1, 10).value;
  facts.power = file.Numbers("power", 1, 1e5);
  file.Finish();
  return facts;
}

LongRunFacts LoadLongRun() {
  FactFile file("run", "default");
  LongRunFacts facts;
  facts.straggler = file.Number("straggler", 1, 10);
  facts.setup = file.Time("setup");
  facts.shortage = file.Number("shortage", 1e-9, 1).value;
  facts.old_price = file.Time("old_price");
  file.Finish();
  return facts;
}

}  // namespace orrery
