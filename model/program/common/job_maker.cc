// SPDX-License-Identifier: Apache-2.0
// From flags and the model file's defaults to a job; what is trained is in job_workload.cc.
#include "model/program/common/job_maker.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/arch/data_root.h"
#include "model/arch/parameters.h"
#include "model/base/plain_text.h"
#include "model/base/quantity_limits.h"
#include "model/collectives/nccl/machine.h"
#include "model/hardware/catalog.h"
#include "model/hardware/cluster_file.h"
#include "model/hardware/node_price.h"
#include "model/plan/ir/plan_facts.h"
#include "model/plan/lower/check_low_precision.h"
#include "model/program/common/adapter_flags.h"
#include "model/program/common/gpu_kinds.h"
#include "model/program/common/release_facts.h"
#include "model/program/common/slow_nodes.h"

namespace orrery::cli {
namespace {

constexpr int64_t kMostNodes = int64_t{1} << 40;  // the topology's own limit is checked later
constexpr int64_t kMostBatch = int64_t{1} << 40;
constexpr int64_t kMostTokens = int64_t{1} << 24;  // of one sequence

}  // namespace

report::Job JobMaker::Make() {
  RequireModel();
  ReadPlain();
  LoadModelFile();
  LoadCluster();
  SetWorkload();
  SetFramework();
  return Finish();
}

report::Job JobMaker::Make(const ir::Plan& plan, const std::string& file) {
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

report::Job JobMaker::Finish() {
  diagnostics_.ThrowIfAny();
  job_.arguments = flags_.Arguments();
  job_.notes.insert(job_.notes.begin(), flags_.notes.begin(), flags_.notes.end());
  CompareGpus();
  return std::move(job_);
}

namespace {

std::optional<DollarsPerHour> ReadNodePrice(const Flag& flag, Diagnostics* diagnostics) {
  if (!flag.given) return std::nullopt;
  TextError error;
  const auto price = ParseQuantity<DollarsPerHour>(flag.text, &error);
  if (!price && !IsTooLarge(error) && !IsTooSmall(error)) {
    RecordBadValue(flag, error, diagnostics);
  } else if (!price || price->value > kMostNodePrice) {
    diagnostics->Error(flag.where, fmt::format("--node-price: {} is no price of a node", flag.text),
                       fmt::format("--node-price takes 0 to {:.0f}USD/h", kMostNodePrice));
    return std::nullopt;
  }
  return price;
}

// What a word of other programs says that is no recipe here; null: nothing.
const char* OtherRecipe(const std::string& text) {
  if (text == "hybrid" || text == "e4m3") return "is a format: a recipe says how it is scaled";
  if (text == "tensorwise") return "is called current here";
  return nullptr;
}

// What --fp8 would take; "": nothing. A newcomer looks for 8 bits under --precision.
std::string RecipeOf(const std::string& text) {
  if (text == "fp8") return "current";
  for (const auto& [name, recipe] : kFp8Names) {
    if (recipe != Fp8::kOff && text == name) return text;
  }
  return "";
}

}  // namespace

// A topology is an answer to what if: the files may be of another cluster.
void JobMaker::CompareGpus() {
  for (const exchange::Setting& kind : flags_.gpu_kinds) {
    if (!IsOtherGpu(kind.value, job_.cluster.gpu)) continue;
    const std::string says =
        fmt::format("{} requests {} GPUs", exchange::Place(kind.where), kind.value);
    std::erase(job_.notes, says);
    job_.notes.push_back(fmt::format("{}; the prediction is of {} ({})", says, job_.cluster.gpu,
                                     request_.topology.name));
  }
}

void JobMaker::RequireModel() {
  if (flags_.model.given || flags_.own_model) return;
  if (const auto& why = flags_.no_model)
    return diagnostics_.Error(why->where, why->message, why->hint);
  diagnostics_.Error(flags_.model.where, "which model?",
                     "--model NAME, a YAML file or a HuggingFace config.json; `plan list "
                     "models` shows the names");
}

void JobMaker::ReadPlain() {
  request_.nodes = ReadNumbers(flags_.nodes, flags_.several, 1, kMostNodes, &diagnostics_);
  request_.gpus_per_node =
      static_cast<int>(ReadInteger(flags_.gpus_per_node, 1, 1024, &diagnostics_).value_or(0));
  request_.global_batches =
      ReadNumbers(flags_.global_batch, flags_.several, 1, kMostBatch, &diagnostics_);
  seq_len_ = ReadInteger(flags_.seq_len, 1, kMostTokens, &diagnostics_);
  if (const std::string recipe = RecipeOf(flags_.precision.text); !recipe.empty()) {
    diagnostics_.Error(
        flags_.precision.where,
        fmt::format("--precision: '{}' is how products are rounded", flags_.precision.text),
        fmt::format("--precision bf16 --fp8 {}", recipe));
  } else {
    precision_ = ReadChoice<Precision>(flags_.precision, report::kPrecisionNames, &diagnostics_);
  }
  if (const char* other = OtherRecipe(flags_.fp8.text); flags_.fp8.given && other != nullptr)
    diagnostics_.Error(
        flags_.fp8.where, fmt::format("--fp8: '{}' {}", flags_.fp8.text, other),
        "--fp8 delayed: scales of steps before; --fp8 current: of the tensor itself");
  else
    fp8_ = ReadChoice<Fp8>(flags_.fp8, kFp8Names, &diagnostics_);
  if (flags_.fp8_skip.given) ReadSkipped();
  optimizer_ = ReadChoice<Optimizer>(flags_.optimizer, report::kOptimizerNames, &diagnostics_);
  attention_ = ReadChoice<bool>(flags_.attention, report::kAttentionNames, &diagnostics_);
  Flag hidden = flags_.dropout;
  if (const auto slash = hidden.text.find('/'); hidden.given && slash != std::string::npos) {
    Flag attention = hidden;
    attention.text = hidden.text.substr(slash + 1);
    hidden.text.resize(slash);
    attention_dropout_ = ReadRate(attention);
  }
  dropout_ = ReadRate(hidden);
  request_.work.lora = ReadLora(flags_, &diagnostics_);
  if (flags_.framework.given) {
    AtFile(flags_.framework, "a framework",
           [&] { framework_ = MatchFramework(flags_.framework.text); });
  }
  request_.memory_limit = ReadQuantity<Bytes>(flags_.memory_limit, &diagnostics_);
  request_.node_price = ReadNodePrice(flags_.node_price, &diagnostics_);
  diagnostics_.ThrowIfAny();
}

void JobMaker::ReadSkipped() {
  const Flag& flag = flags_.fp8_skip;
  const auto skipped = ReadSkippedLayers(flag.text);
  if (skipped) {
    request_.work.fp8_skip = *skipped;
    return;
  }
  diagnostics_.Error(
      flag.where,
      fmt::format("--fp8-skip: '{}' is no number of layers at the start and one at the end",
                  flag.text),
      "--fp8-skip 1,1");
}

std::optional<double> JobMaker::ReadRate(const Flag& flag) {
  if (!flag.given) return std::nullopt;
  double rate = 0;
  if (ParseNumber(flag.text, &rate) == NumberFault::kNone && rate >= 0 && rate < 1) return rate;
  diagnostics_.Error(flag.where,
                     fmt::format("{}: '{}' is no rate from 0 to below 1", flag.name, flag.text));
  return std::nullopt;
}

LoadedModel LoadModelOf(const Flag& flag) {
  LoadedModel model;
  AtFlag(flag, [&] {
    try {
      model = LoadModel(flag.text);
    } catch (const InputError&) {
      RefuseMachineFile(flag.text, "a model");
      throw;
    }
  });
  return model;
}

void JobMaker::LoadModelFile() {
  if (flags_.own_model && !flags_.model.given) {
    job_.model = *flags_.own_model;
  } else {
    job_.model = LoadModelOf(flags_.model);
  }
  request_.model = job_.model.spec;
  job_.parameters = CountParameters(request_.model).total;
}

void JobMaker::LoadCluster() {
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
  AtFile(flags_.gpu, "a GPU", [&] { job_.profiles.gpu = LoadGpuProfile(job_.cluster.gpu); });
}

void JobMaker::TakeFacts() {
  if (flags_.fact.given) {
    AtFlag(flags_.fact, [&] {
      request_.framework = FindFramework(WithFacts(request_.framework, flags_.fact.text)).name;
    });
  }
  if (flags_.fp8_weights.given) AtFlag(flags_.fp8_weights, [&] { TakeWeights(); });
  const FrameworkPreset& preset = FindFramework(request_.framework);
  if (!preset.tp_overlap || OverlapsTensors(request_.work.fp8)) return;
  if (preset.facts.at("facts.tp_overlap").file == kOwnFact) return;
  request_.framework = AndFact("tp_overlap=off");
  job_.notes.push_back(fmt::format("tp_overlap off: products in {} have none",
                                   NameIn(kFp8Names, request_.work.fp8)));
}

// Whether the release that the user states runs on the GPUs.
void JobMaker::CheckNccl() const {
  const FrameworkPreset& preset = *job_.profiles.framework.preset;
  if (preset.facts.at("facts.nccl").file != kOwnFact) return;
  AtFlag(flags_.fact, [&] { nccl::RequireRelease(preset.nccl, job_.profiles.gpu); });
}

// The framework of the request with one fact more.
std::string JobMaker::AndFact(const std::string& fact) const {
  const FrameworkReference now = SplitReference(request_.framework);
  return FindFramework(WithFacts(now.name, now.facts.empty() ? fact : now.facts + "," + fact)).name;
}

// --fp8-weights: the fact of that name, for every recipe that can.
void JobMaker::TakeWeights() {
  const std::string& text = flags_.fp8_weights.text;
  if (text != "on" && text != "off")
    throw InputError(fmt::format("--fp8-weights is on or off, not '{}'", text));
  request_.framework =
      AndFact(text == "on" ? "fp8_weights=delayed,current,blockwise,mxfp8" : "fp8_weights=off");
}

void JobMaker::TakeFramework() {
  request_.framework = framework_.preset->name;
  if (framework_.alias == nullptr) return;
  job_.notes.push_back(fmt::format("framework {} is read as {}: {}", framework_.alias->name,
                                   FrameworkWords(request_.framework), framework_.alias->why));
}

void JobMaker::TakeRecordedFramework(const std::string& recorded, const std::string& file) {
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

void JobMaker::SetFramework() {
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
  AtFile(flags_.collectives, kTimesOfCollectives,
         [&] { job_.profiles = LoadProfiles(job_.request); });
  FollowFramework(job_.profiles.framework, &job_.request.work);
  CheckNccl();
  if (job_.plan.empty()) {
    SetAttention();
    SetDropout();
    CheckRecipe();
    job_.facts = ReleaseFacts(job_);
  }
  std::vector<OtherNodes> slow;
  if (flags_.slow_node.given)
    slow = ReadSlowNodes(flags_.slow_node, request_.topology.fabric, &diagnostics_);
  diagnostics_.ThrowIfAny();
  PriceNodes(flags_, slow, &job_);
  const std::string name = SplitReference(request_.framework).name;
  if (const std::string release = report::ReleaseOf(job_); release != name)
    why += fmt::format("{}its release {} where attention is standard", why.empty() ? "" : "; ",
                       release);
  if (!recorded_.empty()) why += (why.empty() ? "" : "; ") + recorded_;
  // Whoever names a release gets it, so this is of a framework by its name alone.
  if (const std::string release = report::ReleaseOf(job_);
      flags_.framework.given && release != name && FindFramework(release).name == release)
    job_.notes.push_back(
        fmt::format("{} with standard attention is read as its release {}: --framework "
                    "NAME@RELEASE states another (plan list frameworks)",
                    name, release));
  if (!flags_.framework.given) Own(fmt::format("framework {}", name), "--framework", why);
}

report::Job JobFlags::Resolve() const { return JobMaker(*this).Make(); }

report::Job JobFlags::Resolve(const ir::Plan& plan, const std::string& file) const {
  return JobMaker(*this).Make(plan, file);
}

}  // namespace orrery::cli
