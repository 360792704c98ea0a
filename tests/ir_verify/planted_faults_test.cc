// SPDX-License-Identifier: Apache-2.0
// Verify on correct plans that are broken in one way each: what was planted must be found. The test prints the table.
#include "tests/ir_verify/planted_faults.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/ir_verify/planting.h"

namespace orrery::ir {
namespace {

std::vector<PlantedFault> Table() {
  std::vector<PlantedFault> all;
  for (const auto& faults : {SumFaults(), LifeFaults(), ShapeFaults(), MatchingFaults(),
                             ContextFaults(), AdapterFaults(), RecomputeFaults(), OffloadFaults()})
    all.insert(all.end(), faults.begin(), faults.end());
  return all;
}

constexpr int64_t kBatch = 4;

TEST(PlantedFaults, AreFound) {
  int found_rows = 0;
  const std::vector<PlantedFault> table = Table();
  fmt::print("{:<62} {:<34} {}\n", "planted", "expected", "found");
  for (const PlantedFault& row : table) {
    SCOPED_TRACE(row.fault);
    const int64_t batch = kBatch * row.strategy.data_parallel();
    Plan plan = LowerTiny(row.strategy, batch, row.lora);
    std::vector<Finding> findings;
    if (row.plant) {
      row.plant(plan);
      findings = Verify(plan);
    } else {
      Layouts layouts = LayoutsOf(plan);
      row.plant_layout(plan, layouts);
      findings = Verify(plan, layouts);
    }
    std::set<std::string> names, wanted;
    for (const Finding& finding : findings) names.insert(FaultName(finding.fault));
    for (Fault fault : row.expected) wanted.insert(FaultName(fault));
    EXPECT_TRUE(std::includes(names.begin(), names.end(), wanted.begin(), wanted.end()));
    found_rows += std::includes(names.begin(), names.end(), wanted.begin(), wanted.end());
    fmt::print("{:<62} {:<34} {}\n", row.fault, fmt::format("{}", fmt::join(wanted, ", ")),
               fmt::join(names, ", "));
    for (const Finding& finding : findings)
      EXPECT_FALSE(finding.where.empty() || finding.message.empty());
  }
  fmt::print("{} of {} found\n", found_rows, table.size());
  EXPECT_GE(table.size(), 64u);
}

TEST(PlantedFaults, TheirPlansAreCorrectBefore) {
  for (const PlantedFault& row : Table()) {
    SCOPED_TRACE(row.fault);
    for (const Finding& finding :
         Verify(LowerTiny(row.strategy, kBatch * row.strategy.data_parallel(), row.lora))) {
      ADD_FAILURE() << FaultName(finding.fault) << " stage " << finding.stage << " "
                    << finding.where << ": " << finding.message;
    }
  }
}

// Dropping any one collective must not go unnoticed, in every kind of plan.
TEST(PlantedFaults, NoCollectiveIsMissedSilently) {
  Strategy hybrid = Degrees(1, 1, 2, 3);
  hybrid.dp_outer = 2;
  Strategy sequence = Degrees(2, 2, 2, 1);
  sequence.sequence_parallel = true;
  Strategy gathers = Degrees(2, 1, 1, 1), ulysses = gathers, levels = gathers;
  gathers.cp = ulysses.cp = 2, levels.cp = 4;
  gathers.context = ContextOf(CpMethod::kAllGather);
  ulysses.context = ContextOf(CpMethod::kUlysses);
  levels.context = ContextOf(CpMethod::kA2aRing, 2);
  Strategy again = sequence, logits = Degrees(2, 1, 1);
  again.recompute = {kRecomputeNorms | kRecomputeMlp};
  logits.whole_logits = true;
  int planted = 0;
  for (const Strategy& strategy :
       {Degrees(1, 1, 2), Degrees(2, 1, 1), Degrees(1, 1, 2, 1), Degrees(1, 1, 2, 2),
        Degrees(1, 1, 2, 3), hybrid, sequence, gathers, ulysses, levels, again, logits}) {
    const Plan plan = LowerTiny(strategy, kBatch * strategy.data_parallel());
    for (size_t p = 0; p < plan.programs.size(); ++p) {
      for (size_t b = 0; b < plan.programs[p].blocks.size(); ++b) {
        const auto& ops = plan.programs[p].blocks[b].ops;
        for (size_t i = 0; i < ops.size(); ++i) {
          if (Info(ops[i].kind).op_class != OpClass::kCollective) continue;
          Plan broken = plan;
          auto& list = broken.programs[p].blocks[b].ops;
          list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
          ++planted;
          EXPECT_FALSE(Verify(broken).empty())
              << plan.title << " " << plan.programs[p].blocks[b].name << " op " << i << " "
              << Info(ops[i].kind).name;
        }
      }
    }
  }
  fmt::print("{} collectives dropped one by one\n", planted);
  EXPECT_GT(planted, 100);
}

}  // namespace
}  // namespace orrery::ir
