// SPDX-License-Identifier: Apache-2.0
// Names of the terms; axes by the names that lowering gives to the mesh.
#include "model/price/breakdown.h"

#include <array>
#include <string_view>

#include "model/base/check.h"

namespace orrery {
namespace {

constexpr BreakdownTerm kTerms[] = {
    {"compute_s", "compute", "compute: kernels of forward, backward and recomputation",
     &Breakdown::compute},
    {"tensor_exposed_s", "tensor-parallel communication", "tensor-parallel communication, exposed",
     &Breakdown::tensor},
    {"context_exposed_s", "context-parallel communication",
     "context-parallel communication, exposed: keys and values", &Breakdown::context},
    {"data_exposed_s", "data-parallel communication",
     "data-parallel communication, exposed: gradients and sharded weights", &Breakdown::data},
    {"pipeline_exposed_s", "transfers between stages", "transfers between pipeline stages, exposed",
     &Breakdown::pipeline},
    {"host_s", "waiting for the host", "GPU waits for the host that issues its kernels",
     &Breakdown::host},
    {"bubble_s", "pipeline bubble", "pipeline bubble: stages wait for each other",
     &Breakdown::bubble},
    {"optimizer_s", "optimizer", "optimizer: gradient norm and update", &Breakdown::optimizer},
    {"offload_exposed_s", "offload",
     "offload, exposed: copies to and from the host, updates by the CPU", &Breakdown::offload},
    {"fixed_s", "fixed costs", "fixed costs of a step", &Breakdown::fixed},
    {"contention_s", "contention", "contention: links shared with other messages",
     &Breakdown::contention},
};

struct AxisName {
  std::string_view mesh;  // as model/plan/lower names it
  CommAxis axis;
};
// A group over several axes belongs to the first of them in this order.
constexpr std::array<AxisName, 7> kAxes = {{{"dp", CommAxis::kData},
                                            {"dpo", CommAxis::kData},
                                            {"pp", CommAxis::kPipeline},
                                            {"cp", CommAxis::kContext},
                                            {"cpo", CommAxis::kContext},
                                            {"cpi", CommAxis::kContext},
                                            {"tp", CommAxis::kTensor}}};

}  // namespace

double Breakdown::*ExposedOf(CommAxis axis) {
  switch (axis) {
    case CommAxis::kTensor:
      return &Breakdown::tensor;
    case CommAxis::kData:
      return &Breakdown::data;
    case CommAxis::kPipeline:
      return &Breakdown::pipeline;
    case CommAxis::kContext:
      return &Breakdown::context;
  }
  ORRERY_CHECK(false, "axis {}", static_cast<int>(axis));
}

double Breakdown::*HiddenOf(CommAxis axis) {
  switch (axis) {
    case CommAxis::kTensor:
      return &Breakdown::tensor_hidden;
    case CommAxis::kData:
      return &Breakdown::data_hidden;
    case CommAxis::kPipeline:
      return &Breakdown::pipeline_hidden;
    case CommAxis::kContext:
      return &Breakdown::context_hidden;
  }
  ORRERY_CHECK(false, "axis {}", static_cast<int>(axis));
}

const char* AxisWords(CommAxis axis) {
  for (const BreakdownTerm& term : kTerms) {
    if (term.seconds == ExposedOf(axis)) return term.name;
  }
  ORRERY_CHECK(false, "axis {} has no term", static_cast<int>(axis));
}

std::span<const BreakdownTerm> BreakdownTerms() { return kTerms; }

// Ranks that share sequences reduce gradients together with those that do not: a group that names a data axis is
// of data, even where that axis has one rank.
CommAxis AxisOfGroup(const ir::Plan& plan, const ir::Group& group) {
  const int data = plan.mesh.AxisIndex("dp");
  const bool of_data = data >= 0 && (group.axes >> data & 1) != 0;
  for (const AxisName& row : kAxes) {
    const int axis = plan.mesh.AxisIndex(row.mesh);
    if (axis >= 0 && (group.axes >> axis & 1) != 0 &&
        plan.mesh.axes[static_cast<std::size_t>(axis)].size > 1)
      return of_data && row.axis == CommAxis::kContext ? CommAxis::kData : row.axis;
  }
  return CommAxis::kTensor;
}

CommAxis AxisOfTransfer(const ir::Plan& plan, int mesh_axis) {
  for (const AxisName& row : kAxes) {
    if (plan.mesh.AxisIndex(row.mesh) == mesh_axis) return row.axis;
  }
  return CommAxis::kPipeline;
}

}  // namespace orrery
