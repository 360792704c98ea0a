// SPDX-License-Identifier: Apache-2.0
// Executes one rank's share of a plan: ops, streams, groups and buffers, nothing else is known
// here.
//
// One thread walks all streams. The head of a stream may start when the waits that byte hazards
// demand are done. Communication is started as soon as that holds and driven forward between
// computing ops; a computing op is run when it may, the earliest issued first. Nothing ever blocks
// on one stream while another could move, which is what one issuing thread per stream would do:
// ir::Verify with window 0 proves a plan free of deadlock under this rule.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/data/data_source.h"
#include "runtime/device/accelerator.h"
#include "runtime/exec/rank_image.h"

namespace orrery::exec {

struct ExecuteOptions {
  uint64_t seed = 1;  // of initial parameters and dropout
  const train::GivenWeights* given =
      nullptr;  // parameters that begin otherwise; outlives the executor
  // Asked while memory is touched and initial parameters are made, which may last; true: no step will be made with them.
  bool (*stops)() = nullptr;
  double initial_loss_scale = 65536;
  double deadline_s = 120;  // longest wait without anything to do
  bool poison = false;      // fill the arena with NaN first: finds reads of what nobody wrote
  // Null: kernels run on the calling thread. Else the endpoint moves device memory where it is given
  // a stream.
  device::Accelerator* accelerator = nullptr;
  bool marks = true;  // devices: take the spans of ops
};

// When a task ran: nanoseconds of the monotonic clock. Communication: from its start to the moment
// at which its completion was seen.
struct OpSpan {
  int64_t begin = 0, end = 0;
};

struct StepResult {
  double loss = 0;
  double gradient_norm = 0;  // of the true gradient (loss scale divided out); 0: the plan has none
  double seconds = 0;
  double compute_s = 0;      // inside kernels and loads
  double communicate_s = 0;  // starting communication and driving it forward
  double wait_s = 0;         // nothing to run
  double load_s = 0;         // inside loads, waiting for input included: a part of compute_s
};

class Executor {
 public:
  // Joins the plan's communicators: all ranks construct theirs at the same time.
  Executor(const ir::Plan& plan, comm::Endpoint* endpoint, train::DataSource* data,
           const ExecuteOptions& options);
  ~Executor();

  // One training step, numbered from 1. Throws comm::CommError, cpu::KernelError, train::DataError.
  StepResult Step();

  int64_t steps_done() const { return step_; }
  void set_steps_done(int64_t steps) { step_ = steps; }  // resuming
  const RankImage& image() const { return image_; }
  RankImage* mutable_image() { return &image_; }
  const std::vector<OpSpan>& spans() const { return spans_; }  // of the last step, by task
  int64_t arena_bytes() const { return image_.layout.arena_bytes; }

  // Devices: bring image().arena up to date with what outlives a step, and the other way round.
  void Fetch();
  void Push();

 private:
  struct Stream {
    int32_t next = 0;     // position in its queue
    int32_t active = -1;  // task under way
    comm::OperationPtr operation;
  };

  void BeginStep();
  bool Ready(const Task& task) const;
  bool MoveStream(std::size_t s);  // true: something finished or started
  void StartCommunication(Stream* stream, int32_t task);
  void Finish(Stream* stream, int32_t task, int64_t now);
  int32_t NextCompute() const;
  void RunCompute(int32_t task);
  void Issue(const Task& task, const cpu::KernelArgs& args);
  void Load(const Task& task);
  void Idle(int64_t now);
  [[noreturn]] void Overdue();
  void AwaitOthers(const Task& task);
  void FinishOnDevice();
  void ReadMarks(int64_t begin);
  double ReadScalar(const cpu::Operand& view, double absent) const;
  StepResult Result(int64_t begin, int64_t end) const;

  RankImage image_;
  comm::Endpoint* endpoint_;
  device::Accelerator* accelerator_;
  train::DataSource* data_;
  ExecuteOptions options_;
  std::vector<comm::CommunicatorPtr> lines_;  // by RankImage::lines
  cpu::Operand loss_, gradient_norm_, loss_scale_;
  std::vector<double> samples_;
  std::vector<std::byte> staged_;

  int64_t step_ = 0;
  std::vector<Stream> streams_;
  std::vector<uint8_t> done_;  // by task
  std::vector<OpSpan> spans_;
  std::size_t left_ = 0;   // tasks
  double scale_used_ = 1;  // loss scale of this step
  int64_t idle_since_ = 0, compute_ns_ = 0, communicate_ns_ = 0, wait_ns_ = 0, load_ns_ = 0;
};

}  // namespace orrery::exec
