// SPDX-License-Identifier: Apache-2.0
// CUDA graphs for what repeats: the ops of a stream between two waits, events, copies or updates of parameters are
// gathered, run plainly once, captured when they come again, and from then on launched as one graph.
//
// What changes between two executions of the same ops, and how it is kept out of a graph:
// * the step's number. Dropout (dropout and bias-residual ops, attention) reads it from Queue::step, which is written in
//   the order of the stream before a step's first op. Adam's and LAMB's bias corrections and the loss scale's state take
//   it from the host: they, and all else that updates parameters (where a learning rate may change), are never captured.
// * the first sample of a micro-batch (dropout), the seed, addresses of operands: part of the key. Micro-batches share
//   a graph where these are equal; else each has its own.
// * loss scale, gradient norm and clipping, tokens, positions and labels: kernels read them from device memory anyway.
// * everything else that kernels are given follows from the op, the unit and the rank's coordinates: the first two are
//   part of the key, the third never changes on a device.
// * scratch memory and workspace belong to the stream, and lie where they lay.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/device/cuda/pairs.h"

namespace orrery::cuda {

// What gathering asks of the device for one stream. Errors are cpu::KernelError.
class Capture {
 public:
  virtual ~Capture() = default;
  virtual void SetStep(int64_t step) = 0;  // into Queue::step, behind what was enqueued before
  virtual void Begin() = 0;                // what is started from here on is recorded, not run
  virtual int End() = 0;                   // the number of what was recorded, ready to be launched
  virtual void Abandon() = 0;              // after an error between Begin and End
  virtual void Launch(int graph) = 0;
  virtual void Refused(const std::string& why) = 0;  // ops run plainly from here on
};

class OpStream {
 public:
  // `capture` null: ops run plainly.
  OpStream(const Queue& queue, Capture* capture) : pairs_(queue), capture_(capture) {}

  // `args.op`, `args.unit` and what they refer to must stay as they are for as long as this is.
  void Run(const cpu::KernelArgs& args);
  void Flush();  // everything is enqueued
  // For marks, whose devices take no graphs: each ends what is gathered.
  void Behind(std::function<void()> action);

 private:
  struct Entry {
    bool seen = false;  // ran plainly: algorithms are chosen, limits raised, kernels loaded
    int graph = -1;
  };
  using Key = std::vector<uint64_t>;
  using Ops = std::vector<cpu::KernelArgs>;

  static Key KeyOf(const Ops& run);
  Entry* EntryOf(const Ops& run);  // null: not worth one
  void Issue();                    // what was gathered
  void RunPlainly(const Ops& run);
  int Record(const Ops& run);

  OpPairs pairs_;
  Capture* capture_;
  bool refused_ = false;
  int64_t step_ = -1;
  Ops run_;  // gathered
  std::map<Key, Entry> entries_;
};

}  // namespace orrery::cuda
