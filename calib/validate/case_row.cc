// SPDX-License-Identifier: Apache-2.0
// Columns to model, workload and strategy.
#include "calib/validate/case_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "model/input/diagnostics.h"
#include "model/lower/names.h"
#include "model/lower/presets.h"

namespace orrery {
namespace {

constexpr int64_t kMostWidth = int64_t{1} << 26;
constexpr int64_t kMostRanks = 1'000'000;
constexpr int64_t kMostBatch = int64_t{1} << 40;
constexpr double kLongestStep = 1e7;  // seconds

constexpr std::pair<const char*, Window> kWindowNames[] = {{"step", Window::kStep},
                                                           {"microstep", Window::kMicrostep},
                                                           {"sustained", Window::kSustained}};
constexpr std::pair<const char*, Family> kCsvFamilies[] = {{"gpt", Family::kDecoder},
                                                           {"llama", Family::kDecoder},
                                                           {"bert", Family::kEncoder},
                                                           {"t5", Family::kEncoderDecoder}};
constexpr std::pair<const char*, MemoryKind> kMemoryNames[] = {
    {"", MemoryKind::kNotSaid},
    {"allocator", MemoryKind::kAllocator},
    {"nvidia-smi", MemoryKind::kDevice}};
constexpr std::pair<const char*, bool> kFrameworks[] = {
    {"megatron", true}, {"deepspeed", true}, {"fsdp", true}, {"ddp", true}, {"orrery", true}};

// The value of a name, or a refusal of the row.
template <class E, std::size_t N>
E Choose(const std::string& column, const std::string& text,
         const std::pair<const char*, E> (&names)[N], CaseRow* row) {
  std::vector<std::string> known;
  for (const auto& [name, value] : names) {
    if (text == name) return value;
    known.emplace_back(name);
  }
  if (!row->refused)
    row->refused = fmt::format("{} '{}': {}", column, text, SuggestName(text, known));
  return names[0].second;
}

class RowReader {
 public:
  RowReader(const CsvTable& table, std::size_t row) : table_(table), row_(row) {}

  const std::string& Text(const char* column) const { return table_.Text(row_, column); }
  int64_t Integer(const char* column, int64_t min, int64_t max, int64_t fallback) const {
    return table_.Integer(row_, column, min, max).value_or(fallback);
  }
  bool Flag(const char* column) const { return Integer(column, 0, 1, 0) != 0; }
  std::optional<double> Number(const char* column, double min, double max) const {
    return table_.Number(row_, column, min, max);
  }

 private:
  const CsvTable& table_;
  std::size_t row_;
};

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
void ApplyFamily(const std::string& family, ModelSpec* model) {
  if (family == "gpt" && model->kv_heads < model->heads) model->tied_embeddings = false;
  if (family == "llama") {
    model->norm = Norm::kRmsNorm;
    model->positions = Positions::kRotary;
    model->linear_bias = model->qkv_bias = false;
    model->tied_embeddings = false;
  } else if (family == "bert") {
    model->pooler = true;
    model->post_norm = model->embedding_norm = !IsBeyondBertLarge(*model);
    model->token_types = 2;
  } else if (family == "t5") {
    model->norm = Norm::kRmsNorm;
    model->positions = Positions::kRelativeBias;
    model->relative_buckets = 32;
    model->linear_bias = model->qkv_bias = false;
    model->activation = Activation::kRelu;
    model->decoder_layers = model->layers;
  }
}

void ReadModel(const RowReader& read, CaseRow* row) {
  ModelSpec& model = row->model;
  model.name = row->name;
  const std::string& family = read.Text("family");
  model.family = Choose("family", family, kCsvFamilies, row);
  model.layers = read.Integer("layers", 1, 100000, 1);
  model.hidden = read.Integer("hidden", 1, kMostWidth, 1);
  model.ffn = read.Integer("ffn", 1, kMostWidth, 4 * model.hidden);
  model.gated = read.Flag("gated");
  model.heads = read.Integer("heads", 1, kMostWidth, 1);
  model.kv_heads = read.Integer("kv_heads", 1, kMostWidth, model.heads);
  model.vocab = read.Integer("vocab", 1, kMostWidth, 50257);
  model.max_positions = row->work.seq_len;
  if (model.gated) model.activation = Activation::kSwiglu;
  ApplyFamily(family, &model);
  if (model.hidden % model.heads != 0 && !row->refused) {
    row->refused = fmt::format("{} heads do not divide hidden {}", model.heads, model.hidden);
  }
  model.head_dim = std::max<int64_t>(1, model.hidden / model.heads);
}

void ReadWork(const RowReader& read, CaseRow* row) {
  Workload& work = row->work;
  work.seq_len = read.Integer("seq_len", 1, kMostWidth, 1);
  work.global_batch = read.Integer("global_batch", 1, kMostBatch, 1);
  work.precision = Choose("precision", read.Text("precision"), kPrecisionNames, row);
  work.optimizer = Choose("optimizer", read.Text("optimizer"), kOptimizerNames, row);
  if (read.Text("family") == "bert") work.masked_positions = MaskedOf(work.seq_len);
}

void ReadStrategy(const RowReader& read, CaseRow* row) {
  Strategy& s = row->strategy;
  const auto degree = [&](const char* column) {
    return static_cast<int>(read.Integer(column, 1, kMostRanks, 1));
  };
  s.tp = degree("tp");
  s.pp = degree("pp");
  s.vpp = s.pp > 1 ? degree("vpp") : 1;
  s.dp = degree("dp");
  s.micro_batch = static_cast<int>(read.Integer("micro_batch", 1, 1 << 30, 1));
  s.cp = degree("cp");
  s.zero = static_cast<int>(read.Integer("zero", 0, 3, 0));
  s.schedule = s.vpp > 1 ? PipelineSchedule::kInterleaved : PipelineSchedule::k1F1B;
  s.recompute = Choose("recompute", read.Text("recompute"), kRecomputeNames, row);
  if (!row->refused) {
    const FrameworkPreset& preset = FindFramework(row->framework);
    s = preset.Complete(s, row->work.precision);
    row->work.dropout = preset.DropoutOf(row->model);
  }
  s.flash_attention = read.Flag("flash");
  s.sequence_parallel = read.Flag("seq_parallel") && s.tp > 1;
  const int64_t layers = row->model.layers + row->model.decoder_layers;
  s.count_embedding = s.count_head = s.pp > 1 && layers % s.pp != 0;
  if (read.Text("zero_group") == "node" && s.zero > 0) {
    const int inside = std::max(1, row->gpus_per_node / (s.tp * s.cp));
    if (s.dp % inside == 0) {
      s.dp_outer = s.dp / inside;
      s.dp = inside;
    }
  }
  const int64_t ranks = row->nodes * row->gpus_per_node;
  if (s.ranks() != ranks && !row->refused) {
    row->refused =
        fmt::format("tp x pp x dp x cp = {} ranks, but the cluster has {}", s.ranks(), ranks);
  }
}

// Sharded optimizer states with plain fp32 did not exist in Megatron-DeepSpeed: its ZeRO took fp16
// or bf16 only, and compilations print "bf16 with fp32 gradient accumulation" as fp32.
void ReadGradients(CaseRow* row) {
  const bool sharded_fp32 = row->framework == "megatron" &&
                            row->work.precision == Precision::kFp32 && row->strategy.zero > 0;
  if (!sharded_fp32) return;
  row->work.precision = Precision::kBf16;
  row->strategy.fp32_grads = true;
  row->notes.emplace_back("fp32 with ZeRO under megatron read as bf16 with fp32 gradients");
}

// One column names data parallelism of PyTorch and of TensorFlow; where the row comes from tells them apart.
void ReadSoftware(const RowReader& read, CaseRow* row) {
  row->software = row->framework;
  if (row->framework != "ddp" || read.Text("source").find("TensorFlow") == std::string::npos) return;
  row->software = "tensorflow";
  row->notes.emplace_back("ddp of a TensorFlow program read as Horovod");
}

CaseRow ReadRow(const CsvTable& table, std::size_t index) {
  const RowReader read(table, index);
  CaseRow row;
  row.name = read.Text("case");
  row.source = row.name.substr(0, row.name.find('-'));
  row.topology = read.Text("topology");
  row.framework = read.Text("framework");
  (void)Choose("framework", row.framework, kFrameworks, &row);
  row.nodes = read.Integer("nodes", 1, kMostRanks, 1);
  row.gpus_per_node = static_cast<int>(read.Integer("gpus_per_node", 1, 1024, 1));
  ReadWork(read, &row);
  ReadModel(read, &row);
  ReadStrategy(read, &row);
  ReadGradients(&row);
  ReadSoftware(read, &row);
  row.flash_assumed = read.Text("assumed").find("flash") != std::string::npos;
  row.window = Choose("window", read.Text("window"), kWindowNames, &row);
  const auto measured = read.Number("measured_step_s", 1e-9, kLongestStep);
  if (!measured && !row.refused) row.refused = "no measured step time";
  row.measured_step_s = measured.value_or(0.0);
  row.measured_mem_gib = read.Number("measured_mem_gib", 0, 1e6);
  row.memory_kind = Choose("memory_by", read.Text("memory_by"), kMemoryNames, &row);
  return row;
}

}  // namespace

std::span<const std::pair<const char*, MemoryKind>> MemoryPrinters() {
  return std::span(kMemoryNames).subspan(1);
}

const std::vector<std::string>& CaseColumns() {
  static const std::vector<std::string> kColumns = {"case",
                                                    "topology",
                                                    "nodes",
                                                    "gpus_per_node",
                                                    "framework",
                                                    "family",
                                                    "layers",
                                                    "hidden",
                                                    "ffn",
                                                    "gated",
                                                    "heads",
                                                    "kv_heads",
                                                    "vocab",
                                                    "seq_len",
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
                                                    "flash",
                                                    "optimizer",
                                                    "seq_parallel",
                                                    "window",
                                                    "measured_step_s",
                                                    "measured_mem_gib"};
  return kColumns;
}

std::vector<CaseRow> ReadCases(const CsvTable& table) {
  std::vector<CaseRow> rows;
  rows.reserve(table.rows());
  for (std::size_t i = 0; i < table.rows(); ++i) rows.push_back(ReadRow(table, i));
  return rows;
}

}  // namespace orrery
