// SPDX-License-Identifier: Apache-2.0
// How often this twin says what NCCL chose, over a table of choices: `bench_nccl_choice FILE [FOLDER]`.
#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "bench/collectives/choice_table.h"
#include "model/base/diagnostics.h"

namespace orrery {
namespace {

struct Count {
  int rows = 0, algorithm = 0, protocol = 0, channels = 0, threads = 0;
  int fastest_algorithm = 0, fastest_protocol = 0;

  void Add(const ChoiceAgreement& one) {
    ++rows;
    algorithm += one.algorithm;
    protocol += one.protocol;
    channels += one.channels;
    threads += one.threads;
    fastest_algorithm += one.fastest_algorithm;
    fastest_protocol += one.fastest_protocol;
  }
};

void Print(const char* by, const std::vector<ChoiceAgreement>& rows,
           const std::function<std::string(const NcclRow&)>& key) {
  std::map<std::string, Count> counts;
  for (const ChoiceAgreement& one : rows) counts[key(one.row)].Add(one);
  fmt::print("{:18} {:>7} | {:>9} {:>8} {:>8} {:>8} | fastest: {:>9} {:>8}\n", by, "rows",
             "algorithm", "protocol", "channels", "threads", "algorithm", "protocol");
  for (const auto& [name, count] : counts) {
    const auto percent = [&](int right) {
      return fmt::format("{:.2f}%", 100.0 * right / count.rows);
    };
    fmt::print("{:18} {:7} | {:>9} {:>8} {:>8} {:>8} |          {:>9} {:>8}\n", name, count.rows,
               percent(count.algorithm), percent(count.protocol), percent(count.channels),
               percent(count.threads), percent(count.fastest_algorithm),
               percent(count.fastest_protocol));
  }
  fmt::print("\n");
}

std::string SizeRange(const NcclRow& row) {
  constexpr double kKi = 1024, kMi = kKi * kKi;
  return row.bytes < 64 * kKi    ? "1 below 64 KiB"
         : row.bytes <= 16 * kMi ? "2 to 16 MiB"
                                 : "3 above";
}

int Run(const std::string& file, const std::string& folder) {
  const std::vector<ChoiceAgreement> rows = CompareChoices(file, folder);
  Print("machine", rows, [](const NcclRow& row) { return row.machine; });
  Print("collective", rows, [](const NcclRow& row) { return row.collective; });
  Print("nodes", rows, [](const NcclRow& row) { return fmt::format("{:4}", row.nodes); });
  Print("size", rows, SizeRange);
  Print("all", rows, [](const NcclRow&) { return std::string("all"); });
  constexpr int kMostShown = 20;
  int shown = 0;
  for (const ChoiceAgreement& one : rows) {
    if (one.algorithm && one.protocol && one.channels && one.threads) continue;
    if (++shown > kMostShown) break;
    const NcclRow& row = one.row;
    fmt::print("{} {} x {} {} {:.0f}: NCCL {} {} {}x{}, twin {}\n", row.machine, row.nodes,
               row.gpus_per_node, row.collective, row.bytes, row.algorithm, row.protocol,
               row.channels, row.threads, one.choice);
  }
  return 0;
}

}  // namespace
}  // namespace orrery

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "bench_nccl_choice FILE [FOLDER of topologies named as in FILE]\n");
    return 2;
  }
  try {
    return orrery::Run(argv[1], argc > 2 ? argv[2] : "tests/collectives/nccl_machines");
  } catch (const orrery::InputError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
