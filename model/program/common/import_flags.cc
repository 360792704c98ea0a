// SPDX-License-Identifier: Apache-2.0
// --from FILE: settings of other programs as flags, each with its place in the file.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "model/base/plain_text.h"
#include "model/exchange/bundle.h"
#include "model/exchange/import.h"
#include "model/exchange/spellings.h"
#include "model/framework/presets.h"
#include "model/hardware/catalog.h"
#include "model/program/common/job_flags.h"

namespace orrery::cli {
namespace {

using exchange::Field;
using exchange::Imported;
using exchange::Value;

constexpr std::size_t kMostImported = std::size_t{64} << 20;  // of a file that is imported

// As the flag spells what the field says.
std::string FlagText(const std::string& field, const std::string& text) {
  if (field == "flash_attention") return text == "on" ? "flash" : "standard";
  return text;
}

class FlagFiller {
 public:
  // `run`: flags of `plan run` alone; none: another command.
  FlagFiller(const Imported& imported, JobFlags* job, LayoutFlags* layout,
             const std::function<void()>& translate, const std::vector<Flag*>& run)
      : imported_(imported),
        job_(*job),
        layout_(layout),
        flags_(job->All()),
        run_(run),
        translate_(translate) {
    if (layout == nullptr) return;
    const std::vector<Flag*> axes = layout->All();
    flags_.insert(flags_.end(), axes.begin(), axes.end());
    whole_ = true;
  }

  void Fill() {
    Take(&job_.framework, {imported_.framework, {}, ""});
    Take(&job_.topology, {imported_.topology, {}, ""});
    if (imported_.framework == job_.framework.text) Take(&job_.fact, {imported_.facts, {}, ""});
    TakeModel();
    for (const Field& field : exchange::Fields()) {
      const auto value = imported_.values.find(field.name);
      if (value != imported_.values.end()) TakeField(field, value->second);
    }
    const auto nodes = imported_.values.find("nodes");
    if (layout_ != nullptr && nodes != imported_.values.end() && nodes->second.where.source &&
        job_.nodes.where.source == nodes->second.where.source)
      layout_->counted = nodes->second.where;
    if (whole_ && translate_) translate_();
    const bool same = imported_.framework.empty() || imported_.framework == job_.framework.text;
    if (whole_ && (same || !translate_)) TakeFacts();
    TakeTraining();
    for (const std::string& note : imported_.notes) job_.notes.push_back(note);
  }

 private:
  void TakeModel() {
    if (imported_.model) {
      const LoadedModel& model = *imported_.model;
      const std::vector<std::string> names = ModelNames();
      if (std::ranges::find(names, model.spec.name) != names.end()) {
        Take(&job_.model, {model.spec.name, {}, ""});
      } else if (!job_.model.given) {
        job_.own_model = std::make_shared<const LoadedModel>(model);
      }
    }
    if (!imported_.model_name.empty()) Take(&job_.model, {imported_.model_name, {}, ""});
  }

  // The flag of the schedule first: where a rate falls to means nothing to one that stays.
  void TakeTraining() {
    const auto find = [&](std::string_view name) {
      return std::ranges::find_if(run_, [&](const Flag* flag) { return flag->name == name; });
    };
    const auto shape = find("--lr-schedule");
    if (const auto value = imported_.training.find("--lr-schedule");
        shape != run_.end() && value != imported_.training.end())
      Take(*shape, value->second);
    const bool falls = shape != run_.end() && (*shape)->given && (*shape)->text != "constant";
    std::string taken;
    for (const auto& [name, value] : imported_.training) {
      const auto at = find(name);
      if (at == run_.end()) continue;
      if (at != shape && (falls || (name != "--lr-end" && name != "--lr-steps"))) Take(*at, value);
      if ((*at)->given && (*at)->where.line == value.where.line && (*at)->text == value.text)
        taken += fmt::format("{}{} {}", taken.empty() ? "" : ", ", name, value.text);
    }
    if (!taken.empty())
      job_.notes.push_back(fmt::format("taken from {}: {}", job_.from.front().text, taken));
  }

  void TakeField(const Field& field, const Value& value) {
    const std::string flag = field.flag;
    if (flag.empty() && value.text == exchange::kAuto) return;  // 1, as the Trainer has it
    int64_t stage = 0;
    if (flag == "--zero" && ParseInteger(value.text, &stage) == NumberFault::kNone && stage > 3)
      throw InputError(
          {{value.where, fmt::format("{}: there is no stage {}", value.key, value.text),
            "ZeRO has the stages 0 to 3"}});
    if (flag.starts_with("--")) {
      const auto at = std::ranges::find(flags_, flag, &Flag::name);
      if (at != flags_.end()) Take(*at, {FlagText(field.name, value.text), value.where, value.key});
      return;
    }
    if (!flag.empty() || !value.where.source) return;
    if (std::string(field.name) == "clip_norm") {
      if (imported_.training.contains("--clip-norm")) return;
      if (value.text != "1" && value.text != "1.0")
        job_.notes.push_back(fmt::format("{}: gradients are clipped at 1 in the prediction",
                                         exchange::Place(value.where)));
    } else if (value.text != "1") {
      throw InputError(
          {{value.where,
            fmt::format("{} {} ({}) is not modelled", field.name, value.text, value.key),
            fmt::format("only {} 1 can be predicted", field.name)}});
    }
  }

  void Take(Flag* flag, const Value& value) {
    if (value.text.empty()) return;
    if (flag->given) {
      if (flag->text != value.text && value.where.source)
        job_.notes.push_back(fmt::format("{} {} replaces {} of {}", flag->name, flag->text,
                                         value.text, exchange::Place(value.where)));
      return;
    }
    if (value.text == exchange::kAuto) {
      const std::string micro = Text("micro_batch");
      const bool gpus = flag == &job_.global_batch && !micro.empty() && micro != exchange::kAuto;
      throw InputError(
          {{value.where, fmt::format("{} \"auto\" is filled in at run time", value.key),
            gpus ? "--nodes: micro-batches and accumulation are known, the GPUs are not; or "
                   "--global-batch"
                 : fmt::format("{}, or --from a file of the TrainingArguments", flag->name)}});
    }
    flag->given = true;
    flag->text = value.text;
    flag->where = value.where.source ? value.where : job_.from.front().where;
  }

  std::string Text(const char* field) const {
    const auto at = imported_.values.find(field);
    return at == imported_.values.end() ? "" : at->second.text;
  }

  // Facts in which the file differs from the framework's defaults, but those that --fact states.
  void TakeFacts() {
    if (!job_.framework.given) return;
    const std::string stated = "," + (job_.fact.given ? job_.fact.text : "");
    const FrameworkPreset& preset = FindFramework(job_.framework.text);
    std::string facts;
    for (const Field& field : exchange::Fields()) {
      const std::string flag = field.flag;
      if (!flag.starts_with("fact ")) continue;
      const std::string key = flag.substr(5), text = Text(field.name);
      if (text.empty() || stated.find("," + key + "=") != std::string::npos) continue;
      const std::string wanted = key == "fp32_grads"    ? GradientFact(preset, text)
                                 : key == "fp8_weights" ? WeightFact(preset, text)
                                                        : text;
      if (key == "attention" && text == OwnKernel(preset)) continue;
      if (wanted.empty() || wanted == Default(preset, DefaultKey(key))) continue;
      facts += fmt::format("{}{}={}", facts.empty() ? "" : ",", key, wanted);
    }
    if (facts.empty()) return;
    if (!job_.fact.given) return Take(&job_.fact, {facts, {}, ""});
    job_.fact.text += "," + facts;
  }

  // Pipelines have a default of their own.
  std::string DefaultKey(const std::string& key) const {
    const bool stages = !Text("pp").empty() && Text("pp") != "1";
    return key == "reduce_once" && stages ? "reduce_once_in_pipelines" : key;
  }

  // The default of a framework as a field says it.
  static std::string Default(const FrameworkPreset& preset, const std::string& key) {
    for (const char* section : {"defaults.", "facts."}) {
      const auto at = preset.facts.find(section + key);
      if (at == preset.facts.end()) continue;
      const std::string& text = at->second.value;
      return text == "true" ? "on" : text == "false" ? "off" : text;
    }
    return "";
  }

  // "": the framework does as the file says, or cannot be told.
  std::string GradientFact(const FrameworkPreset& preset, const std::string& text) const {
    const bool bf16 = Text("precision") == "bf16", on = text == "on";
    const bool now = bf16 && (preset.fp32_grads == Fp32Grads::kBf16 ||
                              (preset.fp32_grads == Fp32Grads::kBf16Zero0 && Text("zero") == "0"));
    if (!bf16 || now == on) return "";
    return on ? "bf16" : "never";
  }

  // Likewise. A file says so of its own recipe; of those that cannot, it says what has no effect here.
  std::string WeightFact(const FrameworkPreset& preset, const std::string& text) const {
    const std::string recipe = Text("fp8");
    for (const Fp8 one : {Fp8::kDelayed, Fp8::kCurrent, Fp8::kBlockwise, Fp8::kMxfp8}) {
      if (recipe != NameIn(kFp8Names, one)) continue;
      const bool now = std::ranges::find(preset.fp8_weights, one) != preset.fp8_weights.end();
      return now == (text == "on") ? "" : now ? "off" : recipe;
    }
    return "";
  }

  // The kernel that the framework takes by itself on the job's chip; "": that is not known yet, or wrong, which is said later.
  std::string OwnKernel(const FrameworkPreset& preset) const {
    try {
      std::string cluster = job_.topology.text;
      if (!job_.topology.given)
        cluster = imported_.model    ? imported_.model->defaults.topology
                  : job_.model.given ? LoadModelOf(job_.model).defaults.topology
                                     : "";
      if (cluster.empty() && !job_.gpu.given) return "";
      const auto kernel = preset.FusedAttention(
          LoadGpuProfile(job_.gpu.given ? job_.gpu.text : LoadTopology(cluster).gpu));
      return kernel ? NameIn(kAttentionKernelNames, *kernel) : "";
    } catch (const InputError&) {
      return "";
    }
  }

  const Imported& imported_;
  JobFlags& job_;
  LayoutFlags* layout_;
  std::vector<Flag*> flags_, run_;
  const std::function<void()>& translate_;
  bool whole_ = false;
};

// A search compares several clusters, node counts or batches: nothing follows from all of them.
bool HasSeveral(const JobFlags& job, const Flag& flag) {
  if (!job.several || !flag.given) return false;
  const bool list = flag.text.find(',') != std::string::npos;
  if (&flag == &job.topology) return list;
  return (&flag == &job.nodes || &flag == &job.global_batch) &&
         (list || flag.text.find("..") != std::string::npos);
}

// What flags say of the fields of a job and of one layout, for what follows from it in the files.
exchange::Values GivenBy(JobFlags* job, LayoutFlags* layout,
                         const std::optional<LoadedModel>& model) {
  exchange::Values given;
  std::vector<Flag*> all = job->All();
  if (layout != nullptr) {
    for (Flag* axis : layout->All()) all.push_back(axis);
  }
  for (const Field& field : exchange::Fields()) {
    const auto at = std::ranges::find(all, std::string(field.flag), &Flag::name);
    if (at != all.end() && (*at)->given && !HasSeveral(*job, **at))
      given.emplace(field.name, Value{(*at)->text, (*at)->where, (*at)->name});
  }
  if (HasSeveral(*job, job->nodes) || HasSeveral(*job, job->topology)) {
    given.erase("gpus_per_node");  // with which one number of GPUs would be known
    return given;
  }
  const std::string cluster = job->topology.given ? job->topology.text
                              : model             ? model->defaults.topology
                                                  : "";
  if (!given.contains("gpus_per_node") && !cluster.empty())
    AtFlag(job->topology, [&] {
      const int gpus = LoadTopology(cluster).node.gpus;
      given.emplace("gpus_per_node", Value{std::to_string(gpus), job->topology.where, ""});
    });
  return given;
}

// A scenario of this project (scenarios/README.md): job and layout by flags of the same names.
bool IsScenario(const Source& source) {
  if (!source.name.ends_with(".yaml") && !source.name.ends_with(".yml")) return false;
  const auto has = [&](const std::string& line) {
    return source.text.starts_with(line) || source.text.find("\n" + line) != std::string::npos;
  };
  return has("description:") && (has("job:") || has("layout:") || has("bench:"));
}

// A configuration by the path that a file names it by, seen from that file or from here, or by its name next to that file.
// `source ./FILE` means that place alone.
SourcePtr FileBeside(const exchange::Setting& names) {
  namespace fs = std::filesystem;
  const fs::path named = names.value, folder = fs::path(names.where.source->name).parent_path();
  // What a script takes in from elsewhere is of another machine.
  const bool elsewhere = names.key == "source" && named.is_absolute() &&
                         !names.value.starts_with(folder.string() + "/");
  const bool exact = names.key == "source" && names.value.starts_with("./");
  for (const fs::path& path : {folder / named, named, folder / named.filename()}) {
    if ((elsewhere && path == named) || (exact && path == folder / named.filename())) continue;
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored))
      return ReadSource(path.lexically_normal().string(), kMostImported);
  }
  return nullptr;
}

void TakeScenario(const SourcePtr& source, JobFlags* job, LayoutFlags* layout,
                  const std::vector<Flag*>& run) {
  Diagnostics diagnostics;
  const Node root = Node::Parse(source, &diagnostics);
  diagnostics.ThrowIfAny();
  root.String("description");
  if (root.Has("bench"))
    throw InputError({{root.where("bench"), "this scenario is a benchmark of messages",
                       fmt::format("plan bench --simulate --from {}; without --simulate it is "
                                   "measured among ranks here",
                                   source->name)}});
  if (root.Has("perturbations"))
    job->notes.push_back(fmt::format("{}: what disturbs the step is of `plan simulate --scenario`",
                                     exchange::Place(root.where("perturbations"))));
  std::vector<Flag*> all = run;
  for (const auto& flags : {job->All(), layout == nullptr ? std::vector<Flag*>() : layout->All()})
    all.insert(all.end(), flags.begin(), flags.end());
  // What a CPU can do goes before what the cluster does.
  if (root.Has("run") && !run.empty()) FillFlags(root, "run", all);
  FillFlags(root, "job", job->All());
  if (root.Has("layout") && layout != nullptr) FillFlags(root, "layout", layout->All());
  root.RejectUnknownKeys();
  diagnostics.ThrowIfAny();
}

// Of a folder of adapters the file that describes them.
std::string NamedFile(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path adapters = fs::path(path) / "adapter_config.json";
  return fs::is_regular_file(adapters, ignored) ? adapters.string() : path;
}

// A number of nodes in the files that is not understood: a topology's own would be that of another job. What the environment
// sets is taken as empty.
void CheckNodes(const exchange::Setting& count, JobFlags* job) {
  const std::string what = fmt::format("{}: {}", exchange::Place(count.where), count.unresolved);
  if (job->nodes.given) {
    job->notes.push_back(fmt::format("{}: --nodes {} is taken", what, job->nodes.text));
  } else if (exchange::IsUnset(count.unresolved)) {
    job->notes.push_back(fmt::format(
        "{}: the number of nodes is that of the topology; --nodes N for another", what));
  } else {
    throw InputError(
        {{count.where, fmt::format("the number of nodes is not known: {}", count.unresolved),
          "--nodes N, or write the number out"}});
  }
}

}  // namespace

void TakeImports(JobFlags* job, LayoutFlags* layout, const std::function<void()>& translate,
                 const std::vector<Flag*>& run) {
  if (job->from.empty()) return;
  std::vector<SourcePtr> sources;
  for (const Flag& file : job->from)
    AtFlag(file, [&] { sources.push_back(ReadSource(NamedFile(file.text), kMostImported)); });
  std::erase_if(sources, [&](const SourcePtr& source) {
    if (!IsScenario(*source)) return false;
    TakeScenario(source, job, layout, run);
    return true;
  });
  if (sources.empty()) return;
  job->foreign = true;
  std::optional<LoadedModel> model;
  if (job->model.given) model = LoadModelOf(job->model);
  const Imported imported =
      exchange::Import(sources, model, GivenBy(job, layout, model), FileBeside, !run.empty());
  if (layout != nullptr && imported.no_layout) throw InputError({*imported.no_layout});
  job->no_model = imported.no_model;
  job->gpu_kinds = imported.gpus;
  if (imported.no_nodes) CheckNodes(*imported.no_nodes, job);
  FlagFiller(imported, job, layout, translate, run).Fill();
  for (std::string& note : job->notes)
    note = exchange::OneLine(note);  // names of files hold what they like
}

}  // namespace orrery::cli
