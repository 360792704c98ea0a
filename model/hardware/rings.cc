// SPDX-License-Identifier: Apache-2.0
// Packs directed Hamiltonian cycles into a multigraph of links by depth-first search.
#include "model/hardware/rings.h"

#include <algorithm>
#include <numeric>

namespace orrery {
namespace {

// Bounds the search on dense meshes; the sparse ones in use need a few thousand steps.
constexpr int kStepBudget = 400'000;

class RingPacker {
 public:
  RingPacker(const std::vector<MeshLink>& mesh, int n, bool relays)
      : n_(n), relays_(relays), free_(n * n, 0), path_{0} {
    for (const MeshLink& link : mesh) {
      if (link.a >= n || link.b >= n) continue;
      free_[link.a * n + link.b] += link.count;
      free_[link.b * n + link.a] += link.count;
    }
    bound_ = RingsStillPossible() - (IsUndivided() ? 1 : 0);
  }

  std::vector<std::vector<int>> Pack() {
    if (bound_ > 0) Extend(1u, false);
    return best_;
  }

 private:
  // Each ring leaves and enters every GPU once.
  int RingsStillPossible() const {
    int possible = 1 << 30;
    for (int v = 0; v < n_; ++v) {
      int out = 0, in = 0;
      for (int w = 0; w < n_; ++w) out += free_[v * n_ + w], in += free_[w * n_ + v];
      possible = std::min({possible, out, in});
    }
    return possible;
  }

  // One link between any two of four or six GPUs: rings never take all of them (Bermond, Faber, J. Combinatorial Theory B 21,
  // 1976, pp. 146-155; of other numbers they do: Tillson, ibid. 29, 1980, pp. 68-74). Trying takes 2 ms.
  bool IsUndivided() const {
    const auto links = std::ranges::count(free_, 1);
    return (n_ == 4 || n_ == 6) && links == n_ * (n_ - 1) &&
           links == std::reduce(free_.begin(), free_.end());
  }

  int Best() const { return static_cast<int>(best_.size()); }
  bool Finished() { return Best() == bound_ || ++steps_ > kStepBudget; }

  // Extends the current path by every free link; `visited` is a bit set. Rings are taken in lexicographic order, so that
  // no set of rings is tried in two orders: while the path is the beginning of the previous ring (`tied`), it goes on
  // behind or along it.
  void Extend(unsigned visited, bool tied) {
    if (Finished()) return;
    const int last = path_.back();
    if (static_cast<int>(path_.size()) == n_) return Close(last);
    const int least = tied ? rings_.back()[path_.size()] : 1;
    for (int next = least; next < n_; ++next) {
      if (visited >> next & 1u) continue;
      EachWay(last, next, [&] {
        path_.push_back(next);
        Extend(visited | 1u << next, tied && next == least);
        path_.pop_back();
      });
    }
  }

  // Takes the links of every way from `a` to `b` in turn: a link of their own, else through a third GPU.
  template <class Then>
  void EachWay(int a, int b, const Then& then) {
    int& direct = free_[a * n_ + b];
    if (direct > 0) {
      --direct;
      then();
      ++direct;
      return;
    }
    for (int by = 0; relays_ && by < n_; ++by) {
      int &in = free_[a * n_ + by], &out = free_[by * n_ + b];
      if (by == a || by == b || in == 0 || out == 0) continue;
      --in, --out;
      then();
      ++in, ++out;
    }
  }

  void Close(int last) {
    EachWay(last, 0, [&] { Complete(); });
  }

  void Complete() {
    rings_.push_back(path_);
    if (rings_.size() > best_.size()) best_ = rings_;
    if (static_cast<int>(rings_.size()) + RingsStillPossible() > Best()) {
      std::vector<int> saved = {0};
      saved.swap(path_);
      Extend(1u, true);
      saved.swap(path_);
    }
    rings_.pop_back();
  }

  int n_;
  bool relays_;
  std::vector<int> free_;  // links left from row to column
  std::vector<int> path_;
  std::vector<std::vector<int>> rings_, best_;
  int bound_ = 0;
  int steps_ = 0;
};

}  // namespace

std::vector<std::vector<int>> FindRings(const std::vector<MeshLink>& mesh, int n) {
  if (n < 2 || n > 32) return {};
  return RingPacker(mesh, n, false).Pack();
}

int PackedRings(const std::vector<MeshLink>& mesh, int n) {
  return static_cast<int>(FindRings(mesh, n).size());
}

int RelayedRings(const std::vector<MeshLink>& mesh, int n) {
  if (n < 2 || n > 32) return 0;
  return static_cast<int>(RingPacker(mesh, n, true).Pack().size());
}

}  // namespace orrery
