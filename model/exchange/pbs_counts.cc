// SPDX-License-Identifier: Apache-2.0
// PBS Pro's select=4:ngpus=8 and Torque's nodes=4:ppn=8:gpus=8 (qsub(1B), pbs_resources(7B)).
#include "model/exchange/pbs_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>
#include <string_view>

#include "model/base/edit_distance.h"
#include "model/base/plain_text.h"
#include "model/exchange/hostfile.h"
#include "model/exchange/launch_words.h"

namespace orrery::exchange {
namespace {

// pbs_resources(7B) of OpenPBS, and Torque's of a node. `chunk`: of a host, which old-style lists hold for the whole job.
struct PbsResource {
  std::string_view name;
  bool chunk = false;
};
constexpr PbsResource kPbsResources[] = {{"accelerator", true},
                                         {"accelerator_memory", true},
                                         {"accelerator_model", true},
                                         {"aoe", true},
                                         {"arch", true},
                                         {"cput"},
                                         {"eoe", true},
                                         {"exclhost"},
                                         {"exec_vnode"},
                                         {"file"},
                                         {"gpus", true},
                                         {"host", true},
                                         {"max_walltime"},
                                         {"mem", true},
                                         {"min_walltime"},
                                         {"mpiprocs", true},
                                         {"naccelerators", true},
                                         {"ncpus", true},
                                         {"nchunk"},
                                         {"ngpus", true},
                                         {"nice"},
                                         {"nodes"},
                                         {"nodect"},
                                         {"ompthreads", true},
                                         {"pcput"},
                                         {"place"},
                                         {"pmem"},
                                         {"ppn", true},
                                         {"preempt_targets"},
                                         {"procs"},
                                         {"pvmem"},
                                         {"qos"},
                                         {"select"},
                                         {"site"},
                                         {"soft_walltime"},
                                         {"software"},
                                         {"start_time"},
                                         {"vmem", true},
                                         {"vnode", true},
                                         {"vntype", true},
                                         {"walltime"}};

const PbsResource* FindResource(std::string_view name) {
  const auto at = std::ranges::find(kPbsResources, name, &PbsResource::name);
  return at == std::end(kPbsResources) ? nullptr : &*at;
}

// "did you mean ngpus?" of "gpu"; "": of none.
std::string ResourceLike(std::string_view name) {
  constexpr std::size_t kHalfEdits = 4;  // two letters
  if (name.size() < 3 || name.size() > 40) return "";
  if (name.find("gpu") != name.npos && name.size() <= 6) return "ngpus";
  const auto near = std::ranges::find_if(kPbsResources, [&](const PbsResource& row) {
    return row.name.size() > 3 && HalfEdits(name, row.name) <= kHalfEdits;
  });
  return near == std::end(kPbsResources) ? "" : std::string(near->name);
}

void NameResource(std::string_view name, const Location& where, JobCounts* counts) {
  if (name.empty() || FindResource(name) != nullptr) return;
  const std::string like = ResourceLike(name);
  counts->document->notes.push_back(
      fmt::format("{}: PBS has no resource {}, unless the site adds it{}", Place(where), name,
                  like.empty() ? "" : fmt::format(": did you mean {}?", like)));
}

int64_t NumberIn(const std::string& text) {
  int64_t number = 0;
  return ParseInteger(text, &number) == NumberFault::kNone ? number : 0;
}

// Of the command, 0: it says none.
int64_t OfCommand(const JobCounts& counts, const char* key) {
  const auto command = std::span(counts.document->settings).first(counts.of_command);
  const auto at = std::ranges::find(command, key, &Setting::key);
  return at == command.end() ? 0 : NumberIn(at->value);
}

}  // namespace

void PbsCounts::Take(const Setting& list, JobCounts* counts) {
  for (const std::string& item : SplitAt(list.value, ',')) {
    const std::size_t equals = item.find('=');
    const std::string name = item.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : item.substr(equals + 1);
    const Setting setting{name, value, list.where, ""};
    const PbsResource* const resource = FindResource(name);
    if (name == "select" || name == "nodes") {
      if (where_ && select_ != (name == "select"))
        throw InputError({{list.where,
                           fmt::format("{} here, and {} in {}", name, select_ ? "select" : "nodes",
                                       Place(*where_)),
                           "PBS takes one of them"}});
      if (where_ && text_ != value)
        throw InputError(
            {{list.where,
              fmt::format("{}={} here, and {} in {}", name, value, text_, Place(*where_)),
              "keep one of them"}});
      select_ = name == "select";
      TakeChunks(value, select_, list.where, counts);
    } else if (name == "place") {
      place_ = setting;
    } else if (resource != nullptr && resource->chunk) {
      if (!old_) old_ = setting;
      if (name == "ngpus" || name == "gpus") old_gpus_ = setting;
    } else {
      NameResource(name, list.where, counts);
    }
  }
}

void PbsCounts::TakeChunks(const std::string& text, bool select, const Location& where,
                           JobCounts* counts) {
  chunks_.clear();
  text_ = text;
  where_ = where;
  for (const std::string& part : SplitAt(text, '+')) {
    const std::vector<std::string> words = SplitAt(part, ':');
    Chunk chunk{words[0], 0};
    const bool named =
        !chunk.count.empty() && std::isalpha(static_cast<unsigned char>(chunk.count[0])) != 0;
    if (named) chunk.count = "1";  // a resource of one chunk, a host of Torque
    for (const std::string& word : std::span(words).subspan(named && select ? 0 : 1)) {
      const std::size_t equals = word.find('=');
      if (equals == std::string::npos) continue;  // Torque's properties of a node
      const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
      if (name == "ngpus" || name == "gpus" || (name == "naccelerators" && chunk.gpus == 0)) {
        if (!IsWhole(value) && value != "0")
          throw InputError(
              {{where, fmt::format("{}: '{}' is no whole number", name, value), "digits alone"}});
        chunk.gpus = NumberIn(value);
      }
      if (name == "mpiprocs" || name == "ppn") chunk.slots = NumberIn(value);
      NameResource(name, where, counts);
    }
    chunks_.push_back(std::move(chunk));
  }
}

void PbsCounts::Count(JobCounts* counts) const {
  if (old_ && where_ && select_)
    throw InputError(
        {{old_->where,
          fmt::format("-l {}={} here, and select in {}", old_->key, old_->value, Place(*where_)),
          "PBS refuses such lists together: write it into the chunks of select"}});
  if (old_gpus_ && !where_) return CountOldStyle(counts);
  if (chunks_.empty()) return;
  const int64_t gpus = chunks_[0].gpus;
  int64_t all = 0;
  for (const Chunk& chunk : chunks_) {
    if (chunk.gpus != gpus) return CountUnlike(counts);
    if (!IsWhole(chunk.count))
      return counts->AddNodes(chunks_.size() > 1 ? text_ : chunk.count, *where_);
    all += NumberIn(chunk.count);
  }
  const bool scatter = place_ && place_->value.find("scatter") != std::string::npos;
  const bool pack = place_ && place_->value.starts_with("pack");
  const int64_t nodes = OfCommand(*counts, "NNODES"), each = OfCommand(*counts, "GPUS_PER_NODE");
  // Chunks are no nodes: the command may know how many share one.
  if (select_ && !scatter && gpus > 0 && nodes > 0 && nodes < all && nodes * each == all * gpus)
    return;
  if (select_ && pack && gpus > 0 && all > 1) {
    counts->AddNodes("1", *where_);
    return counts->Add("GPUS_PER_NODE", std::to_string(all * gpus), *where_);
  }
  if (select_ && !scatter && gpus == 1 && all > 1 && nodes == 0)
    counts->document->notes.push_back(
        fmt::format("{}: {} chunks of one GPU are taken as {} nodes: without place=scatter PBS may "
                    "put several on a node; give --nodes and --gpus-per-node",
                    Place(*where_), all, all));
  counts->AddNodes(std::to_string(all), *where_);
  if (gpus > 0) counts->Add("GPUS_PER_NODE", std::to_string(gpus), *where_);
  if (std::ranges::all_of(chunks_,
                          [&](const Chunk& chunk) { return chunk.slots == chunks_[0].slots; }))
    counts->FillSlots(chunks_[0].slots, *where_);
}

// Nodes of several kinds: a command may take as many GPUs of each as the smallest has.
void PbsCounts::CountUnlike(JobCounts* counts) const {
  int64_t nodes = 0, least = chunks_[0].gpus, most = 0;
  for (const Chunk& chunk : chunks_) {
    nodes += NumberIn(chunk.count);
    least = std::min(least, chunk.gpus);
    most = std::max(most, chunk.gpus);
  }
  const std::string what = fmt::format("chunks of {} and of {} GPUs here", least, most);
  const int64_t own = OfCommand(*counts, "NNODES"), each = OfCommand(*counts, "GPUS_PER_NODE");
  if (own == nodes && each > 0 && each <= least) {
    counts->document->notes.push_back(
        fmt::format("{}: {}: the command takes {} of each", Place(*where_), what, each));
    return;
  }
  if (const int64_t ranks = OfCommand(*counts, "WORLD"); ranks > 0 && own == 0 && each == 0)
    throw InputError({{*where_, fmt::format("{}, and the command starts {} ranks", what, ranks),
                       "chunks with the same ngpus"}});
  if (own > 0 || each > 0)
    throw InputError({{*where_,
                       fmt::format("{}, and the command starts {} on each of {} nodes", what,
                                   each > 0 ? fmt::format("{} ranks", each) : "ranks",
                                   own > 0 ? std::to_string(own) : "all"),
                       "chunks with the same ngpus"}});
  counts->AddNodes(text_, *where_);
}

// A job without chunks has one with all that it asks for, on some systems over as many nodes as that takes.
void PbsCounts::CountOldStyle(JobCounts* counts) const {
  const int64_t all = NumberIn(old_gpus_->value);
  const int64_t nodes = OfCommand(*counts, "NNODES"), each = OfCommand(*counts, "GPUS_PER_NODE");
  if (nodes > 0 && each > 0) {
    if (nodes * each <= all) return;
    throw InputError(
        {{old_gpus_->where,
          fmt::format("{} GPUs here, and the command starts {} ranks", all, nodes * each),
          "a GPU for each rank"}});
  }
  if (all > 0 && nodes == 0 && each == 0) counts->Add("WORLD", old_gpus_->value, old_gpus_->where);
}

}  // namespace orrery::exchange
