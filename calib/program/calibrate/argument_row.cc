// SPDX-License-Identifier: Apache-2.0
// Megatron-LM's arguments (megatron/training/arguments.py) in the columns of `plan validate`; checks of logs.
#include "calib/program/calibrate/argument_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

#include "calib/import/device_names.h"
#include "calib/import/log_lines.h"
#include "calib/validate/validate.h"
#include "model/base/csv.h"
#include "model/base/text.h"
#include "model/hardware/catalog.h"
#include "model/hardware/profile.h"
#include "model/plan/lower/names.h"

namespace orrery {
namespace {

using measured::LogFacts;

constexpr double kSamePeak = 0.1;
constexpr int64_t kMostRanks = 1 << 15;  // of one degree

// Column and the arguments that fill it, the newer spelling first.
constexpr std::pair<const char*, std::array<const char*, 2>> kPlain[] = {
    {"layers", {"num_layers", "encoder_num_layers"}},
    {"hidden", {"hidden_size", ""}},
    {"ffn", {"ffn_hidden_size", ""}},
    {"heads", {"num_attention_heads", ""}},
    {"head_dim", {"kv_channels", ""}},
    {"vocab", {"padded_vocab_size", ""}},
    {"seq_len", {"seq_length", "encoder_seq_length"}},
    {"tp", {"tensor_model_parallel_size", "model_parallel_size"}},
    {"pp", {"pipeline_model_parallel_size", ""}},
    {"vpp", {"virtual_pipeline_model_parallel_size", ""}},
    {"cp", {"context_parallel_size", ""}},
    {"ep", {"expert_model_parallel_size", ""}},
    {"dp", {"data_parallel_size", ""}},
    {"micro_batch", {"micro_batch_size", "batch_size"}},
    {"global_batch", {"global_batch_size", ""}},
    {"optimizer", {"optimizer", ""}}};

std::string First(const LogFacts& facts, const std::array<const char*, 2>& names) {
  const std::string first = facts.Argument(names[0]);
  return first.empty() && *names[1] != '\0' ? facts.Argument(names[1]) : first;
}

std::string PrecisionText(const LogFacts& facts) {
  const std::string fp8 = facts.Argument("fp8");
  if (!fp8.empty() && fp8 != "False") return "fp8";
  if (facts.Flag("bf16")) return "bf16";
  return facts.Flag("fp16") ? "fp16" : "fp32";
}

std::string RecomputeText(const LogFacts& facts) {
  const std::string granularity = facts.Argument("recompute_granularity");
  const std::string layers = facts.Argument("recompute_num_layers");
  if (granularity == "full" && facts.Argument("recompute_method") == "block" && !layers.empty())
    return layers == "0" ? "none" : "full:" + layers;
  if (!granularity.empty()) return granularity;
  if (facts.Flag("recompute_activations")) return "selective";
  const bool full = facts.Flag("checkpoint_activations") ||
                    !facts.Argument("activations_checkpoint_method").empty();
  return full ? "full" : "none";
}

bool IsBert(const LogFacts& facts) {
  return facts.Argument("tokenizer_type").starts_with("Bert") &&
         facts.Argument("decoder_seq_length").empty();
}

// What a dump has and this project does not model; "": nothing.
std::string Unmodelled(const LogFacts& facts) {
  if (facts.Whole("num_experts").value_or(0) > 0) return "mixtures of experts are not modelled";
  if (!facts.Argument("decoder_seq_length").empty())
    return "an encoder-decoder model: describe it in a sheet next to the log";
  for (const char* needed :
       {"num_layers", "hidden_size", "num_attention_heads", "micro_batch_size"}) {
    if (facts.Argument(needed).empty())
      return fmt::format("the log's dump of arguments lacks {}", needed);
  }
  return "";
}

// The argument that says ZeRO's stage, of which DeepSpeed's configuration is what applies; "": none.
std::string ZeroKey(const LogFacts& facts) {
  for (const char* key : {"zero_optimization_stage", "zero_stage"})
    if (measured::AmountIn(facts.Argument(key))) return key;
  return "";
}

double ZeroStage(const LogFacts& facts) {  // Megatron-DeepSpeed prints 1.0
  return measured::AmountIn(facts.Argument(ZeroKey(facts))).value_or(0);
}

std::string FrameworkText(const LogFacts& facts) {
  return facts.Flag("deepspeed") || ZeroStage(facts) > 0 ? "megatron-deepspeed" : "megatron";
}

// As model/exchange reads the same arguments.
std::string FlashText(const LogFacts& facts) {
  const std::string backend = facts.Argument("attention_backend");
  const std::string said = backend.substr(backend.rfind('.') + 1);
  if (said == "unfused" || said == "local") return "0";
  const bool engine = facts.Argument("transformer_impl") == "transformer_engine";
  const bool own = facts.Argument("transformer_impl") == "local";
  const bool named = said == "flash" || said == "fused" || facts.Flag("use_flash_attn");
  return named || engine || (said == "auto" && !own) ? "1" : "0";
}

std::string ZeroText(const LogFacts& facts) {
  if (!ZeroKey(facts).empty()) return fmt::format("{:g}", ZeroStage(facts));
  return facts.Flag("use_distributed_optimizer") ? "1" : "0";
}

// What the columns cannot say.
void SetModel(const LogFacts& facts, ModelSpec* model) {
  const std::string positions = facts.Argument("position_embedding_type");
  if (positions == "rope" || facts.Flag("use_rotary_position_embeddings"))
    model->positions = Positions::kRotary;
  if (positions == "none") model->positions = Positions::kNone;
  if (facts.Argument("normalization") == "RMSNorm") model->norm = Norm::kRmsNorm;
  const std::string bias = facts.Argument("add_bias_linear");
  if (!bias.empty()) model->linear_bias = model->qkv_bias = bias == "True";
  if (facts.Flag("add_qkv_bias")) model->qkv_bias = true;
  const std::string untied = facts.Argument("untie_embeddings_and_output_weights");
  if (!untied.empty() && model->family == Family::kDecoder)
    model->tied_embeddings = untied != "True";
  if (const auto rows = facts.Whole("max_position_embeddings"); rows && *rows > 0)
    model->max_positions = *rows;
}

std::string OtherRates(const LogFacts& facts, const measured::TrainingLog& log,
                       const GpuProfile& gpu, Precision precision) {
  if (facts.device_bytes && !measured::IsMemoryOf(*facts.device_bytes, gpu))
    return fmt::format("its GPUs have {}", Format(Bytes(*facts.device_bytes)));
  const double peak = precision == Precision::kFp16   ? gpu.peak_fp16.value
                      : precision == Precision::kBf16 ? gpu.peak_bf16.value
                      : precision == Precision::kTf32 ? gpu.peak_tf32.value
                                                      : gpu.peak_fp32.value;
  if (facts.peak_flops && peak > 0 && std::abs(*facts.peak_flops / peak - 1) > kSamePeak)
    return fmt::format("it takes {} for the peak of its GPUs",
                       Format(FlopsPerSecond(*facts.peak_flops)));
  for (const measured::StepSample& step : log.steps) {
    if (step.flops_per_gpu && peak > 0 && *step.flops_per_gpu > peak)
      return fmt::format("line {} prints {} per GPU, above the peak", step.line,
                         Format(FlopsPerSecond(*step.flops_per_gpu)));
    for (const measured::PeakMemory& memory : {step.allocated, step.reserved})
      if (memory.bytes.value_or(0) > gpu.memory.value)
        return fmt::format("line {} prints {} in use on a GPU", memory.line,
                           Format(Bytes(*memory.bytes)));
  }
  return "";
}

// What an argument of the log and the run's description say of one thing.
struct Statement {
  std::string key, said, ours;
  bool agrees = false;
};

void SayZero(const LogFacts& facts, int zero, std::vector<Statement>* all) {
  const std::string ours = fmt::format("zero {}", zero);
  if (const std::string key = ZeroKey(facts); !key.empty()) {
    all->push_back({key, facts.Argument(key), ours, ZeroStage(facts) == zero});
    return;
  }
  constexpr const char* kSharded = "use_distributed_optimizer";
  for (const char* other : {"deepspeed", "use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2"})
    if (facts.Flag(other)) return;
  if (!facts.arguments.contains(kSharded)) return;
  all->push_back(
      {kSharded, facts.Argument(kSharded), ours, zero == (facts.Flag(kSharded) ? 1 : 0)});
}

// DeepSpeed's configuration: replicas, where its engine knows of other degrees (runtime/config.py), and micro-batches of a
// step. Megatron's dump says these otherwise.
void SayEngine(const LogFacts& facts, const CaseRow& row, std::vector<Statement>* all) {
  if (facts.has_dump) return;
  const int64_t replicas = row.strategy.data_parallel(), ranks = row.nodes * row.gpus_per_node;
  if (const auto world = facts.Whole("world_size"))
    all->push_back({"world_size", std::to_string(*world), fmt::format("{} ranks", ranks),
                    *world == ranks || *world == replicas});
  const auto steps = facts.Whole("gradient_accumulation_steps");
  if (!steps || row.strategy.micro_batch < 1 || replicas < 1) return;
  const int64_t ours = row.work.global_batch / (row.strategy.micro_batch * replicas);
  all->push_back({"gradient_accumulation_steps", std::to_string(*steps),
                  fmt::format("{} micro-batches", ours), *steps == ours});
}

void SayPrecision(const LogFacts& facts, const Workload& work, std::vector<Statement>* all) {
  const std::string ours = NameIn(kPrecisionNames, work.precision);
  if (facts.arguments.contains("fp8") && facts.Argument("fp4").empty()) {
    const bool on = PrecisionText(facts) == "fp8", described = work.fp8 != Fp8::kOff;
    all->push_back({"fp8", facts.Argument("fp8"), described ? "fp8" : ours, on == described});
  }
  static constexpr std::pair<const char*, Precision> kHalves[] = {
      {"bfloat16_enabled", Precision::kBf16},
      {"fp16_enabled", Precision::kFp16},
      {"bf16", Precision::kBf16},
      {"fp16", Precision::kFp16}};
  for (const auto& [key, precision] : kHalves) {
    if (!facts.Flag(key)) continue;
    all->push_back({key, "True", ours, precision == work.precision});
    return;
  }
  // DeepSpeed's halves may both be off under autocast; Megatron's mean fp32.
  const bool full = facts.Argument("bf16") == "False" && facts.Argument("fp16") == "False";
  const bool half = work.precision == Precision::kBf16 || work.precision == Precision::kFp16;
  if (full) all->push_back({ours == "fp16" ? "fp16" : "bf16", "False", ours, !half});
}

void SayRecompute(const LogFacts& facts, const Recompute& ours, std::vector<Statement>* all) {
  const std::string modules = facts.Argument("recompute_modules");
  const bool listed = !modules.empty() && modules.find("core_attn") == std::string::npos;
  for (const char* key : {"recompute_granularity", "recompute_activations",
                          "checkpoint_activations", "activations_checkpoint_method"}) {
    if (!facts.arguments.contains(key)) continue;
    const std::string said = RecomputeText(facts);
    const auto recompute = ReadRecompute(said);
    const bool some = said == "selective" && (listed || modules.find(' ') != std::string::npos);
    if (!recompute || some) return;  // modules of Megatron's own list
    all->push_back({key, said, "recompute " + orrery::RecomputeText(ours), *recompute == ours});
    return;
  }
}

// Of Megatron's and DeepSpeed's arguments.
std::vector<Statement> StatementsOf(const LogFacts& facts, const CaseRow& row) {
  const Strategy& s = row.strategy;
  const std::pair<const char*, int64_t> counts[] = {
      {"num_layers", row.model.layers},         {"hidden_size", row.model.hidden},
      {"num_attention_heads", row.model.heads}, {"seq_length", row.work.seq_len},
      {"tensor_model_parallel_size", s.tp},     {"pipeline_model_parallel_size", s.pp},
      {"context_parallel_size", s.cp},          {"data_parallel_size", s.data_parallel()},
      {"micro_batch_size", s.micro_batch},      {"train_micro_batch_size_per_gpu", s.micro_batch}};
  std::vector<Statement> all;
  for (const auto& [key, ours] : counts) {
    if (const auto value = facts.Whole(key))
      all.push_back({key, std::to_string(*value), std::to_string(ours), *value == ours});
  }
  SayEngine(facts, row, &all);
  SayZero(facts, s.zero, &all);
  SayPrecision(facts, row.work, &all);
  SayRecompute(facts, s.recompute, &all);
  return all;
}

// The batch of a step: an argument's, else no line of a step has the description's.
std::string OtherBatch(const LogFacts& facts, const measured::TrainingLog& log, int64_t ours) {
  const auto differs = [&](int line, double batch) {
    return fmt::format("line {}: its global batch is {:g}, the run's description has {}", line,
                       batch, ours);
  };
  const auto described = static_cast<double>(ours);
  if (facts.global_batch && std::abs(*facts.global_batch - described) > facts.batch_error)
    return differs(facts.batch_line, *facts.global_batch);
  // One batch from the first step to the last.
  for (const measured::StepSample& step : log.steps) {
    if (facts.global_batch && facts.batch_error == 0 && step.samples && *step.samples != described)
      return differs(step.line, *step.samples);
  }
  const measured::StepSample* other = nullptr;
  for (const measured::StepSample& step : log.steps) {
    if (step.samples && *step.samples == described) return "";
    if (step.samples && other == nullptr) other = &step;
  }
  return other == nullptr ? "" : differs(other->line, *other->samples);
}

// Arguments that contradict each other: their degrees are not the ranks.
std::string OtherRanks(const LogFacts& facts) {
  int64_t product = 1;
  for (const char* key : {"tensor_model_parallel_size", "pipeline_model_parallel_size",
                          "data_parallel_size", "context_parallel_size"}) {
    const auto degree = facts.Whole(key);
    const bool may_lack = std::string_view(key).starts_with("context");
    if ((!degree && !may_lack) || degree.value_or(1) < 1 || degree.value_or(1) > kMostRanks)
      return "";
    product *= degree.value_or(1);
  }
  if (const auto printed = facts.Whole("world_size");
      facts.has_dump && printed && *printed != product) {
    const auto line = facts.lines.find("world_size");
    return fmt::format("line {}: world_size {}, and its other arguments make {} ranks",
                       line == facts.lines.end() ? 0 : line->second, *printed, product);
  }
  if (!facts.world_size || *facts.world_size == product) return "";
  return fmt::format("line {}: it ran on {} ranks, its arguments make {}", facts.world_line,
                     *facts.world_size, product);
}

// Arguments against a row that somebody described.
std::string OtherLayout(const LogFacts& facts, const CaseRow& row) {
  for (const Statement& one : StatementsOf(facts, row)) {
    if (one.agrees) continue;
    const auto line = facts.lines.find(one.key);
    return fmt::format("line {}: its arguments say {} {}, the run's description {}",
                       line == facts.lines.end() ? 0 : line->second, one.key, one.said, one.ours);
  }
  return "";
}

}  // namespace

CaseRow RowOfArguments(const LogFacts& facts, const RunPlace& place, const std::string& log) {
  const TopologySpec topology = LoadTopology(place.topology);
  std::vector<std::pair<std::string, std::string>> cells = {
      {"case", std::filesystem::path(log).filename().string()},
      {"topology", place.topology},
      {"framework", FrameworkText(facts)},
      {"family", IsBert(facts) ? "bert" : "gpt"},
      {"gated", facts.Flag("swiglu") ? "1" : "0"},
      {"precision", PrecisionText(facts)},
      {"recompute", RecomputeText(facts)},
      {"zero", ZeroText(facts)},
      {"flash", FlashText(facts)},
      {"seq_parallel", facts.Flag("sequence_parallel") ? "1" : "0"},
      {"kv_heads", facts.Flag("group_query_attention") ? facts.Argument("num_query_groups") : ""},
      {"measured_step_s", "1"},  // the log's time follows
  };
  for (const auto& [column, names] : kPlain) cells.emplace_back(column, First(facts, names));
  const int64_t world = facts.world_size.value_or(0), per_node = topology.node.gpus;
  if (world > 0) {
    cells.emplace_back("gpus_per_node", std::to_string(std::min<int64_t>(world, per_node)));
    cells.emplace_back("nodes", std::to_string(std::max<int64_t>(1, world / per_node)));
  }
  std::string header, values;
  for (const auto& [column, value] : cells) {
    header += (header.empty() ? "" : ",") + column;
    std::string cell = value;
    std::erase(cell, '"');
    values += (values.empty() ? "\"" : ",\"") + cell + "\"";
  }
  Diagnostics diagnostics;
  CaseRow row = ReadCases(
      CsvTable::Parse(std::make_shared<Source>(Source{log, header + "\n" + values + "\n"}),
                      CaseColumns(), &diagnostics))[0];
  row.source = std::filesystem::path(log).stem().string();
  row.place = log;
  if (!place.framework.empty()) row.framework = place.framework;
  SetModel(facts, &row.model);
  if (const std::string why = Unmodelled(facts); !why.empty()) row.refused = why;
  return row;
}

std::string MismatchOf(const LogFacts& facts, const measured::TrainingLog& log,
                       const CaseRow& row) {
  const TopologySpec topology = LoadTopology(row.topology);
  const std::string id = row.gpu.empty() ? topology.gpu : row.gpu;
  if (id != kUnknownGpu) {
    const GpuProfile gpu = LoadGpuProfile(id);
    std::string why = measured::OtherDevice(facts.devices, gpu);
    if (why.empty()) why = OtherRates(facts, log, gpu, row.work.precision);
    if (!why.empty()) return fmt::format("{}, and {} has {}", why, topology.name, id);
  }
  const int64_t ranks = row.nodes * row.gpus_per_node;
  if (facts.world_size && *facts.world_size != ranks)
    return fmt::format("line {}: it ran on {} ranks, the run's description has {}",
                       facts.world_line, *facts.world_size, ranks);
  std::string why = OtherRanks(facts);
  if (why.empty()) why = OtherLayout(facts, row);
  return why.empty() ? OtherBatch(facts, log, row.work.global_batch) : why;
}

}  // namespace orrery
