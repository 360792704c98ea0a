// SPDX-License-Identifier: Apache-2.0
// Columns to model, workload and strategy.
#include "calib/validate/case_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "calib/validate/case_cells.h"
#include "model/arch/catalogue.h"
#include "model/base/diagnostics.h"
#include "model/framework/presets.h"
#include "model/hardware/catalog.h"
#include "model/hardware/profile.h"

namespace orrery {
namespace {

constexpr double kLongestStep = 1e7;  // seconds

constexpr std::pair<const char*, MemoryKind> kMemoryNames[] = {
    {"", MemoryKind::kNotSaid},
    {"allocator", MemoryKind::kAllocator},
    {"nvidia-smi", MemoryKind::kDevice}};

// The masked positions of BERT's own recipe (Devlin et al. 2018): 20 of 128, 80 of 512, else 15 %.
int64_t MaskedOf(int64_t seq_len) {
  if (seq_len <= 128) return std::min<int64_t>(20, seq_len);
  if (seq_len == 512) return 80;
  return (15 * seq_len + 99) / 100;
}

// Larger ones than BERT-Large train only with their norms before attention and MLP (Shoeybi et al. 2019,
// section 5.3; Habana's BERT-1.5B).
bool IsBeyondBertLarge(const ModelSpec& model) { return model.layers > 24 || model.hidden > 1024; }

// GPT-2 and GPT-3 tie the output layer to the embedding; decoders that share keys and values between heads are
// of a later generation, which does not (Nemotron, Megatron's own test recipes).
void ApplyFamily(CsvFamily family, ModelSpec* model) {
  switch (family) {
    case CsvFamily::kGpt:
      model->tied_embeddings = model->kv_heads >= model->heads;
      return;
    case CsvFamily::kLlama:
      model->norm = Norm::kRmsNorm;
      model->positions = Positions::kRotary;
      model->linear_bias = model->qkv_bias = false;
      model->tied_embeddings = false;
      return;
    case CsvFamily::kBert:
      model->family = Family::kEncoder;
      model->pooler = true;
      model->post_norm = model->embedding_norm = !IsBeyondBertLarge(*model);
      model->token_types = 2;
      return;
    case CsvFamily::
        kVit:  // an encoder with one output per image; its patches cost less than one layer's projection
      model->family = Family::kEncoder;
      model->tied_embeddings = false;
      return;
    case CsvFamily::kT5:
      model->family = Family::kEncoderDecoder;
      model->norm = Norm::kRmsNorm;
      model->positions = Positions::kRelativeBias;
      model->relative_buckets = 32;
      model->linear_bias = model->qkv_bias = false;
      model->activation = Activation::kRelu;
      model->decoder_layers = model->layers;
      return;
    case CsvFamily::kMlp:
      model->family = Family::kMlp;
      model->in_features = model->hidden;
      model->out_features = model->vocab;
      return;
  }
}

// Of the published model of the family that most rows are of: GPT-2, Llama 2, BERT, T5, ImageNet's classes.
int64_t UsualVocab(CsvFamily family) {
  switch (family) {
    case CsvFamily::kGpt:
      return 50257;
    case CsvFamily::kLlama:
      return 32000;
    case CsvFamily::kBert:
      return 30522;
    case CsvFamily::kT5:
      return 32128;
    case CsvFamily::kVit:
      return 1000;
    case CsvFamily::kMlp:
      return 1;
  }
  return 50257;
}

// The inner width: 4 hidden, or the two thirds of it that give a gated layer as many parameters.
int64_t UsualFfn(const ModelSpec& model) {
  return model.gated ? (8 * model.hidden / 3 + 63) / 64 * 64 : 4 * model.hidden;
}

void ReadHeads(CaseCells* cells, ModelSpec* model) {
  model->heads = cells->Needed("heads", kMostWidth);
  model->kv_heads = cells->Integer("kv_heads", 1, kMostWidth).value_or(model->heads);
  if (model->heads % model->kv_heads != 0)
    cells->Refuse(
        fmt::format("{} key-value heads do not divide {} heads", model->kv_heads, model->heads));
  const auto head_dim = cells->Integer("head_dim", 1, kMostWidth);
  if (!head_dim && model->hidden % model->heads != 0)
    cells->Refuse(fmt::format(
        "{} heads do not divide hidden {}: name the width of a head in a column head_dim",
        model->heads, model->hidden));
  model->head_dim = head_dim.value_or(std::max<int64_t>(1, model->hidden / model->heads));
}

// A model by name or by file, as `--model` takes it. Shapes beside it are checked: a row that says two things is a slip.
void ReadNamedModel(CaseCells* cells, const std::string& name, CaseRow* row) {
  row->work.seq_len = cells->Needed("seq_len", kMostWidth);
  LoadedModel loaded;
  try {
    loaded = LoadModel(name);
  } catch (const InputError& error) {
    const Diagnostic& first = error.diagnostics().front();
    cells->Refuse(
        fmt::format("model: {}{}{}", first.message, first.hint.empty() ? "" : "; ", first.hint));
    return;
  }
  row->model = std::move(loaded.spec);
  const ModelSpec& model = row->model;
  const std::pair<const char*, int64_t> shape[] = {
      {"layers", model.layers},     {"hidden", model.hidden}, {"heads", model.heads},
      {"kv_heads", model.kv_heads}, {"ffn", model.ffn},       {"head_dim", model.head_dim},
      {"vocab", model.vocab}};
  for (const auto& [column, value] : shape) {
    const auto cell = cells->Integer(column, 1, kMostWidth);
    if (cell && *cell != value)
      cells->Refuse(fmt::format("'{}' is {}, but {} has {}", column, *cell, name, value));
  }
  row->work.masked_positions = MaskedPositions(model, loaded.defaults, row->work.seq_len);
}

// Whether the cells of a shape stand beside a name that no model here has: tables name their models in their own way.
bool NamesNothingHere(const CaseCells& cells, const std::string& name) {
  const bool shape = std::ranges::none_of(ShapeColumns(), [&](const std::string& column) {
    return cells.Text(column.c_str()).empty();
  });
  return shape && !IsModel(name);
}

void ReadModel(CaseCells* cells, CaseRow* row) {
  if (const std::string name = cells->Text("model"); !name.empty()) {
    if (!NamesNothingHere(*cells, name)) return ReadNamedModel(cells, name, row);
    cells->Note(fmt::format("model '{}' is none of `plan list models`: read from its shape", name));
  }
  ModelSpec& model = row->model;
  model.name = row->name;
  model.gated = cells->Flag("gated");
  const CsvFamily family =
      cells->Take(FamilyOf(cells->Text("family"), model.gated), CsvFamily::kGpt);
  model.layers = cells->Needed("layers", 100000);
  model.hidden = cells->Needed("hidden", kMostWidth);
  const auto ffn = cells->Integer("ffn", 1, kMostWidth);
  if (!ffn)
    cells->Note(fmt::format("ffn not printed: read as {} hidden", model.gated ? "8/3" : "4"));
  model.ffn = ffn.value_or(UsualFfn(model));
  ReadHeads(cells, &model);
  const auto vocab = cells->Integer("vocab", 1, kMostWidth);
  if (!vocab) cells->Note(fmt::format("vocab not printed: read as {}", UsualVocab(family)));
  model.vocab = vocab.value_or(UsualVocab(family));
  row->work.seq_len = cells->Needed("seq_len", kMostWidth);
  model.max_positions = row->work.seq_len;
  if (model.gated) model.activation = Activation::kSwiglu;
  ApplyFamily(family, &model);
  if (family == CsvFamily::kBert) row->work.masked_positions = MaskedOf(row->work.seq_len);
  if (family == CsvFamily::kVit) row->work.masked_positions = 1;
}

// Every rank of a tensor group needs a key-value head: Megatron's copies them where there are fewer.
void CopyKeyValueHeads(CaseCells* cells, CaseRow* row) {
  ModelSpec& model = row->model;
  const int tp = row->strategy.tp;
  if (model.kv_heads >= tp || tp % model.kv_heads != 0 || model.heads % tp != 0) return;
  model.kv_heads = tp;
  cells->Note("fewer key-value heads than tensor-parallel ranks: one copied to each");
}

// Sharded optimizer states with plain fp32 did not exist in Megatron-DeepSpeed: its ZeRO took fp16
// or bf16 only, and compilations print "bf16 with fp32 gradient accumulation" as fp32.
void ReadGradients(CaseRow* row) {
  const bool sharded_fp32 = row->framework.starts_with("megatron") &&
                            row->work.precision == Precision::kFp32 && row->strategy.zero > 0;
  if (!sharded_fp32) return;
  row->work.precision = Precision::kBf16;
  row->strategy.fp32_grads = true;
  row->fp32_printed = true;
  row->notes.emplace_back("fp32 with ZeRO under megatron read as bf16 with fp32 gradients");
}

// Full fine-tuning (task sft) computes what pretraining does.
void ReadAdapters(CaseCells* cells, CaseRow* row) {
  const auto rank = cells->Integer("lora_rank", 1, 65536);
  const bool adapters = cells->Text("task") == "lora";
  if (!adapters && !rank) return;
  row->work.lora.rank = static_cast<int>(rank.value_or(16));
  if (!rank) cells->Note("lora_rank not printed: read as 16");
}

// Maps with adapters: those that a row names, else of the runs that its source published, else all.
void ReadTargets(const std::string& published, CaseCells* cells, CaseRow* row) {
  Lora& lora = row->work.lora;
  if (!lora.on()) return;
  const std::string printed = cells->Text("lora_targets");
  try {
    if (const std::string& text = printed.empty() ? published : printed; !text.empty())
      lora.targets = ReadLoraTargets(text, row->model.gated);
  } catch (const InputError& error) {
    cells->Refuse(error.diagnostics().front().message);
  }
  if (printed.empty())
    cells->Note(fmt::format("maps with adapters not printed: read as {}",
                            published.empty() ? "all linear maps" : published));
}

// One column names data parallelism of PyTorch and of TensorFlow, or Megatron's own loop and NeMo's; where the row
// comes from tells them apart.
void TellFramework(CaseCells* cells, CaseRow* row) {
  for (const FrameworkPreset& preset : FrameworkPresets()) {
    for (const PublishedAs& other : preset.published_as) {
      if (row->framework != other.framework ||
          cells->Text("source").find(other.source) == std::string::npos)
        continue;
      row->framework = WithFacts(preset.name, other.facts);
      cells->Note(other.note);
      ReadTargets(other.lora_targets, cells, row);
      row->published_base = other.lora_base;
      return;
    }
  }
  ReadTargets("", cells, row);
}

// What the row's source says of its framework, over what the framework does by itself.
void ReadFacts(CaseCells* cells, CaseRow* row) {
  const std::string facts = cells->Text("facts");
  if (facts.empty()) return;
  const std::string reference = WithFacts(row->framework, facts);
  try {
    (void)FindFramework(reference);
    row->framework = reference;
  } catch (const InputError& error) {
    cells->Refuse(error.diagnostics().front().message);
  }
}

// "H100" of a table whose topology says which H100.
void ReadGpu(CaseCells* cells, CaseRow* row) {
  row->gpu = cells->Text("gpu");
  if (row->gpu.empty() || row->topology.empty()) return;
  const std::vector<std::string> known = ProfileIds("gpu");
  if (std::ranges::find(known, row->gpu) != known.end()) return;
  try {
    const std::string on = LoadTopology(row->topology).gpu;
    if (!FoldedName(on).starts_with(FoldedName(row->gpu))) return;
    cells->Note(fmt::format("gpu '{}' read as {}, the topology's", row->gpu, on));
    row->gpu.clear();
  } catch (const InputError&) {  // reported where the topology is read
  }
}

// Facts that have a column of their own.
void ReadColumnFacts(CaseCells* cells, CaseRow* row) {
  const Meaning<bool> overlap = YesOrNo(cells->Text("tp_overlap"));
  if (overlap.value && row->framework.find("tp_overlap") == std::string::npos &&
      FindFramework(row->framework).tp_overlap != *overlap.value)
    AddFact(*overlap.value ? "tp_overlap=on" : "tp_overlap=off", row);
}

// What the frozen weights are kept in.
void ReadBase(CaseCells* cells, CaseRow* row) {
  Lora& lora = row->work.lora;
  std::string text = cells->Text("param_storage");
  if (lora.on() && text.empty() && row->work.fp8 != Fp8::kOff && !row->published_base.empty()) {
    text = row->published_base;
    cells->Note(
        fmt::format("frozen weights not printed: read as {}, as such runs keep them", text));
  }
  if (!lora.on() || text.empty() || text == "bf16") return;
  for (const auto& [name, base] : kLoraBaseNames) {
    if (text == name) lora.base = base;
  }
  if (!lora.packed()) cells->Refuse(fmt::format("frozen weights in '{}' are not modelled", text));
}

MemoryKind ReadMemoryKind(CaseCells* cells) {
  const std::string text = cells->Text("memory_by");
  std::vector<std::string> known;
  for (const auto& [name, kind] : kMemoryNames) {
    if (text == name) return kind;
    known.emplace_back(name);
  }
  cells->Refuse(fmt::format("memory_by '{}': {}", text, SuggestName(text, known)));
  return MemoryKind::kNotSaid;
}

CaseRow ReadRow(const CsvTable& table, std::size_t index) {
  CaseRow row;
  CaseCells cells(table, index, &row);
  const Location where = table.where(index, "case");
  row.place = where.source ? fmt::format("{}:{}", where.source->name, where.line) : "";
  row.name = cells.Text("case");
  if (row.name.empty()) row.name = fmt::format("line-{}", where.line);
  row.source = row.name.substr(0, row.name.find('-'));
  row.topology = cells.Text("topology");
  if (row.topology.empty())
    cells.Refuse("'topology' is empty: `plan list topologies` shows what it can be");
  ReadGpu(&cells, &row);
  row.framework = cells.Text("framework");
  row.work.precision = cells.Take(PrecisionOf(cells.Text("precision")), Precision::kBf16);
  row.work.optimizer = cells.Take(OptimizerOf(cells.Text("optimizer")), Optimizer::kAdam);
  ReadModel(&cells, &row);
  if (row.refused) return row;  // what follows divides by widths
  ReadAdapters(&cells, &row);
  if (cells.Integer("experts", 0, 100000).value_or(0) > 1)
    cells.Refuse("mixtures of experts are not modelled");
  if (cells.Integer("ep", 1, kMostRanks).value_or(1) > 1)
    cells.Refuse("expert parallelism (ep > 1) is not modelled");
  TellFramework(&cells, &row);
  ReadFacts(&cells, &row);
  ReadColumnFacts(&cells, &row);
  ReadLayout(&cells, &row);
  ReadProducts(&cells, &row);
  ReadBase(&cells, &row);
  CopyKeyValueHeads(&cells, &row);
  ReadGradients(&row);
  if (cells.Text("assumed").find("flash") != std::string::npos) row.flash_assumed = true;
  row.window = cells.Take(WindowOf(cells.Text("window")), Window::kStep);
  const bool printed = table.Text(index, "measured_step_s") != kNotPrinted;
  const auto measured =
      printed ? cells.Number("measured_step_s", 1e-9, kLongestStep) : std::nullopt;
  if (!measured && printed) cells.Refuse("no measured step time");
  row.measured_step_s = measured.value_or(0.0);
  row.measured_mem_gib = cells.Number("measured_mem_gib", 0, 1e6);
  row.measured_communication = cells.Number("measured_communication", 0, 1);
  row.measured_kernels = cells.Number("measured_kernels", 0, 1);
  row.memory_kind = ReadMemoryKind(&cells);
  return row;
}

}  // namespace

std::span<const std::pair<const char*, MemoryKind>> MemoryPrinters() {
  return std::span(kMemoryNames).subspan(1);
}

const std::vector<std::string>& CaseColumns() {
  static const std::vector<std::string> kColumns = {"topology", "seq_len", "measured_step_s"};
  return kColumns;
}

const std::vector<std::string>& ShapeColumns() {
  static const std::vector<std::string> kShape = {"layers", "hidden", "heads"};
  return kShape;
}

const std::vector<std::string>& OptionalCaseColumns() {
  static const std::vector<std::string> kColumns = {"case",
                                                    "model",
                                                    "nodes",
                                                    "gpus_per_node",
                                                    "framework",
                                                    "facts",
                                                    "family",
                                                    "ffn",
                                                    "gated",
                                                    "kv_heads",
                                                    "vocab",
                                                    "tp",
                                                    "pp",
                                                    "vpp",
                                                    "dp",
                                                    "cp",
                                                    "zero",
                                                    "zero_group",
                                                    "micro_batch",
                                                    "global_batch",
                                                    "precision",
                                                    "recompute",
                                                    "recompute_modules",
                                                    "flash",
                                                    "optimizer",
                                                    "seq_parallel",
                                                    "window",
                                                    "measured_mem_gib",
                                                    "measured_communication",
                                                    "measured_kernels",
                                                    "assumed",
                                                    "memory_by",
                                                    "source",
                                                    "head_dim",
                                                    "gpu",
                                                    "ep",
                                                    "experts",
                                                    "task",
                                                    "lora_rank",
                                                    "lora_targets",
                                                    "precision_recipe",
                                                    "fp8_skip",
                                                    "param_storage",
                                                    "grad_reduce_dtype",
                                                    "tp_overlap",
                                                    "offload",
                                                    "facts"};
  return kColumns;
}

std::vector<CaseRow> ReadCases(const CsvTable& table) {
  std::vector<CaseRow> rows;
  rows.reserve(table.rows());
  for (std::size_t i = 0; i < table.rows(); ++i) rows.push_back(ReadRow(table, i));
  return rows;
}

}  // namespace orrery
