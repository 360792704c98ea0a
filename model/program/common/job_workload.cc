// SPDX-License-Identifier: Apache-2.0
// What a job trains and in which arithmetic: lengths, batch, precision, optimizer, attention, dropout.
#include <fmt/format.h>

#include <algorithm>

#include "model/base/text.h"
#include "model/plan/lower/check_low_precision.h"
#include "model/plan/lower/coded.h"
#include "model/program/common/adapter_flags.h"
#include "model/program/common/job_maker.h"

namespace orrery::cli {
namespace {

// Where nobody says: Llama 3 was pretrained on 8,192 tokens, longer contexts came at its end, and on 4 Mi tokens per step at
// its start (Llama team 2024, arXiv:2407.21783, section 3.4).
constexpr int64_t kDefaultTokens = 8192;
constexpr int64_t kDefaultBatchTokens = int64_t{4} << 20;

// Of a name in the model file.
template <class E, std::size_t N>
E Named(const report::NameRow<E> (&table)[N], const std::string& name) {
  for (const auto& row : table) {
    if (row.first == name) return row.second;
  }
  throw InputError(fmt::format("the model file's '{}' is not known", name),
                   SuggestName(name, NamesOf<E>(table)));
}

}  // namespace

void JobMaker::SetWorkload() {
  const TrainingDefaults& defaults = job_.model.defaults;
  SetLengths(defaults);
  SetPrecision(defaults.precision);
  if (fp8_) {
    request_.work.fp8 = *fp8_;
  } else if (!defaults.fp8.empty()) {
    request_.work.fp8 = Named<Fp8>(kFp8Names, defaults.fp8);
    FromModel(fmt::format("fp8 {}", defaults.fp8), "--fp8");
  }
  CheckProducts();
  if (const auto refused = CheckSkippedLayers(request_.model, request_.work))
    diagnostics_.Error(flags_.fp8_skip.where, refused->reason, refused->hint);
  CheckWeights();
  if (optimizer_) {
    request_.work.optimizer = *optimizer_;
  } else if (!defaults.optimizer.empty()) {
    request_.work.optimizer = Named<Optimizer>(report::kOptimizerNames, defaults.optimizer);
    FromModel(fmt::format("optimizer {}", defaults.optimizer), "--optimizer");
  } else {
    request_.work.optimizer = Optimizer::kAdamW;
    Own("optimizer adamw", "--optimizer");
  }
  request_.flash_attention = attention_.value_or(InHalf(request_.work.precision));
  if (Lora& lora = request_.work.lora;
      lora.on() && !SetTargets(flags_, job_.model, request_, &lora))
    Own("adapters of all linear maps", "--lora-targets");
}

void JobMaker::SetAttention() {
  if (request_.model.family == Family::kMlp) return;
  const FrameworkProfile& framework = job_.profiles.framework;
  const auto kernel = FindFramework(request_.framework).FusedAttention(job_.profiles.gpu);
  const bool none = !FusesAttention(framework, job_.profiles.gpu);
  bool& flash = job_.request.flash_attention;
  if (attention_ && flash && !kernel) {
    diagnostics_.Error(flags_.attention.where,
                       fmt::format("no fused attention of {} runs on {}",
                                   FrameworkWords(request_.framework), job_.profiles.gpu.header.id),
                       "--attention standard");
    diagnostics_.ThrowIfAny();
  }
  if (!attention_) {
    if (none) flash = false;
    Own(flash ? "flash attention" : "standard attention", "--attention",
        !none     ? ""
        : !kernel ? "no fused kernel of this framework runs on the chip"
                  : "this framework has no fused kernel");
  }
  const auto& facts = FindFramework(request_.framework).facts;
  const bool own = facts.at("facts.attention").file == kOwnFact;
  if (own && attention_ && !flash) {
    diagnostics_.Error(flags_.fact.where,
                       fmt::format("--attention standard has no fused kernel, and --fact names {}",
                                   facts.at("facts.attention").value),
                       "leave one of them out");
    diagnostics_.ThrowIfAny();
  }
  const bool overlaps =
      facts.at("facts.tp_overlap").file == kOwnFact && facts.at("facts.tp_overlap").value == "true";
  if (overlaps && framework.sequence_overlap <= 0) {
    diagnostics_.Error(flags_.fact.where,
                       fmt::format("tp_overlap=on: the overlap of tensor-parallel messages with "
                                   "matrix products is not modelled for {}",
                                   SplitReference(request_.framework).name),
                       "it is for megatron, nemo and torchtitan");
    diagnostics_.ThrowIfAny();
  }
  if (own && !kernel) {
    diagnostics_.Error(flags_.fact.where,
                       fmt::format("attention by {} does not run on {}",
                                   facts.at("facts.attention").value, job_.profiles.gpu.header.id),
                       "--attention standard, or another kernel");
    diagnostics_.ThrowIfAny();
  }
}

void JobMaker::CheckWeights() {
  if (!flags_.fp8_weights.given || flags_.fp8_weights.text != "on") return;
  Strategy held;
  held.fp8_weights = true;
  held.zero = 1;
  held.dp = 2;
  if (const auto refused = CheckCodedWeights(request_.work, held))
    diagnostics_.Error(flags_.fp8_weights.where, refused->reason, refused->hint);
  diagnostics_.ThrowIfAny();
}

void JobMaker::CheckRecipe() {
  const FrameworkPreset& preset = FindFramework(job_.request.framework);
  const Fp8 recipe = request_.work.fp8;
  if (preset.Offers(recipe)) {
    // The release that is priced may be an older one, without fused attention.
    if (job_.profiles.framework.preset->Offers(recipe)) return;
    diagnostics_.Error(flags_.fp8.where,
                       fmt::format("standard attention is that of {}, which has no fp8 recipe {}",
                                   report::ReleaseOf(job_), NameIn(kFp8Names, recipe)),
                       "flash attention (16 bits), --fp8 off, or --framework orrery");
    diagnostics_.ThrowIfAny();
  }
  std::string offered = "--fp8 off";
  for (const Fp8 one : preset.fp8) offered += fmt::format(", --fp8 {}", NameIn(kFp8Names, one));
  diagnostics_.Error(flags_.fp8.where,
                     fmt::format("{} has no fp8 recipe {}", FrameworkWords(request_.framework),
                                 NameIn(kFp8Names, recipe)),
                     offered + "; --framework orrery offers all");
  diagnostics_.ThrowIfAny();
}

void JobMaker::SetDropout() {
  job_.request.work.master_weights = FindFramework(request_.framework).master_weights;
  double& rate = job_.request.work.dropout;
  if (dropout_) {
    rate = *dropout_;
    job_.request.work.attention_dropout = attention_dropout_;
  } else if (const auto& fact = FindFramework(request_.framework).facts.at("defaults.dropout");
             fact.file == kOwnFact) {
    rate =
        FindFramework(request_.framework).dropout;  // also of models that train without by default
  } else if (const auto by_model = job_.model.defaults.dropout) {
    rate = *by_model;
    const auto of_attention = job_.model.defaults.attention_dropout;
    job_.request.work.attention_dropout = of_attention;
    FromModel(fmt::format("dropout {}{}", rate,
                          of_attention ? fmt::format(" (of attention {})", *of_attention) : ""),
              "--dropout");
  } else if (request_.model.family != Family::kMlp) {
    rate = FindFramework(request_.framework).DropoutOf(request_.model);
    if (rate > 0) Own(fmt::format("dropout {}", rate), "--dropout", "default of the framework");
  }
}

void JobMaker::SetLengths(const TrainingDefaults& defaults) {
  Workload& work = request_.work;
  if (seq_len_) {
    work.seq_len = *seq_len_;
    const ModelSpec& spec = job_.model.spec;  // with learned positions it is refused
    if (spec.positions == Positions::kRotary && work.seq_len > spec.max_positions)
      job_.notes.push_back(fmt::format("the model's longest sequence is {}, --seq-len is beyond it",
                                       spec.max_positions));
  } else if (defaults.seq_len) {
    work.seq_len = *defaults.seq_len;
    FromModel(fmt::format("sequence length {}", work.seq_len), "--seq-len");
  } else {
    const int64_t longest = std::max<int64_t>(job_.model.spec.max_positions, 1);
    work.seq_len = std::min(longest, kDefaultTokens);
    Own(fmt::format("sequence length {}", work.seq_len), "--seq-len",
        longest > work.seq_len ? fmt::format("the model's longest is {}", longest)
                               : "the model's longest");
  }
  if (request_.global_batches.empty() && defaults.global_batch) {
    request_.global_batches = {*defaults.global_batch};
    FromModel(fmt::format("global batch {} sequence{}", *defaults.global_batch,
                          *defaults.global_batch == 1 ? "" : "s"),
              "--global-batch");
  } else if (request_.global_batches.empty() && flags_.default_batch &&
             job_.model.spec.family != Family::kMlp) {
    std::string rule;
    const int64_t batch = DefaultBatch(work.seq_len, &rule);
    request_.global_batches = {batch};
    Own(fmt::format("global batch {} sequence{}", batch, batch == 1 ? "" : "s"), "--global-batch",
        rule);
  } else if (request_.global_batches.empty()) {
    diagnostics_.Error(flags_.global_batch.where,
                       fmt::format("how many sequences are in a step? {} names no global batch",
                                   job_.model.spec.name),
                       "--global-batch N, or a range: --global-batch 256..4096");
    request_.global_batches = {1};
  }
  work.global_batch = request_.global_batches[0];
  work.masked_positions = MaskedPositions(job_.model.spec, defaults, work.seq_len);
}

int64_t JobMaker::DefaultBatch(int64_t seq_len, std::string* rule) const {
  const int64_t sequences = std::max<int64_t>(1, (kDefaultBatchTokens + seq_len - 1) / seq_len);
  int64_t part = request_.gpus_per_node > 0 ? request_.gpus_per_node : request_.topology.node.gpus;
  part =
      std::max<int64_t>(1, part * *std::max_element(request_.nodes.begin(), request_.nodes.end()));
  const int64_t gpus = part;
  while (part % 2 == 0 && part / 2 >= sequences) part /= 2;
  const int64_t batch = (sequences + part - 1) / part * part;
  const auto millions = [](int64_t tokens) { return 1e-6 * static_cast<double>(tokens); };
  *rule = fmt::format("{:.1f} M tokens: {:.1f} M on any cluster", millions(batch * seq_len),
                      millions(kDefaultBatchTokens));
  if (batch != sequences)
    *rule += fmt::format(", rounded up to a multiple of {}{}", part,
                         part == gpus ? " GPUs" : fmt::format(" (1 in {} GPUs)", gpus / part));
  else if (sequences < gpus)
    *rule += fmt::format(", a sequence for 1 in {:.3g} GPUs",
                         static_cast<double>(gpus) / static_cast<double>(sequences));
  return batch;
}

void JobMaker::SetPrecision(const std::string& by_model) {
  const GpuProfile& gpu = job_.profiles.gpu;
  const auto computes = [&](Precision precision) { return gpu.Peak(precision).value > 0; };
  const std::optional<Precision> wanted =
      by_model.empty() ? std::nullopt
                       : std::optional(Named<Precision>(report::kPrecisionNames, by_model));
  if (precision_) {
    request_.work.precision = *precision_;
  } else if (wanted && computes(*wanted)) {
    request_.work.precision = *wanted;
    FromModel(fmt::format("precision {}", by_model), "--precision");
  } else {
    request_.work.precision = computes(Precision::kBf16)   ? Precision::kBf16
                              : computes(Precision::kFp16) ? Precision::kFp16
                                                           : Precision::kFp32;
    Own(fmt::format("precision {}", report::Name(request_.work.precision)), "--precision",
        wanted ? fmt::format("{} does not compute in the model file's {}", gpu.header.id, by_model)
               : "");
  }
  CheckPrecision();
}

void JobMaker::CheckProducts() {
  std::string hint;
  const std::string why = job_.profiles.gpu.WhyNo(request_.work.fp8, &hint);
  if (!why.empty()) diagnostics_.Error(flags_.fp8.where, why, hint);
}

void JobMaker::CheckPrecision() {
  const GpuProfile& gpu = job_.profiles.gpu;
  if (gpu.Peak(request_.work.precision).value > 0) return;
  std::string can;
  for (const auto& [name, value] : report::kPrecisionNames) {
    if (gpu.Peak(value).value > 0)
      can += fmt::format("{}--precision {}", can.empty() ? "" : " or ", name);
  }
  diagnostics_.Error(flags_.precision.where,
                     fmt::format("{} does not compute in {}", gpu.header.id,
                                 report::Name(request_.work.precision)),
                     can);
}

}  // namespace orrery::cli
