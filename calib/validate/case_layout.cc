// SPDX-License-Identifier: Apache-2.0
// Degrees, batch, sharding and products of a row; what a row leaves out follows from the number of GPUs where it can.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "calib/validate/case_cells.h"
#include "model/framework/presets.h"
#include "model/plan/lower/check_low_precision.h"
#include "model/plan/lower/names.h"

namespace orrery {

void AddFact(const std::string& fact, CaseRow* row) {
  const FrameworkReference reference = SplitReference(row->framework);
  row->framework =
      WithFacts(reference.name, reference.facts.empty() ? fact : reference.facts + "," + fact);
}

namespace {

// What a row leaves open: not every recipe lets tensor parallelism be overlapped with its products.
void FollowRecipe(CaseCells* cells, CaseRow* row) {
  if (OverlapsTensors(row->work.fp8) || !FindFramework(row->framework).tp_overlap) return;
  if (row->framework.find("tp_overlap") != std::string::npos ||
      YesOrNo(cells->Text("tp_overlap")).value)
    return;
  AddFact("tp_overlap=off", row);
  row->strategy.adapter_gathers = false;
  cells->Note(fmt::format("{}: no tensor parallelism overlapped with its products",
                          NameIn(kFp8Names, row->work.fp8)));
}

struct Degree {
  const char* column;
  int* value;
  bool printed = false;
};

// GPUs of the run; nodes or GPUs per node follow from the degrees when one of them is not printed.
int64_t ReadGpus(CaseCells* cells, const Strategy& s, bool all_degrees, CaseRow* row) {
  auto nodes = cells->Integer("nodes", 1, kMostRanks);
  auto inside = cells->Integer("gpus_per_node", 1, 1024);
  const int64_t product = int64_t{1} * s.tp * s.pp * s.dp * s.cp;
  if (all_degrees && nodes && !inside && product % *nodes == 0) inside = product / *nodes;
  if (all_degrees && inside && !nodes && product % *inside == 0) nodes = product / *inside;
  if (!nodes || !inside)
    cells->Refuse("the number of GPUs is not printed: nodes and gpus_per_node");
  row->nodes = nodes.value_or(1);
  row->gpus_per_node = static_cast<int>(std::min<int64_t>(inside.value_or(1), 1024));
  return row->nodes * row->gpus_per_node;
}

// The data-parallel degree, or another single one that is not printed, fills the GPUs.
void ReadDegrees(CaseCells* cells, CaseRow* row) {
  Strategy& s = row->strategy;
  std::array<Degree, 4> degrees{Degree{"dp", &s.dp}, {"tp", &s.tp}, {"pp", &s.pp}, {"cp", &s.cp}};
  for (Degree& degree : degrees) {
    const auto value = cells->Integer(degree.column, 1, kMostRanks);
    degree.printed = value.has_value();
    *degree.value = static_cast<int>(value.value_or(1));
  }
  const int64_t gpus = ReadGpus(cells, s, degrees[0].printed, row);
  const int64_t product = int64_t{1} * s.tp * s.pp * s.dp * s.cp;
  const int64_t rest = gpus % product == 0 ? gpus / product : 0;
  if (rest > 1) {
    const auto open =
        std::find_if(degrees.begin(), degrees.end(), [](const Degree& d) { return !d.printed; });
    if (open == degrees.end() || row->refused) return;
    *open->value = static_cast<int>(rest);
    cells->Note(fmt::format("{} not printed: as many as fill the GPUs", open->column));
  } else if (s.cp > 1 && product == gpus * s.cp) {
    s.dp /= s.cp;
    cells->Note("dp read as counting context-parallel ranks, too");
  }
}

void CheckRanks(CaseCells* cells, const CaseRow& row) {
  const Strategy& s = row.strategy;
  const int64_t gpus = row.nodes * row.gpus_per_node;
  if (s.ranks() == gpus) return;
  cells->Refuse(
      fmt::format("tp {} x pp {} x dp {} x cp {} = {} ranks, but {} nodes x {} GPUs are {}", s.tp,
                  s.pp, s.data_parallel(), s.cp, s.ranks(), row.nodes, row.gpus_per_node, gpus));
}

// Shards inside a node, or in groups of so many ranks.
void ReadGroup(CaseCells* cells, CaseRow* row) {
  Strategy& s = row->strategy;
  const std::string text = cells->Text("zero_group");
  if (s.zero == 0 || text.empty() || text == "dp" || text == "world" || text == "all") return;
  int64_t group = std::max(1, row->gpus_per_node / (s.tp * s.cp));
  if (text != "node") group = cells->Integer("zero_group", 1, kMostRanks).value_or(1);
  if (group >= s.dp && text == "node") return;
  if (s.dp % group != 0) {
    cells->Refuse(
        fmt::format("zero_group '{}': groups of {} do not divide dp {}", text, group, s.dp));
    return;
  }
  s.dp_outer = static_cast<int>(s.dp / group);
  s.dp = static_cast<int>(group);
}

void ReadZero(CaseCells* cells, CaseRow* row) {
  const std::string text = cells->Text("zero");
  const Meaning<int> named = ZeroOf(text);
  row->strategy.zero = named.value ? cells->Take(named, 0)
                                   : static_cast<int>(cells->Integer("zero", 0, 3).value_or(0));
}

// A step's batch and how it is cut; what is not printed is one micro-batch of one sequence.
void ReadBatch(CaseCells* cells, CaseRow* row) {
  Strategy& s = row->strategy;
  const auto micro = cells->Integer("micro_batch", 1, 1 << 30);
  const auto global = cells->Integer("global_batch", 1, kMostBatch);
  if (!micro && !global) cells->Refuse("neither micro_batch nor global_batch is printed");
  s.micro_batch = static_cast<int>(micro.value_or(1));
  if (!micro) cells->Note("micro_batch not printed: read as 1");
  const int64_t replicas = std::max<int64_t>(1, s.data_parallel());
  row->work.global_batch = global.value_or(replicas * s.micro_batch);
  if (!global) cells->Note("global_batch not printed: one micro-batch per step");
  if (row->work.global_batch < replicas)
    cells->Refuse(fmt::format("a global batch of {} sequences leaves some of dp {} idle",
                              row->work.global_batch, replicas));
}

// Attention that nobody printed is the default of the framework on the chip, which is known later.
bool ReadFlash(CaseCells* cells, CaseRow* row) {
  const Meaning<bool> flash = FlashOf(cells->Text("flash"));
  if (flash.value || !flash.note.empty()) return cells->Take(flash, false);
  row->flash_open = true;
  return InHalf(row->work.precision);
}

// Recomputation of some layers in full, whose number stands with the modules: "full:5 layers", "full, 8 layers (...)".
std::string PrintedRecompute(const CaseCells& cells) {
  constexpr std::string_view kDigits = "0123456789";
  const std::string text = cells.Text("recompute"), modules = cells.Text("recompute_modules");
  if (text != "full" || !modules.starts_with("full")) return text;
  const std::size_t at = modules.find_first_of(kDigits);
  if (at == std::string::npos) return text;
  return "full:" + modules.substr(at, modules.find_first_not_of(kDigits, at) - at);
}

}  // namespace

void ReadLayout(CaseCells* cells, CaseRow* row) {
  Strategy& s = row->strategy;
  ReadDegrees(cells, row);
  ReadZero(cells, row);
  s.vpp = static_cast<int>(cells->Integer("vpp", 1, kMostRanks).value_or(1));
  if (s.pp == 1) s.vpp = 1;
  s.schedule = s.vpp > 1 ? PipelineSchedule::kInterleaved : PipelineSchedule::k1F1B;
  ReadBatch(cells, row);
  const Meaning<Recompute> recompute = RecomputeOf(PrintedRecompute(*cells));
  row->recompute_open = !recompute.value && recompute.note.empty();
  if (!row->recompute_open) s.recompute = cells->Take(recompute, Recompute::kNone);
  s.offload = cells->Take(OffloadOf(cells->Text("offload")), Offload{});
  const FrameworkReference reference = SplitReference(row->framework);
  row->framework =
      WithFacts(cells->Take(FrameworkOf(reference.name, {s.tp * s.pp * s.cp > 1, s.zero}),
                            std::string("orrery")),
                reference.facts);
  if (row->framework == "ddp" && s.zero >= 2) {
    row->framework = "fsdp";
    cells->Note("ddp with sharded gradients read as fsdp");
  }
  const FrameworkPreset& preset = FindFramework(row->framework);
  s.context = preset.DefaultContext();
  // torchtitan's mode of this name.
  if (s.recompute == Recompute::kSelective && !preset.Offers(s.recompute) &&
      preset.Offers(Recompute::kByOp)) {
    s.recompute = Recompute::kByOp;
    cells->Note("recompute 'selective' of TorchTitan read as op");
  }
  s = preset.Complete(s, row->work.precision);
  row->work.dropout = preset.DropoutOf(row->model);
  row->work.master_weights = preset.master_weights;
  s.flash_attention = ReadFlash(cells, row);
  s.sequence_parallel = cells->Flag("seq_parallel") && s.tp > 1;
  const int64_t layers = row->model.layers + row->model.decoder_layers;
  // Who gives the ends slots of their own chooses the layers so that stages are equal: 30 + 2, 126 + 2, and BLOOM's prequel since
  // "type:transformer|embed". Its 78 layers before made stages of 7 and a last one of 1 (chronicles-prequel.md, "Re-do").
  s.count_embedding = s.count_head =
      s.pp > 1 && layers % s.pp != 0 && (layers + 2) % (s.pp * s.vpp) == 0;
  ReadGroup(cells, row);
  CheckRanks(cells, *row);
}

void ReadProducts(CaseCells* cells, CaseRow* row) {
  row->work.fp8 = cells->Take(Fp8Of(cells->Text("precision"), cells->Text("precision_recipe"),
                                    FindFramework(row->framework).fp8),
                              Fp8::kOff);
  if (const std::string skipped = cells->Text("fp8_skip"); !skipped.empty()) {
    const auto layers = ReadSkippedLayers(skipped);
    if (!layers)
      cells->Refuse(
          fmt::format("fp8_skip '{}': layers at the start and at the end, as \"1,1\"", skipped));
    else
      row->work.fp8_skip = *layers;
  }
  const std::string gradients = cells->Text("grad_reduce_dtype");
  if (gradients == "bf16") row->strategy.fp32_grads = false;
  if (gradients == "fp32" && row->work.precision == Precision::kBf16)
    row->strategy.fp32_grads = true;
  const std::string storage = cells->Text("param_storage");
  const std::vector<Fp8>& held = FindFramework(row->framework).fp8_weights;
  const bool own = storage.empty() && std::ranges::find(held, row->work.fp8) != held.end();
  row->strategy.fp8_weights = (own || storage == "fp8") && CanHoldCodes(row->work, row->strategy);
  if (row->work.fp8 != Fp8::kOff && storage == "fp8" && !row->strategy.fp8_weights &&
      !row->work.lora.on())
    cells->Note("parameters held in fp8: read as bf16 and cast once per step");
  FollowRecipe(cells, row);
}

}  // namespace orrery
