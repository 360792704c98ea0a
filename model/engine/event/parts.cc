// SPDX-License-Identifier: Apache-2.0
// Joins replicas that share a link.
#include "model/engine/event/parts.h"

#include <map>
#include <numeric>

#include "model/engine/event/index.h"

namespace orrery::sim {
namespace {

class PartFinder {
 public:
  PartFinder(const ir::Plan& plan, const CommunicatorTable& table) : table_(table) {
    const AxisMask replicas = Replicas(plan.mesh);
    std::map<std::vector<int>, int32_t> numbers;
    for (const int64_t rank : table.ranks) {
      std::vector<int> place = plan.mesh.Coords(rank);
      for (std::size_t axis = 0; axis < place.size(); ++axis)
        if ((replicas >> axis & 1) == 0) place[axis] = 0;
      const auto number = static_cast<int32_t>(numbers.size());
      replica_.push_back(numbers.try_emplace(std::move(place), number).first->second);
    }
    joined_.resize(numbers.size());
    std::iota(joined_.begin(), joined_.end(), 0);
  }

  Parts Find() {
    const Parts whole = OnePart(replica_.size());
    if (joined_.size() == 1 || table_.cores > 0 || table_.rates) return whole;
    Parts parts;
    if (!FindCommunicatorsAcross(&parts)) return whole;
    JoinByLinks(parts);
    std::map<int32_t, std::size_t> numbers;
    for (std::size_t r = 0; r < replica_.size(); ++r) {
      const auto [at, added] = numbers.try_emplace(Root(replica_[r]), parts.ranks.size());
      if (added) parts.ranks.emplace_back();
      parts.ranks[at->second].push_back(static_cast<uint32_t>(r));
    }
    return parts.ranks.size() == 1 ? whole : parts;
  }

 private:
  int32_t Root(int32_t replica) {
    while (joined_[At(replica)] != replica)
      replica = joined_[At(replica)] = joined_[At(joined_[At(replica)])];
    return replica;
  }

  // False: a message of some replicas only may begin before the others have come as far.
  bool FindCommunicatorsAcross(Parts* parts) {
    parts->across.assign(table_.communicators.size(), 0);
    replica_of_.assign(table_.communicators.size(), -1);
    std::vector<std::vector<char>> seen(table_.communicators.size());
    std::vector<std::size_t> count(table_.communicators.size(), 0);
    for (const std::vector<int32_t>& of : table_.of) {
      for (std::size_t r = 0; r < of.size(); ++r) {
        if (of[r] < 0) continue;
        const std::size_t m = At(of[r]);
        if (replica_of_[m] < 0) replica_of_[m] = replica_[r];
        if (replica_of_[m] == replica_[r] && seen[m].empty()) continue;
        if (seen[m].empty()) {
          seen[m].assign(joined_.size(), 0);
          seen[m][At(replica_of_[m])] = 1;
          count[m] = 1;
          parts->across[m] = 1;
        }
        count[m] += seen[m][At(replica_[r])] == 0;
        seen[m][At(replica_[r])] = 1;
      }
    }
    for (std::size_t m = 0; m < count.size(); ++m)
      if (parts->across[m] && count[m] < joined_.size()) return false;
    return true;
  }

  void JoinByLinks(const Parts& parts) {
    std::vector<int32_t> user(table_.network->links(), -1);
    const auto join = [&](int32_t replica, LinkId link) {
      int32_t& first = user[At(link)];
      if (first < 0) first = replica;
      joined_[At(Root(replica))] = Root(first);
    };
    for (std::size_t m = 0; m < table_.communicators.size(); ++m) {
      if (parts.across[m] || replica_of_[m] < 0) continue;
      const Communicator& communicator = table_.communicators[m];
      const std::size_t end = m + 1 < table_.communicators.size()
                                  ? At(table_.communicators[m + 1].first_exchange)
                                  : table_.exchanges.size();
      for (std::size_t e = At(communicator.first_exchange); e < end; ++e) {
        if (table_.exchanges[e].route < 0) continue;
        for (const auto& phase : table_.routes[At(table_.exchanges[e].route)].phases) {
          for (const Route::Job& job : phase) {
            for (const net::LinkUse& use : table_.network->UsesOf(job.path))
              join(replica_of_[m], use.link);
          }
        }
      }
    }
  }

  const CommunicatorTable& table_;
  std::vector<int32_t> replica_;     // by executed rank
  std::vector<int32_t> joined_;      // by replica: one that it is joined with
  std::vector<int32_t> replica_of_;  // by communicator: of its first member
};

}  // namespace

AxisMask Replicas(const ir::Mesh& mesh) {
  unsigned mask = 0;
  for (const char* name : {"dp", "dpo"}) {
    const int axis = mesh.AxisIndex(name);
    if (axis >= 0) mask |= 1u << axis;
  }
  return static_cast<AxisMask>(mask);
}

Parts OnePart(std::size_t ranks) {
  Parts whole;
  whole.ranks.emplace_back(ranks);
  std::iota(whole.ranks.front().begin(), whole.ranks.front().end(), 0U);
  return whole;
}

Parts FindParts(const ir::Plan& plan, const CommunicatorTable& table) {
  return PartFinder(plan, table).Find();
}

}  // namespace orrery::sim
