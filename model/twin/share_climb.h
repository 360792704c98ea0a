// SPDX-License-Identifier: Apache-2.0
// Moves layers between the stages of a pipeline while that makes the step shorter.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "model/plan/lower/strategy.h"

namespace orrery {

// Relative. Of two ways to share layers that differ by less, a node that is hardly slower would choose the other one; and
// answers print three digits.
inline constexpr double kSameShares = 2e-4;

struct ShareClimb {
  // Seconds of a step whose stages hold so many layers; none: more than `most`, or it cannot be priced. Stages together may
  // hold fewer layers than the model, or one more: a step is no longer for having less to do.
  std::function<std::optional<double>(const std::vector<int64_t>& held, double most)> price;
  std::function<bool(const std::vector<int64_t>& held)> fits;  // stages may hold so many
  std::vector<int64_t> least;                                  // layers that each stage keeps
  bool unequal = false;  // links or layers: several stages may hold the others up together
  int64_t most_priced = 2000;
  int64_t priced = 0;  // steps

  // `held`: layers of the stages of a step that takes `seconds`; what they become. Returns the seconds of that.
  double Run(std::vector<int64_t>* held, double seconds);

 private:
  std::optional<double> Price(const std::vector<int64_t>& held, double most);
  bool DealAgain(int64_t each, std::vector<int64_t>* held, double* seconds);
  bool MoveOne(std::vector<int64_t>* held, double* seconds);
};

// The same of a layout's chunks: first whole stages' shares, then single layers move between chunks: one may be too full on a
// stage that is not. So few layers and chunks that all shares are soon priced: those.
struct LayoutClimb {
  using Shared = std::shared_ptr<const std::vector<int>>;  // layers by chunk
  std::function<std::optional<double>(Shared, double most)> price;
  std::function<bool(Shared)> fits;
  bool unequal = false;
  bool empty = true;  // chunks between the first and the last may lose their last layer
  int64_t most_priced = 4000;
  static constexpr int64_t kMostOfAll = 700;  // shares of the chunks
  int64_t priced = 0;

  // `layout`: of a step that takes `seconds`; what it becomes.
  double Run(const Strategy& s, Shared* layout, double seconds);

 private:
  double TryAll(int64_t least, std::vector<int64_t>* chunks, double seconds);
  double TryRuns(const Strategy& s, Shared* layout, double seconds);
  template <class Spread>
  double Climb(const Spread& spread, std::vector<int64_t> least, std::vector<int64_t>* held,
               double seconds);
};

// Shares of an interleaved pipeline whose layers do not divide by its chunks: those chunks that hold one more follow each other,
// from any place on, and the first and the last chunk hold a layer as any other or give it up for the embedding or the head
// (Strategy::count_embedding, count_head: they do). Where the fuller chunks are spread over a round, each round of
// micro-batches waits for them again; in one piece, one round does, or, a round long, none. Empty: layers divide, or no such pipeline.
std::vector<std::shared_ptr<const std::vector<int>>> RunsOfFullerChunks(int64_t layers,
                                                                        const Strategy& strategy);

// Ways to share layers out over so many chunks, the first and the last perhaps with none, the others with `least`; at most
// `most`.
int64_t CountShares(int64_t layers, std::size_t chunks, int64_t least, int64_t most);

}  // namespace orrery
