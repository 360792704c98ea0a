// SPDX-License-Identifier: Apache-2.0
// The loop that executes a step.
#include "runtime/exec/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "runtime/exec/index.h"

namespace orrery::exec {
namespace {

using comm::Collective;
using comm::CollectiveKind;
using ir::Attr;
using ir::OpKind;

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool Computes(const Task& task) { return task.line < 0 && task.channel < 0; }

Collective CollectiveOf(const Task& task, const cpu::Operand& out, const cpu::Operand& in,
                        int64_t members) {
  Collective c;
  c.in = in.data;
  c.out = out.data;
  c.dtype = out.dtype;
  c.maximum = task.op->attrs.Int(Attr::kReduceOp) == 1;
  c.tag = task.op->tag;
  if (task.op->kind == OpKind::kAllReduce) c.kind = CollectiveKind::kAllReduce;
  if (task.op->kind == OpKind::kAllGather) c.kind = CollectiveKind::kAllGather;
  if (task.op->kind == OpKind::kReduceScatter) c.kind = CollectiveKind::kReduceScatter;
  c.n = std::min(in.n, out.n);
  if (task.op->kind == OpKind::kAllToAll) {
    c.kind = CollectiveKind::kAllToAll;
    c.n /= members;
  }
  return c;
}

}  // namespace

Executor::Executor(const ir::Plan& plan, comm::Endpoint* endpoint, train::DataSource* data,
                   const ExecuteOptions& options)
    // Poison, 0xff..: a NaN in every floating type.
    : image_(MakeRankImage(plan, endpoint->rank(), options.accelerator, options.poison ? 0xff : 0,
                           options.stops)),
      endpoint_(endpoint),
      accelerator_(options.accelerator),
      data_(data),
      options_(options) {
  train::InitialFrom from(options.seed, options.given);
  from.stops = options.stops;
  Initialise(&image_, from, options.initial_loss_scale);
  Push();
  comm::Wait(endpoint, endpoint->Barrier().get(), options.deadline_s, "all ranks to be ready");
  for (const Line& line : image_.lines) lines_.push_back(endpoint_->Join(line.key, line.members));
  loss_ = image_.StepView("loss");
  gradient_norm_ = image_.StepView("gnorm");
  for (const Task& task : image_.tasks) {
    if (task.op->kind == OpKind::kLossScale) loss_scale_ = image_.operands[At(task.out_begin)];
  }
  if (loss_.data == nullptr) throw std::runtime_error("the plan has no view `loss`");
  streams_.resize(image_.queues.size());
}

Executor::~Executor() = default;

StepResult Executor::Step() {
  BeginStep();
  const int64_t begin = Now();
  while (left_ > 0) {
    const int64_t before = Now();
    bool moved = false;
    for (std::size_t s = 0; s < streams_.size(); ++s) moved |= MoveStream(s);
    const int32_t task = NextCompute();
    if (moved) communicate_ns_ += Now() - before;
    if (task >= 0) {
      RunCompute(task);
      idle_since_ = 0;
    } else if (moved) {
      idle_since_ = 0;
    } else if (left_ > 0) {
      Idle(before);
    }
  }
  if (accelerator_ != nullptr) {
    FinishOnDevice();
    if (options_.marks) ReadMarks(begin);
  }
  return Result(begin, Now());
}

void Executor::BeginStep() {
  ++step_;
  done_.assign(image_.tasks.size(), 0);
  spans_.assign(image_.tasks.size(), {});
  for (Stream& stream : streams_) stream = Stream{};
  left_ = image_.tasks.size();
  scale_used_ = ReadScalar(loss_scale_, 1);
  if (accelerator_ != nullptr && options_.marks)
    accelerator_->Mark(2 * static_cast<int>(image_.tasks.size()), 0);
  idle_since_ = compute_ns_ = communicate_ns_ = wait_ns_ = load_ns_ = 0;
}

bool Executor::Ready(const Task& task) const {
  for (int32_t w = task.wait_begin; w < task.wait_end; ++w) {
    if (done_[At(image_.waits[At(w)])] == 0) return false;
  }
  return true;
}

// Drives the communication of a stream forward, and starts what comes next on it.
bool Executor::MoveStream(std::size_t s) {
  Stream& stream = streams_[s];
  const std::vector<int32_t>& queue = image_.queues[s];
  bool moved = false;
  for (;;) {
    if (stream.active >= 0) {
      if (!stream.operation->Test()) return moved;
      Finish(&stream, stream.active, Now());
      moved = true;
    }
    if (At(stream.next) == queue.size()) return moved;
    const int32_t head = queue[At(stream.next)];
    const Task& task = image_.tasks[At(head)];
    if (Computes(task) || !Ready(task)) return moved;
    StartCommunication(&stream, head);
    moved = true;
  }
}

void Executor::StartCommunication(Stream* stream, int32_t id) {
  const Task& task = image_.tasks[At(id)];
  spans_[At(id)].begin = Now();
  void* on = nullptr;
  if (accelerator_ != nullptr) {
    AwaitOthers(task);
    on = accelerator_->StreamHandle(task.op->stream);
    endpoint_->SetStream(on);
  }
  if (task.line >= 0) {
    Collective collective =
        CollectiveOf(task, image_.operands[At(task.out_begin)], image_.operands[At(task.in_begin)],
                     static_cast<int64_t>(image_.lines[At(task.line)].members.size()));
    collective.stream = on;
    stream->operation = lines_[At(task.line)]->Start(collective);
  } else {
    const bool sends = task.op->kind == OpKind::kSend;
    const cpu::Operand& x = image_.operands[At(sends ? task.in_begin : task.out_begin)];
    const int64_t bytes = x.n * ir::DtypeBytes(x.dtype);
    stream->operation = sends ? endpoint_->Send(task.peer, task.channel, x.data, bytes)
                              : endpoint_->Receive(task.peer, task.channel, x.data, bytes);
  }
  if (accelerator_ != nullptr) endpoint_->SetStream(nullptr);  // what others send lies on the host
  stream->active = id;
}

void Executor::Finish(Stream* stream, int32_t id, int64_t now) {
  spans_[At(id)].end = now;
  if (accelerator_ != nullptr) {
    const Task& task = image_.tasks[At(id)];
    if (options_.marks) accelerator_->Mark(2 * id + 1, task.op->stream);
    if (task.event >= 0) accelerator_->Record(task.event, task.op->stream);
  }
  done_[At(id)] = 1;
  --left_;
  ++stream->next;
  stream->active = -1;
  stream->operation.reset();
}

// The earliest issued computing op that may run; -1: none.
int32_t Executor::NextCompute() const {
  int32_t best = -1;
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    const Stream& stream = streams_[s];
    if (stream.active >= 0 || At(stream.next) == image_.queues[s].size()) continue;
    const int32_t head = image_.queues[s][At(stream.next)];
    if (best >= 0 && head > best) continue;
    const Task& task = image_.tasks[At(head)];
    if (Computes(task) && Ready(task)) best = head;
  }
  return best;
}

void Executor::RunCompute(int32_t id) {
  const Task& task = image_.tasks[At(id)];
  const int64_t begin = Now();
  if (accelerator_ != nullptr) AwaitOthers(task);
  if (task.kernel == nullptr) {
    Load(task);
  } else {
    const cpu::Operand* all = image_.operands.data();
    const cpu::KernelArgs args{*task.op,
                               {all + task.out_begin, all + task.in_begin},
                               {all + task.in_begin, all + task.in_end},
                               image_.coords,
                               step_,
                               task.unit,
                               image_.plan->params,
                               options_.seed,
                               task.first_sample};
    Issue(task, args);
  }
  const int64_t end = Now();
  spans_[At(id)].begin = begin;
  compute_ns_ += end - begin;
  if (task.kernel == nullptr) load_ns_ += end - begin;
  Finish(&streams_[task.op->stream], id, end);
}

void Executor::Issue(const Task& task, const cpu::KernelArgs& args) {
  if (accelerator_ == nullptr) return task.kernel(args);
  const int stream = task.op->stream;
  if (task.across) {
    const cpu::Operand &to = args.out[0], &from = args.in[0];
    return accelerator_->CopyAcross(to.data, from.data, from.n * ir::DtypeBytes(from.dtype),
                                    stream);
  }
  if (task.on_host) return accelerator_->RunOnHost(args, task.kernel, stream);
  accelerator_->Run(args, stream);
}

void Executor::Load(const Task& task) {
  const cpu::Operand& out = image_.operands[At(task.out_begin)];
  train::LoadPlace place{step_, task.first_sample, 0};
  if (const int64_t axis = task.op->attrs.Int(Attr::kAxis); axis >= 0)
    place.first_position = image_.coords.at(At(axis)) * task.op->attrs.Int(Attr::kSeq);
  place.positions = ir::PositionsOf(task.op->attrs, image_.coords);
  samples_.resize(At(out.n));
  data_->Load(*task.op, place, samples_);
  if (accelerator_ == nullptr) return FromNumbers(samples_, out);
  staged_.resize(At(out.n * ir::DtypeBytes(out.dtype)));
  FromNumbers(samples_, {staged_.data(), out.n, out.dtype});
  accelerator_->Upload(out.data, staged_.data(), static_cast<int64_t>(staged_.size()),
                       task.op->stream);
}

// What is enqueued next on the task's stream starts after those that it waits for.
void Executor::AwaitOthers(const Task& task) {
  const auto id = static_cast<int>(&task - image_.tasks.data());
  for (int32_t w = task.wait_begin; w < task.wait_end; ++w) {
    const Task& other = image_.tasks[At(image_.waits[At(w)])];
    accelerator_->Await(other.event, task.op->stream);
  }
  if (options_.marks) accelerator_->Mark(2 * id, task.op->stream);
}

// All is enqueued; the device and the other ranks may still fail.
void Executor::FinishOnDevice() {
  idle_since_ = 0;
  const int64_t begin = Now();
  while (!accelerator_->Finished()) {
    Idle(Now());
  }
  wait_ns_ = 0;
  compute_ns_ += Now() - begin;
}

// Marks on the host's clock: the first one was passed when the step began.
void Executor::ReadMarks(int64_t begin) {
  const int64_t origin = begin - accelerator_->MarkTime(2 * static_cast<int>(spans_.size()));
  for (std::size_t t = 0; t < spans_.size(); ++t) {
    spans_[t] = {origin + accelerator_->MarkTime(2 * static_cast<int>(t)),
                 origin + accelerator_->MarkTime(2 * static_cast<int>(t) + 1)};
  }
}

void Executor::Fetch() {
  if (accelerator_ != nullptr)
    accelerator_->Download(image_.arena.get(), image_.base, image_.layout.step_bytes);
}

void Executor::Push() {
  if (accelerator_ == nullptr) return;
  constexpr int64_t kPiece = int64_t{16}
                             << 20;  // what waits in pinned memory: one block of it, used again
  for (int64_t at = 0; at < image_.layout.step_bytes; at += kPiece) {
    const int64_t bytes = std::min(kPiece, image_.layout.step_bytes - at);
    accelerator_->Upload(image_.base + at, image_.arena.get() + at, bytes, 0);
    accelerator_->Synchronize();
  }
}

void Executor::Idle(int64_t now) {
  if (idle_since_ == 0) idle_since_ = now;
  endpoint_->Idle();
  std::this_thread::yield();
  const int64_t after = Now();
  wait_ns_ += after - now;
  if (static_cast<double>(after - idle_since_) > options_.deadline_s * 1e9) Overdue();
}

// Names the ranks that do not answer, or else what this one waits for.
void Executor::Overdue() {
  std::string waits;
  for (const Stream& stream : streams_) {
    if (stream.active < 0) continue;
    waits += fmt::format("{}{}", waits.empty() ? "" : ", ",
                         image_.Describe(image_.tasks[At(stream.active)]));
  }
  const std::string silent = endpoint_->Silent();
  throw comm::CommError(fmt::format(
      "step {}: waited {:.3g} s for {}; {}", step_, options_.deadline_s,
      waits.empty() ? "an op whose inputs never came" : waits,
      silent.empty() ? "all ranks answer, none of them gets on" : "no answer from " + silent));
}

double Executor::ReadScalar(const cpu::Operand& view, double absent) const {
  if (view.data == nullptr) return absent;
  if (accelerator_ == nullptr) return ToNumbers({view.data, 1, view.dtype}).front();
  uint64_t bits = 0;
  accelerator_->Download(&bits, view.data, ir::DtypeBytes(view.dtype));
  return ToNumbers({&bits, 1, view.dtype}).front();
}

StepResult Executor::Result(int64_t begin, int64_t end) const {
  StepResult result;
  result.loss = ReadScalar(loss_, 0);
  result.gradient_norm = std::sqrt(ReadScalar(gradient_norm_, 0)) / scale_used_;
  result.seconds = static_cast<double>(end - begin) * 1e-9;
  result.compute_s = static_cast<double>(compute_ns_) * 1e-9;
  result.communicate_s = static_cast<double>(communicate_ns_) * 1e-9;
  result.wait_s = static_cast<double>(wait_ns_) * 1e-9;
  result.load_s = static_cast<double>(load_ns_) * 1e-9;
  return result;
}

}  // namespace orrery::exec
