// SPDX-License-Identifier: Apache-2.0
// The fastest layout of a job at one node count after another: what a search over clusters asks hundreds of times.
//
// Same answer as the first row of SearchOnly() at that node count and batch, except that plans above memory_nearly_full
// never count: a run of weeks keeps the margin; and layers are moved between the stages of fewer layouts: the last few that were
// the fastest on the way, and those near it where uplinks are narrow. It takes a small part of the time, because splits are visited in the
// order of their lower bounds and everything above the best known time is skipped, where a search also keeps runners-up,
// near misses and the best without a memory limit.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>

#include "model/twin/evaluator.h"

namespace orrery {

// Safe for concurrent use with a ShapeCache of each thread's own.
class FastestLayouts {
 public:
  // Nodes and batches of the request do not matter, its objective is the time of a step. Request and profiles must
  // outlive it. Throws InputError when
  // the request contradicts itself. `memory`: of the same model, workload and allocation; null: its own.
  FastestLayouts(const SearchRequest& request, const Profiles& profiles,
                 std::shared_ptr<MemoryModel> memory = nullptr);

  struct Found {
    Candidate candidate;  // closed form; memory exact, with the lowered plan
    Job job;
    double seconds = 0;  // per sequence, with its readers
  };
  // The layout and batch with the fewest seconds per sequence. Of a single batch all its micro-batches are looked at, of a
  // range MicroBatchSizes() and, per layout, the most of them that a batch of the range has, and fewer where memory may gain.
  // nullopt: no layout is legal and fits with the margin.
  // `reader`: tokens/s that the input of each replica delivers; a layout takes at least as long as its replicas are fed.
  // 0: no limit; of layouts that wait for it equally long the one that computes least. `below`: seconds per sequence; where no
  // layout takes less, nullopt in less time than finding the fastest.
  // Throws InputError: the topology does not have that many nodes.
  std::optional<Found> Find(int64_t nodes, const BatchSpan& batches, ShapeCache* shapes,
                            double reader = 0,
                            double below = std::numeric_limits<double>::infinity()) const;

  static constexpr std::size_t kRivals = 6;
  // Gives what was found the step time of every answer (predict.h), or puts in its place the layout of the same nodes and batch
  // that is faster so: those are looked at whose closed form says that they may be, as a search looks at them (refine.h), at
  // most `most_rivals`. Returns the effort of the simulations. The plan is gone afterwards; what shares links is not kept.
  double Settle(Found* found, ShapeCache* shapes, double reader = 0,
                std::size_t most_rivals = kRivals) const;

  // Puts the fastest layout of the same nodes and batch in the place of what was found, with layers moved between the stages of
  // all that come near it, by the closed form: as a search does, in more time than Find() takes.
  void MoveMoreLayers(Found* found, ShapeCache* shapes, double reader = 0) const;

  // No layout of any batch computes a sequence in fewer GPU seconds (step time x GPUs / sequences), by the layer tables of
  // `nodes` nodes with micro-batches of MicroBatchSizes(): communication between nodes, bubbles, recomputation and the
  // optimizer left out. Infinity: none is legal.
  double LeastGpuSeconds(int64_t nodes, ShapeCache* shapes) const;

  const std::shared_ptr<MemoryModel>& memory() const { return memory_; }
  // Splits that Find() has looked at so far: what takes its time.
  int64_t looked() const { return looked_; }

 private:
  Candidate Complete(const Job& job, const Entry& entry, Evaluator* evaluator) const;
  class Queue;
  struct Known;
  struct Readers;
  std::optional<Found> FindAmong(int64_t nodes, const BatchSpan& batches, ShapeCache* shapes,
                                 const Readers& readers, double below) const;
  void RunUntil(const std::function<bool(const Entry&)>& taken, const Split& split, int64_t index,
                EvaluateOptions* options, Evaluator* evaluator) const;
  bool AnyBelow(const Queue& all, double fits_in, const Readers& readers, double below,
                Evaluator* evaluator, Found* found) const;
  void AddNearOnes(Queue queue, double fits_in, double below, Evaluator* evaluator,
                   std::vector<Known>* near) const;
  // At the nodes and batch of `found` what fits with the margin and takes fewer seconds per sequence in closed form, with its
  // plan; fastest first, at most so many, without `found` itself.
  std::vector<Candidate> Rivals(const Found& found, double below, double reader, std::size_t most,
                                ShapeCache* shapes) const;
  // The fastest of them with layers moved between its stages, in place of what was found, if that is slower.
  void MoveLayers(const std::vector<Known>& near, const Readers& readers, Evaluator* evaluator,
                  Found* found) const;

  const SearchRequest& request_;
  const Profiles& profiles_;
  const FrameworkPreset& preset_;
  MemoryLimits limits_;
  std::shared_ptr<MemoryModel> memory_;
  mutable KnownKernels kernels_;  // at any number of nodes
  mutable std::atomic<int64_t> looked_{0};
};

}  // namespace orrery
