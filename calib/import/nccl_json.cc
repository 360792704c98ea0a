// SPDX-License-Identifier: Apache-2.0
// Reads the report that nccl-tests writes with --json_file (its versions 1 and 2).
#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "calib/import/nccl_log.h"
#include "model/base/node.h"
#include "model/base/plain_text.h"

namespace orrery::measured {
namespace {

using Json = nlohmann::json;

// Member `key`, or null.
const Json& At(const Json& object, const char* key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto at = object.find(key);
  return at == object.end() ? kNull : *at;
}

std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

// A whole number, also one that is written as text ("    -1").
std::optional<int64_t> WholeOf(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  const std::string text = TextOf(value);
  const std::size_t first = text.find_first_not_of(' ');
  int64_t number = 0;
  if (first == std::string::npos ||
      ParseInteger(std::string_view(text).substr(first), &number) != NumberFault::kNone) {
    return std::nullopt;
  }
  return number;
}

std::optional<double> AmountOf(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  return number >= 0 && number <= std::numeric_limits<double>::max() ? std::optional(number)
                                                                     : std::nullopt;
}

// "": read; else what is wrong.
std::string ReadTiming(const Json& object, const char* key, std::optional<Timing>* timing) {
  const Json& body = At(object, key);
  if (body.is_null()) return "";
  const std::optional<double> gpu = AmountOf(At(body, "time"));
  const std::optional<double> us = gpu ? gpu : AmountOf(At(body, "cpu_time"));
  const std::optional<double> algbw = AmountOf(At(body, "alg_bw")),
                              busbw = AmountOf(At(body, "bus_bw"));
  if (!us || *us <= 0 || !algbw || !busbw)
    return fmt::format("{} has no time, alg_bw and bus_bw", key);
  *timing = Timing{*us, *algbw, *busbw, AmountOf(At(body, "nwrong"))};
  return "";
}

std::string ReadResult(const Json& result, Measurement* row) {
  const std::optional<int64_t> bytes = WholeOf(At(result, "size")),
                               count = WholeOf(At(result, "count"));
  if (!bytes || *bytes < 0 || !count || *count < 0) return "a result without size and count";
  row->bytes = *bytes;
  row->count = *count;
  row->type = TextOf(At(result, "type"));
  row->redop = TextOf(At(result, "redop"));
  const int64_t root = WholeOf(At(result, "root")).value_or(-1);
  if (root < -1 || root > (1 << 20)) return "a result with an impossible root";
  row->root = static_cast<int>(root);
  if (row->type.empty()) return "a result without a type";
  std::string wrong = ReadTiming(result, "out_of_place", &row->out_of_place);
  if (wrong.empty()) wrong = ReadTiming(result, "in_place", &row->in_place);
  if (wrong.empty() && !row->out_of_place && !row->in_place) wrong = "a result without a time";
  return wrong;
}

// One process may drive several GPUs and lists only the first of them.
int RanksOf(const Json& config, std::size_t devices) {
  const int64_t threads = WholeOf(At(config, "nthreads")).value_or(1);
  const int64_t gpus = WholeOf(At(config, "ngpus")).value_or(1);
  const bool sane = threads > 0 && gpus > 0 && threads <= 1024 && gpus <= 1024 && devices < 1 << 20;
  return sane ? static_cast<int>(static_cast<int64_t>(devices) * threads * gpus) : 0;
}

void ReadDevices(const Json& config, NcclRun* run) {
  const Json& devices = At(config, "devices");
  if (!devices.is_array()) return;
  for (const Json& device : devices) {
    run->devices.push_back({static_cast<int>(WholeOf(At(device, "rank")).value_or(0) & 0xfffff),
                            TextOf(At(device, "hostname")), TextOf(At(device, "device_info"))});
  }
  run->ranks = RanksOf(config, run->devices.size());
}

}  // namespace

NcclLog ReadNcclJson(const SourcePtr& source) {
  NcclLog log;
  log.source = source;
  Diagnostics diagnostics;
  const Node places = Node::Parse(source, &diagnostics);  // knows lines, and says what is broken
  const Json report = Json::parse(source->text, nullptr, false);
  if (report.is_discarded() && diagnostics.ok())
    diagnostics.Error({source, 1, 1}, "this is no JSON", "nccl-tests writes it with --json_file");
  diagnostics.ThrowIfAny();
  NcclRun run;
  for (const Json& word : At(report, "args").is_array() ? At(report, "args") : Json::array()) {
    const std::string collective = CollectiveOfProgram(TextOf(word));
    if (!collective.empty()) run.collective = collective;
  }
  ReadDevices(At(report, "config"), &run);
  run.average_busbw = AmountOf(At(At(report, "average_bus_bandwidth"), "bandwidth"));
  const Json& results = At(report, "results");
  if (results.is_array()) {
    run.line = places.where("results").line;
    const std::vector<Node> nodes = places.Items("results");
    for (std::size_t i = 0; i < results.size(); ++i) {
      Measurement row;
      const Location where = i < nodes.size() ? nodes[i].where() : places.where("results");
      row.line = where.line;
      const std::string wrong = ReadResult(results[i], &row);
      if (!wrong.empty())
        AddGarbled(where.line, where.column, wrong, &log);
      else
        run.measurements.push_back(std::move(row));
    }
  }
  log.runs.push_back(std::move(run));
  FinishLog(&log);
  return log;
}

}  // namespace orrery::measured
