// SPDX-License-Identifier: Apache-2.0
// Executes any plan in double precision on in-process ranks, in a random order that the plan permits.
//
// An op may run when it heads its stream, its waits are done and, for communication, when every partner's op has
// reached the same point (rendezvous). Nothing here knows a parallelism strategy or the name of a mesh axis.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "model/plan/ir/plan.h"
#include "runtime/data/synthetic.h"
#include "tests/interpreter/kernels.h"

namespace orrery::interpreter {

struct RunOptions {
  train::DataSpec data;
  uint64_t order_seed = 1;  // of the execution order
  double initial_loss_scale =
      1;  // first element of the state of loss_scale ops; the rest starts at 0
};

struct StepResult {
  double loss = 0;
  double gradient_norm =
      0;  // sqrt of the view `gnorm` (loss scale included); 0 where the plan has none
};

class Interpreter {
 public:
  // Throws PlanFault where the plan cannot be laid out.
  Interpreter(const ir::Plan& plan, const RunOptions& options);
  ~Interpreter();
  // One training step. Throws PlanFault on mismatched communication, on deadlock (listing the head of every
  // stream), and when ranks disagree about loss or norm.
  StepResult Step();
  // Values of a whole-step view of one rank, by name.
  std::vector<double> Read(int64_t rank, std::string_view view) const;
  // Overwrites a whole-step view of one rank.
  void Write(int64_t rank, std::string_view view, const std::vector<double>& values);
  int64_t executed() const;  // op instances so far

 private:
  struct Machine;
  std::unique_ptr<Machine> machine_;
};

}  // namespace orrery::interpreter
