// SPDX-License-Identifier: Apache-2.0
// The flags that describe a job and a layout, and the job that comes of them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/exchange/setting.h"
#include "model/program/common/flags.h"
#include "model/program/common/job.h"
#include "model/twin/placement.h"
#include "model/twin/space.h"

namespace orrery::cli {

// --model, --nodes, --topology ...
struct JobFlags {
  Flag model, topology, nodes, gpus_per_node, gpu, collectives, global_batch, seq_len, precision,
      fp8, fp8_skip, fp8_weights, optimizer, framework, fact, attention, dropout, memory_limit,
      node_price, lora_rank, lora_alpha, lora_targets, lora_base, slow_node;

  // `several`: --nodes and --global-batch take lists and ranges.
  void Declare(FlagSet* flags, bool take_several);
  bool several = true;
  std::vector<Flag> from;                        // --from FILE: see import_flags.h
  std::shared_ptr<const LoadedModel> own_model;  // in the place of --model
  bool foreign = false;                          // files of other programs are among them
  std::vector<std::string> notes;                // of the answer's head
  exchange::Settings gpu_kinds;                  // that such files ask a scheduler for
  std::optional<Diagnostic> no_model;  // of such files, where they name one that nobody knows
  bool cluster = true;        // declares the flags of the cluster, too; set before Declare()
  bool batch_spans = false;   // a range of batches is one, without what is doubled
  bool default_batch = true;  // a global batch where neither a flag nor the model file names one
  std::vector<Flag*> All();

  // Those that were given, but for --nodes and --global-batch, as words for another command.
  std::string Arguments() const;

  // Model, topology and profiles loaded, defaults filled in and noted. Throws InputError.
  report::Job Resolve() const;
  // The same around a plan text from a file: nodes default to what its ranks fill.
  report::Job Resolve(const ir::Plan& plan, const std::string& file) const;
};

// Of --global-batch "N,A..B": each range as one, ascending; `otherwise` where the flag is not given. For flags that were read.
std::vector<BatchSpan> BatchSpansOf(const Flag& flag, int64_t otherwise);

// Files of other programs, see import_flags.cc.
// The model that the flag names, by its name or its file. Throws InputError.
LoadedModel LoadModelOf(const Flag& flag);

struct LayoutFlags;
void DeclareFrom(JobFlags* job, FlagSet* set);
// Fills the flags that the user left out from the files of --from. `layout` null: of the job alone. Throws InputError with
// file and line. `translate`: --framework stands for another program than the file's, whose facts stay behind; it is called
// once the layout is known, to settle for which.
// `run`: flags of `plan run` that a scenario's section `run` may fill, too, before all others, and settings of a training.
void TakeImports(JobFlags* job, LayoutFlags* layout,
                 const std::function<void()>& translate = nullptr,
                 const std::vector<Flag*>& run = {});

// --tp, --pp, --zero ...: axes of the layout.
struct LayoutFlags {
  Flag tp, pp, dp, dp_outer, vpp, zero, micro_batch, recompute, sequence_parallel, schedule, layout,
      offload, placement;
  Flag cp, cp_method, cp_inner, zigzag;
  Location counted;  // where a file says how many nodes there are; no source: none does

  void Declare(FlagSet* flags, const char* group);
  // Throws InputError. `fabric`: whose hosts --placement may name; null: numbers alone.
  FixedAxes Read(const FabricSpec* fabric = nullptr) const;
  bool searches_placement() const { return placement.given && placement.text == "search"; }
  bool any() const;
  std::vector<Flag*> All();
};

// --plan FILE
void DeclarePlan(Flag* plan, FlagSet* set);
// `--plan FILE` and its like: a plan text that `plan show --ir` printed, in the place of a model and a layout. Throws
// InputError: with place and line where the text is wrong, with what ir::Verify finds, or where the flags also say what
// the plan has already.
ir::Plan ReadPlanFile(const Flag& file, const JobFlags& job, const LayoutFlags& layout);
// Throws InputError: ir::Verify finds something.
void VerifyPlan(const std::string& name, const ir::Plan& plan);

// Throws InputError: a fact that the user states means nothing in layouts of these axes.
void CheckStatedFacts(const LayoutFlags& flags, const FixedAxes& axes, const report::Job& job);
// Throws InputError: a stated layout holds other layers than the model's.
void CheckLayersHeld(const LayoutFlags& flags, const FixedAxes& axes, const ModelSpec& model);
// Throws InputError where the framework refuses the layout: at the flag, or the line of a file, that asks for what it lacks.
void CheckFramework(const LayoutFlags& flags, const FrameworkPreset& preset, const Strategy& s);
// Flags without each of which the refused layout could be had, what asks most closely for what is refused first. Empty: there
// are none, or CheckStrategy() does not say so of this layout.
std::vector<const Flag*> CulpritsOf(const Refusal& refusal, const JobFlags& flags,
                                    const LayoutFlags& layout, const report::Job& job,
                                    const Strategy& s);
// Throws InputError: the refusal of a layout, at the first of these; others that stand in files are named in the hint.
[[noreturn]] void RefuseLayout(const Refusal& refusal, const JobFlags& flags,
                               const LayoutFlags& layout, const report::Job& job,
                               const Strategy& s);
// A framework of the same name up to its '@' that does not refuse it; "": none.
std::string ReleaseThatOffers(const FrameworkPreset& preset, const Strategy& s);
// Takes that one for a framework that the user did not name himself.
void TakeRelease(JobFlags* job, LayoutFlags layout);
// The strategy that the axes name: the framework's defaults for what is not given, and dp (or
// dp_outer) from the number of GPUs. Throws InputError when the degrees do not make up that number.
// `choice`: what --placement search found, by `engine`; empty without it.
Strategy OneStrategy(const LayoutFlags& flags, const report::Job& job,
                     std::optional<PlacementChoice>* choice = nullptr,
                     Engine engine = Engine::kAuto);

}  // namespace orrery::cli
