// SPDX-License-Identifier: Apache-2.0
// From flags and the model file's defaults to a job; every default leaves a note.
#include <fmt/format.h>

#include <algorithm>

#include "model/arch/data_root.h"
#include "model/arch/parameters.h"
#include "model/base/plain_text.h"
#include "model/base/text.h"
#include "model/framework/presets.h"
#include "model/hardware/catalog.h"
#include "model/plan/ir/plan_facts.h"
#include "model/plan/lower/coded.h"
#include "model/program/common/adapter_flags.h"
#include "model/program/common/job_flags.h"
#include "model/program/common/names.h"
#include "model/program/common/release_facts.h"
#include "model/program/common/slow_nodes.h"

namespace orrery::cli {
namespace {

using report::Decision;
using report::Job;

constexpr int64_t kMostNodes = int64_t{1} << 40;  // the topology's own limit is checked later
constexpr int64_t kMostBatch = int64_t{1} << 40;
constexpr int64_t kMostTokens = int64_t{1} << 24;  // of one sequence
// Where nobody says: Llama 3 was pretrained on 8,192 tokens, longer contexts came at its end, and on 4 Mi tokens per step at
// its start (Llama team 2024, arXiv:2407.21783, section 3.4).
constexpr int64_t kDefaultTokens = 8192;
constexpr int64_t kDefaultBatchTokens = int64_t{4} << 20;

class JobMaker {
 public:
  explicit JobMaker(const JobFlags& flags) : flags_(flags) {}

  Job Make() {
    RequireModel();
    ReadPlain();
    LoadModelFile();
    LoadCluster();
    SetWorkload();
    SetFramework();
    return Finish();
  }

  // What is trained is the plan's.
  Job Make(const ir::Plan& plan, const std::string& file) {
    ReadPlain();
    const ir::PlanFacts facts = ir::FactsOf(plan);
    job_.plan = plan.title.empty() ? file : plan.title;
    job_.model.origin = file;
    job_.model.spec.name = fmt::format("plan {}", file);
    job_.parameters = facts.parameters;
    ranks_ = plan.mesh.ranks();
    LoadCluster();
    request_.work = WorkOf(plan);
    request_.global_batches = {request_.work.global_batch};
    request_.flash_attention = facts.fused_attention;
    CheckPrecision();
    TakeRecordedFramework(plan.framework, file);
    SetFramework();
    return Finish();
  }

 private:
  Job Finish() {
    diagnostics_.ThrowIfAny();
    job_.arguments = flags_.Arguments();
    job_.notes.insert(job_.notes.begin(), flags_.notes.begin(), flags_.notes.end());
    return std::move(job_);
  }

  void RequireModel() {
    if (flags_.model.given || flags_.own_model) return;
    diagnostics_.Error(flags_.model.where, "which model?",
                       "--model NAME, a YAML file or a HuggingFace config.json; `plan list "
                       "models` shows the names");
  }

  // What needs no file.
  void ReadPlain() {
    request_.nodes = ReadNumbers(flags_.nodes, flags_.several, 1, kMostNodes, &diagnostics_);
    request_.gpus_per_node =
        static_cast<int>(ReadInteger(flags_.gpus_per_node, 1, 1024, &diagnostics_).value_or(0));
    request_.global_batches =
        ReadNumbers(flags_.global_batch, flags_.several, 1, kMostBatch, &diagnostics_);
    seq_len_ = ReadInteger(flags_.seq_len, 1, kMostTokens, &diagnostics_);
    precision_ = ReadChoice<Precision>(flags_.precision, report::kPrecisionNames, &diagnostics_);
    fp8_ = ReadChoice<Fp8>(flags_.fp8, kFp8Names, &diagnostics_);
    optimizer_ = ReadChoice<Optimizer>(flags_.optimizer, report::kOptimizerNames, &diagnostics_);
    attention_ = ReadChoice<bool>(flags_.attention, report::kAttentionNames, &diagnostics_);
    dropout_ = ReadRate(flags_.dropout);
    request_.work.lora = ReadLora(flags_, &diagnostics_);
    if (flags_.framework.given) {
      AtFlag(flags_.framework, [&] { framework_ = MatchFramework(flags_.framework.text); });
    }
    request_.memory_limit = ReadQuantity<Bytes>(flags_.memory_limit, &diagnostics_);
    request_.node_price = ReadQuantity<DollarsPerHour>(flags_.node_price, &diagnostics_);
    if (flags_.slow_node.given) slow_nodes_ = ReadSlowNodes(flags_.slow_node, &diagnostics_);
    diagnostics_.ThrowIfAny();
  }

  std::optional<double> ReadRate(const Flag& flag) {
    if (!flag.given) return std::nullopt;
    double rate = 0;
    if (ParseNumber(flag.text, &rate) == NumberFault::kNone && rate >= 0 && rate < 1) return rate;
    diagnostics_.Error(flag.where,
                       fmt::format("{}: '{}' is no rate from 0 to below 1", flag.name, flag.text));
    return std::nullopt;
  }

  void LoadModelFile() {
    if (flags_.own_model && !flags_.model.given) {
      job_.model = *flags_.own_model;
    } else {
      AtFlag(flags_.model, [&] { job_.model = LoadModel(flags_.model.text); });
    }
    request_.model = job_.model.spec;
    job_.parameters = CountParameters(request_.model).total;
  }

  void LoadCluster() {
    std::string name = flags_.topology.text;
    if (!flags_.topology.given) {
      name = job_.model.defaults.topology;
      if (name.empty()) {
        throw InputError(
            {{flags_.topology.where,
              fmt::format("which cluster? {} names none", job_.model.spec.name),
              "--topology NAME or a YAML file; `plan list topologies` shows the names"}});
      }
      FromModel(fmt::format("topology {}", name), "--topology");
      if (name.find('/') != std::string::npos) name = ReferencedFile(job_.model.origin, name);
    }
    AtFlag(flags_.topology, [&] { request_.topology = LoadTopology(name); });
    if (flags_.gpu.given) request_.topology.gpu = flags_.gpu.text;
    if (flags_.collectives.given) request_.topology.collectives = flags_.collectives.text;
    if (!flags_.nodes.given && ranks_ > 0) {
      if (request_.gpus_per_node == 0)
        request_.gpus_per_node =
            static_cast<int>(std::min<int64_t>(ranks_, std::max(1, request_.topology.node.gpus)));
      request_.nodes = {std::max<int64_t>(1, ranks_ / request_.gpus_per_node)};
      Own(fmt::format("{} node{}", request_.nodes[0], request_.nodes[0] == 1 ? "" : "s"), "--nodes",
          fmt::format("for the plan's {} ranks", ranks_));
    } else if (!flags_.nodes.given) {
      request_.nodes = {request_.topology.nodes};
      Own(fmt::format("{} node{}", request_.nodes[0], request_.nodes[0] == 1 ? "" : "s"), "--nodes",
          "as the topology file");
    }
    for (const int64_t nodes : request_.nodes) {
      AtFlag(flags_.nodes, [&] { CheckCounts(request_.topology, nodes, 0); });
    }
    AtFlag(flags_.gpus_per_node, [&] {
      job_.cluster = Summarise(request_.topology, request_.nodes[0], request_.gpus_per_node);
    });
    if (job_.cluster.gpu == kUnknownGpu) {
      throw InputError({{flags_.topology.where,
                         fmt::format("topology {} does not name its GPU", request_.topology.name),
                         "--gpu NAME; `plan list gpus` shows the names"}});
    }
    AtFlag(flags_.gpu, [&] { job_.profiles.gpu = LoadGpuProfile(job_.cluster.gpu); });
  }

  void SetWorkload() {
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
    const bool half =
        request_.work.precision == Precision::kFp16 || request_.work.precision == Precision::kBf16;
    request_.flash_attention = attention_.value_or(half);
    if (Lora& lora = request_.work.lora; lora.on() && !SetTargets(flags_, request_, &lora))
      Own("adapters of all linear maps", "--lora-targets");
  }

  // A framework may have no fused attention, or none for the chip; then a job does not assume one.
  void SetAttention() {
    if (request_.model.family == Family::kMlp) return;
    const FrameworkProfile& framework = job_.profiles.framework;
    const auto kernel = FindFramework(request_.framework).FusedAttention(job_.profiles.gpu);
    const bool none = framework.attention == "standard" || !kernel;
    bool& flash = job_.request.flash_attention;
    if (attention_ && flash && !kernel) {
      diagnostics_.Error(
          flags_.attention.where,
          fmt::format("no fused attention of {} runs on {}", FrameworkWords(request_.framework),
                      job_.profiles.gpu.header.id),
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
    if (own && !kernel) {
      diagnostics_.Error(
          flags_.fact.where,
          fmt::format("attention by {} does not run on {}", facts.at("facts.attention").value,
                      job_.profiles.gpu.header.id),
          "--attention standard, or another kernel");
      diagnostics_.ThrowIfAny();
    }
  }

  void CheckWeights() {
    if (!flags_.fp8_weights.given || flags_.fp8_weights.text != "on") return;
    Strategy held;
    held.fp8_weights = true;
    if (const auto refused = CheckCodedWeights(request_.work, held))
      diagnostics_.Error(flags_.fp8_weights.where, refused->reason, refused->hint);
    diagnostics_.ThrowIfAny();
  }

  void CheckRecipe() {
    const FrameworkPreset& preset = FindFramework(job_.request.framework);
    const Fp8 recipe = request_.work.fp8;
    if (preset.Offers(recipe)) return;
    std::string offered = "--fp8 off";
    for (const Fp8 one : preset.fp8) offered += fmt::format(", --fp8 {}", NameIn(kFp8Names, one));
    diagnostics_.Error(flags_.fp8.where,
                       fmt::format("{} has no fp8 recipe {}", FrameworkWords(request_.framework),
                                   NameIn(kFp8Names, recipe)),
                       offered + "; --framework orrery offers all");
    diagnostics_.ThrowIfAny();
  }

  // Published runs, which the profiles rest on, are read likewise.
  void SetDropout() {
    job_.request.work.master_weights = FindFramework(request_.framework).master_weights;
    double& rate = job_.request.work.dropout;
    if (dropout_) {
      rate = *dropout_;
    } else if (const auto by_model = job_.model.defaults.dropout) {
      rate = *by_model;
      FromModel(fmt::format("dropout {}", rate), "--dropout");
    } else if (request_.model.family != Family::kMlp) {
      rate = FindFramework(request_.framework).DropoutOf(request_.model);
      if (rate > 0) Own(fmt::format("dropout {}", rate), "--dropout", "default of the framework");
    }
  }

  void SetLengths(const TrainingDefaults& defaults) {
    Workload& work = request_.work;
    if (seq_len_) {
      work.seq_len = *seq_len_;
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
      const int64_t batch = DefaultBatch(work.seq_len);
      request_.global_batches = {batch};
      Own(fmt::format("global batch {} sequence{}", batch, batch == 1 ? "" : "s"), "--global-batch",
          fmt::format("{:.1f} M tokens", 1e-6 * static_cast<double>(batch * work.seq_len)));
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

  // Sequences of kDefaultBatchTokens, rounded up to a multiple of the GPUs, or of the smallest of their halves that is no
  // less: then data parallelism over all of them, or over a power of two less, divides the batch.
  int64_t DefaultBatch(int64_t seq_len) const {
    const int64_t sequences = std::max<int64_t>(1, (kDefaultBatchTokens + seq_len - 1) / seq_len);
    int64_t part =
        request_.gpus_per_node > 0 ? request_.gpus_per_node : request_.topology.node.gpus;
    part = std::max<int64_t>(
        1, part * *std::max_element(request_.nodes.begin(), request_.nodes.end()));
    while (part % 2 == 0 && part / 2 >= sequences) part /= 2;
    return (sequences + part - 1) / part * part;
  }

  void SetPrecision(const std::string& by_model) {
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
          wanted
              ? fmt::format("{} does not compute in the model file's {}", gpu.header.id, by_model)
              : "");
    }
    CheckPrecision();
  }

  void CheckProducts() {
    std::string hint;
    const std::string why = job_.profiles.gpu.WhyNo(request_.work.fp8, &hint);
    if (!why.empty()) diagnostics_.Error(flags_.fp8.where, why, hint);
  }

  void CheckPrecision() {
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

  // Facts that the user states, over those of the framework, named or not.
  void TakeFacts() {
    if (flags_.fact.given) {
      AtFlag(flags_.fact, [&] {
        request_.framework = FindFramework(WithFacts(request_.framework, flags_.fact.text)).name;
      });
    }
    if (flags_.fp8_weights.given) AtFlag(flags_.fp8_weights, [&] { TakeWeights(); });
  }

  // --fp8-weights: the fact of that name, for every recipe that can.
  void TakeWeights() {
    const std::string& text = flags_.fp8_weights.text;
    if (text != "on" && text != "off")
      throw InputError(fmt::format("--fp8-weights is on or off, not '{}'", text));
    const FrameworkReference now = SplitReference(request_.framework);
    const std::string fact =
        text == "on" ? "fp8_weights=delayed,current,blockwise" : "fp8_weights=off";
    request_.framework =
        FindFramework(WithFacts(now.name, now.facts.empty() ? fact : now.facts + "," + fact)).name;
  }

  // What an alias stands for is part of the answer.
  void TakeFramework() {
    request_.framework = framework_.preset->name;
    if (framework_.alias == nullptr) return;
    job_.notes.push_back(fmt::format("framework {} is read as {}: {}", framework_.alias->name,
                                     FrameworkWords(request_.framework), framework_.alias->why));
  }

  // A plan text may say what it was made for; --framework overrides it.
  void TakeRecordedFramework(const std::string& recorded, const std::string& file) {
    if (recorded.empty()) {
      recorded_ = "the plan names none";
      return;
    }
    if (flags_.framework.given) {
      if (framework_.preset->name != recorded)
        job_.notes.push_back(fmt::format("the plan was made for the framework {}", recorded));
      return;
    }
    try {
      framework_ = MatchFramework(recorded);
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}: the framework '{}' is not known", file, recorded),
                       "--framework NAME; `plan list frameworks` shows the names");
    }
    recorded_ = "recorded in the plan";
  }

  // A framework that was calibrated on this very cluster; else one that offers every axis.
  void SetFramework() {
    std::string why;
    if (framework_.preset != nullptr) {
      TakeFramework();
    } else {
      request_.framework = request_.model.family == Family::kMlp ? "ddp" : "megatron";
      const std::string here = "@" + request_.topology.name;
      for (const std::string& site : AllProfileIds(kFrameworkFolder)) {
        if (!site.ends_with(here)) continue;
        const std::string name = site.substr(0, site.size() - here.size());
        if (!HasProfile(kFrameworkFolder, name)) continue;
        request_.framework = FindFramework(name).name;
        why = "calibrated on this cluster";
      }
    }
    TakeFacts();
    job_.request = request_;
    AtFlag(flags_.collectives, [&] { job_.profiles = LoadProfiles(job_.request); });
    FollowFramework(job_.profiles.framework, &job_.request.work);
    if (job_.plan.empty()) {
      SetAttention();
      SetDropout();
      CheckRecipe();
      job_.facts = ReleaseFacts(job_);
    }
    PriceNodes(flags_, slow_nodes_, &job_);
    const std::string name = SplitReference(request_.framework).name;
    if (const std::string release = report::ReleaseOf(job_); release != name)
      why += fmt::format("{}its release {} where attention is standard", why.empty() ? "" : "; ",
                         release);
    if (!recorded_.empty()) why += (why.empty() ? "" : "; ") + recorded_;
    if (!flags_.framework.given) Own(fmt::format("framework {}", name), "--framework", why);
  }

  template <class E, std::size_t N>
  static E Named(const report::NameRow<E> (&table)[N], const std::string& name) {
    for (const auto& row : table) {
      if (row.first == name) return row.second;
    }
    throw InputError(fmt::format("the model file's '{}' is not known", name),
                     SuggestName(name, NamesOf<E>(table)));
  }

  void FromModel(std::string what, const char* flag) {
    job_.decisions.push_back({std::move(what), flag, "", true});
  }
  void Own(std::string what, const char* flag, std::string why = "") {
    job_.decisions.push_back({std::move(what), flag, std::move(why), false});
  }

  const JobFlags& flags_;
  Job job_;
  SearchRequest request_;
  Diagnostics diagnostics_;
  std::optional<int64_t> seq_len_;
  std::optional<Precision> precision_;
  std::optional<Fp8> fp8_;
  std::optional<Optimizer> optimizer_;
  std::optional<bool> attention_;
  std::optional<double> dropout_;
  FrameworkMatch framework_{nullptr, nullptr};
  std::vector<OtherNodes> slow_nodes_;  // by --slow-node
  int64_t ranks_ = 0;                   // of a plan; 0: there is none
  std::string recorded_;                // what a plan says of its framework, in words
};

}  // namespace

Job JobFlags::Resolve() const { return JobMaker(*this).Make(); }

Job JobFlags::Resolve(const ir::Plan& plan, const std::string& file) const {
  return JobMaker(*this).Make(plan, file);
}

}  // namespace orrery::cli
