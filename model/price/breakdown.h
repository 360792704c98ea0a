// SPDX-License-Identifier: Apache-2.0
// Where the time of a step goes, on the rank that computes longest: one definition for every engine and report.
//
// At each instant the rank is in one of these states:
//   compute, optimizer  a kernel runs; of the time of a kernel that a message slows down, only the part that it
//                       takes at full speed
//   tensor, context, data, pipeline  exposed communication by axis: no kernel runs because one waits for a message of that
//                       axis, or a kernel loses time to one
//   host                the device waits for the thread that issues its kernels
//   bubble              the rank waits for other ranks, with nothing of its own in flight
//   offload             exposed: no kernel runs because one waits for a copy between device and host, or for the CPU
//                       that updates parameters whose states are on the host
//   fixed               once per step, outside of the plan: data loading, logging
//   contention          what the step takes longer because messages share links; all other terms are those of the same
//                       step with every message at its price. In closed form: beside tensor groups that span nodes
// Their sum is the time of the step.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "model/plan/ir/plan.h"

namespace orrery {

// What ranks exchange messages for; kData also covers sharded weights, kContext keys and values of shared sequences.
enum class CommAxis : uint8_t { kTensor, kData, kPipeline, kContext };
inline constexpr std::array kCommAxes = {CommAxis::kTensor, CommAxis::kContext, CommAxis::kData,
                                         CommAxis::kPipeline};

// Seconds.
struct Breakdown {
  double compute = 0;
  double tensor = 0, context = 0, data = 0, pipeline = 0;
  double host = 0;
  double bubble = 0;
  double optimizer = 0;
  double offload = 0;
  double fixed = 0;
  double contention = 0;
  // Communication behind compute, not part of the step.
  double tensor_hidden = 0, context_hidden = 0, data_hidden = 0, pipeline_hidden = 0;
  double offload_hidden = 0;  // copies and updates of the CPU, likewise

  double Total() const {
    return compute + Exposed() + host + bubble + optimizer + offload + fixed + contention;
  }
  double Exposed() const { return tensor + context + data + pipeline; }
  double Hidden() const { return tensor_hidden + context_hidden + data_hidden + pipeline_hidden; }
};

// Seconds of a step, or of a part of it, on the rank that computes longest; the parts add up to `total`.
struct StepTime : Breakdown {
  double total = 0;
  double low = 0, high = 0;  // 80 % interval; NaN: not known
};

double Breakdown::*ExposedOf(CommAxis axis);
double Breakdown::*HiddenOf(CommAxis axis);

// "data-parallel communication".
const char* AxisWords(CommAxis axis);

struct BreakdownTerm {
  const char* key;    // in JSON: "compute_s"
  const char* name;   // in a sentence: "data-parallel communication"
  const char* title;  // of a row: what it holds
  double Breakdown::*seconds;
};
// Every term, in the order of reports.
std::span<const BreakdownTerm> BreakdownTerms();

// The axis of a group's collectives, or of transfers along a mesh axis.
CommAxis AxisOfGroup(const ir::Plan& plan, const ir::Group& group);
CommAxis AxisOfTransfer(const ir::Plan& plan, int mesh_axis);

}  // namespace orrery
