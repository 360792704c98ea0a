// SPDX-License-Identifier: Apache-2.0
// Frameworks by name and by alias, and the rules that their YAML parametrises.
#include "model/framework/presets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "model/arch/data_root.h"
#include "model/base/diagnostics.h"
#include "model/framework/profile.h"
#include "model/plan/lower/names.h"

namespace orrery {
namespace {

using enum PipelineSchedule;

// A name under which a framework can be asked for.
struct Spelling {
  std::string folded;
  FrameworkMatch match;
};

// The frameworks of one data root.
struct Catalogue {
  std::vector<FrameworkPreset> presets;
  std::vector<Spelling> spellings;
  std::map<std::string, InputError>
      broken;  // by folded name: files that matter to who asks for them
};

void AddSpelling(Spelling spelling, std::vector<Spelling>* spellings) {
  const auto same = std::find_if(spellings->begin(), spellings->end(), [&](const Spelling& other) {
    return other.folded == spelling.folded;
  });
  if (same != spellings->end()) {
    const FrameworkMatch& match = spelling.match;
    throw InputError(
        {{match.alias ? match.alias->where : Location{},
          fmt::format("'{}' means {} already", match.alias ? match.alias->name : match.preset->name,
                      same->match.preset->name),
          "one name stands for one framework: remove it here or there"}});
  }
  spellings->push_back(std::move(spelling));
}

// Files that say what their framework is; the others are of a site, or a base. By a line of their text, as parsing all of
// them takes 15 ms, which a user feels who completes a name.
bool IsDescribed(const std::string& id) {
  SourcePtr source;
  try {
    source = LoadProfileFile(kFrameworkFolder, id);
  } catch (const InputError&) {
    return true;  // kept among the broken ones
  }
  const std::string& text = source->text;
  return text.starts_with("description:") || text.find("\ndescription:") != text.npos;
}

std::vector<std::string> DescribedIds() {
  std::vector<std::string> ids = AllProfileIds(kFrameworkFolder);
  std::erase_if(ids, [](const std::string& id) { return !IsDescribed(id); });
  return ids;
}

std::unique_ptr<const Catalogue> ReadCatalogue() {
  auto catalogue = std::make_unique<Catalogue>();
  for (const std::string& id : DescribedIds()) {
    try {
      catalogue->presets.push_back(*ShareFrameworkProfile(id)->preset);
    } catch (const InputError& error) {
      catalogue->broken.emplace(FoldedName(id), error);
    }
  }
  // Names first: an alias never hides one.
  for (const FrameworkPreset& preset : catalogue->presets)
    AddSpelling({FoldedName(preset.name), {&preset, nullptr}}, &catalogue->spellings);
  for (const FrameworkPreset& preset : catalogue->presets) {
    for (const FrameworkAlias& alias : preset.aliases)
      AddSpelling({FoldedName(alias.name), {&preset, &alias}}, &catalogue->spellings);
  }
  return catalogue;
}

// Kept for good: callers hold references into it.
const Catalogue& TheCatalogue() {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<const Catalogue>> by_root;
  const std::lock_guard lock(mutex);
  std::string root = DataRoot();
  for (const std::string& folder : UserFolders()) root += "\n" + folder;
  std::unique_ptr<const Catalogue>& catalogue = by_root[root];
  if (!catalogue) catalogue = ReadCatalogue();
  return *catalogue;
}

// Of one file, the others unread. Kept for good, as the catalogue.
const FrameworkPreset& PresetOf(const std::string& id) {
  static std::mutex mutex;
  static std::set<std::shared_ptr<const FrameworkProfile>> kept;
  auto profile = ShareFrameworkProfile(id);
  const std::lock_guard lock(mutex);
  return *(*kept.insert(std::move(profile)).first)->preset;
}

// Of a user's own file.
const FrameworkPreset& PresetOfFile(const std::string& name) {
  return PresetOf(name.find('/') == std::string::npos ? "./" + name : name);
}

const char* ScheduleWord(PipelineSchedule schedule) {
  switch (schedule) {
    case kGpipe:
      return "the GPipe schedule";
    case k1F1B:
      return "the 1F1B schedule";
    case kInterleaved:
      return "the interleaved schedule";
    case kZeroBubble:
      return "the zero-bubble schedule";
    case kZeroBubbleV:
      return "the zero-bubble schedule in a V";
  }
  return "";
}

template <class T>
bool Has(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

Strategy FrameworkPreset::Complete(const Strategy& chosen, Precision precision) const {
  Strategy s = defaults;
  s.tp = chosen.tp;
  s.pp = chosen.pp;
  s.dp = chosen.dp;
  s.dp_outer = chosen.dp_outer;
  s.cp = chosen.cp;
  s.context = chosen.context;
  s.ep = chosen.ep;
  s.vpp = chosen.vpp;
  s.micro_batch = chosen.micro_batch;
  s.schedule = chosen.schedule;
  s.zero = chosen.zero;
  s.sequence_parallel = chosen.sequence_parallel;
  s.recompute = chosen.recompute;
  s.offload = chosen.offload;
  s.flash_attention = chosen.flash_attention;
  s.layout = chosen.layout;
  s.placement = chosen.placement;
  switch (fp32_grads) {
    case Fp32Grads::kNever:
      break;
    case Fp32Grads::kBf16:
      s.fp32_grads = precision == Precision::kBf16;
      break;
    case Fp32Grads::kBf16Sharded:
      s.fp32_grads = precision == Precision::kBf16 && s.shards() > 1 && s.zero >= 2;
      break;
    case Fp32Grads::kBf16Zero0:
      s.fp32_grads = precision == Precision::kBf16 && s.zero == 0;
      break;
  }
  if (!InHalf(precision)) s.fp32_grads = false;
  if (s.zero < 2) s.reduce_once = false;  // nothing else there
  if (s.pp > 1 && s.zero >= 2 && reduce_once_in_pipelines) s.reduce_once = true;
  if (s.pp > 1 && whole_head_in_pipelines) s.whole_head = true;
  s.gradients_on_host = offload_gradients && s.offload.optimizer > 0;
  s.adapter_gathers = s.adapter_split != AdapterSplit::kRows && tp_overlap;
  if (s.zero >= 2)
    s.reduce_in_backward = s.reduce_once;  // else their reductions are in the backward pass anyway
  return s;
}

Strategy FrameworkPreset::Complete(const Strategy& degrees, const Workload& work) const {
  Strategy s = Complete(degrees, work.precision);
  s.fp8_weights = Has(fp8_weights, work.fp8) && CanHoldCodes(work, s) &&
                  (s.zero >= fp8_weights_zero || s.shards() == 1);
  return s;
}

// TransformerEngine pytorch/attention/dot_product_attention/utils.py, get_attention_backend: cuDNN's kernels run from
// compute capability 8.0 on and are preferred to flash-attn's from 9.0 on.
bool FusedFirst(AttentionKernel kernel, const GpuProfile& gpu) {
  constexpr double kHopper = 9.0;
  const bool cudnn =
      kernel == AttentionKernel::kCudnn || kernel == AttentionKernel::kCudnnDeterministic;
  const bool older = gpu.compute_capability > 0 && gpu.compute_capability < kHopper;
  return gpu.AttentionRate(kernel) > 0 && !(cudnn && older);
}

std::optional<AttentionKernel> FrameworkPreset::FusedAttention(const GpuProfile& gpu) const {
  auto found = std::ranges::find_if(
      attention, [&](AttentionKernel kernel) { return FusedFirst(kernel, gpu); });
  if (found == attention.end())
    found = std::ranges::find_if(
        attention, [&](AttentionKernel kernel) { return gpu.AttentionRate(kernel) > 0; });
  return found == attention.end() ? std::nullopt : std::optional(*found);
}

bool FrameworkPreset::Offers(Fp8 recipe) const {
  return recipe == Fp8::kOff || std::ranges::find(fp8, recipe) != fp8.end();
}

bool FrameworkPreset::Offers(const Recompute& asked) const {
  if (asked.first > 0 && !recompute_first) return false;
  if (asked.every > 1 && !recompute_every) return false;
  if (Has(recompute, Recompute{asked.modules})) return true;
  int left = asked.modules;
  for (const RecomputeModule module : recompute_modules) left &= ~module;
  return left == 0 && asked.modules != 0;
}

bool FrameworkPreset::FusesCast(ProductType product) const {
  return std::ranges::any_of(fused_casts, [&](Fp8 recipe) {
    return recipe != Fp8::kCurrent && FormOf(recipe).product == product;
  });
}

bool FrameworkPreset::LacksCodes(int stage) const {
  const auto fact = facts.find("facts.fp8_weights");
  return stage < fp8_weights_zero && !fp8_weights.empty() && fact != facts.end() &&
         fact->second.file == kOwnFact;
}

int FrameworkPreset::DefaultZero(const Offload& offload) const {
  const int least = offload.optimizer > 0 ? offload_zero : 0;
  const auto can =
      std::ranges::find_if(zero, [&](int stage) { return stage >= least && !LacksCodes(stage); });
  return can == zero.end() ? zero.front() : *can;
}

std::string FrameworkPreset::Refuses(const Strategy& s) const {
  const std::string words = FrameworkWords(name);
  if (s.tp > 1 && !tensor) return fmt::format("{} has no tensor parallelism", words);
  if (s.sequence_parallel && !sequence) return fmt::format("{} has no sequence parallelism", words);
  if (s.sequence_parallel && !OffersSequence(s.pp))
    return fmt::format("{} has no sequence parallelism in pipelines", words);
  if (s.pp > 1 && !pipeline()) return fmt::format("{} has no pipeline parallelism", words);
  if (s.pp > 1 && !Has(schedules, s.schedule))
    return fmt::format("{} lacks {}", words, ScheduleWord(s.schedule));
  if (s.layout && !uneven_chunks) return fmt::format("{} has no layout by chunk", words);
  if (s.cp > 1 && context.empty()) return fmt::format("{} has no context parallelism", words);
  if (s.cp > 1 && !Has(context, s.context.method))
    return fmt::format("{} has no context parallelism by {}", words,
                       NameIn(kCpMethodNames, s.context.method));
  if (s.dp_outer > 1 && !hybrid) return fmt::format("{} has no hybrid sharding", words);
  if (s.dp_outer > 1 && s.zero < hybrid_zero)
    return fmt::format("{} has hybrid sharding with ZeRO {} alone", words, hybrid_zero);
  if (!Has(zero, s.zero) && !(s.zero == 0 && s.shards() == 1))
    return fmt::format("{} has no ZeRO stage {}", words, s.zero);
  if (s.shards() > 1 && LacksCodes(s.zero))
    return fmt::format(
        "{} holds weights in 8 bits with ZeRO {} or more alone: --zero {}, or --fp8-weights off",
        FrameworkWords(SplitReference(name).name), fp8_weights_zero, fp8_weights_zero);
  if (s.pp > 1 && s.zero > zero_with_pipeline) {
    return fmt::format("{} runs pipelines only with ZeRO up to stage {}", words,
                       zero_with_pipeline);
  }
  if (!Offers(s.recompute))
    return fmt::format("{} has no recomputation {}", words, RecomputeText(s.recompute));
  const bool part = s.offload.optimizer > 0 && s.offload.optimizer < 1;
  const bool states = s.offload.weights ? offload_weights : offload_optimizer;
  if ((s.offload.optimizer > 0 && !states) || (part && !offload_share) ||
      (s.offload.weights && !offload_weights) || (s.offload.activations && !offload_activations))
    return fmt::format("{} has no offload {}", words, OffloadText(s.offload));
  if (OffloadsAlone(s.offload) && (s.pp > 1 || s.recompute != Recompute::kNone))
    return fmt::format("{} offloads activations only without {}", words,
                       s.pp > 1 ? "pipeline stages" : "recomputation");
  if (s.offload.optimizer > 0 && s.shards() > 1 && s.zero < offload_zero)
    return fmt::format("{} offloads an optimizer only with ZeRO {} or more", words, offload_zero);
  return "";
}

std::string FoldedName(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

std::span<const FrameworkPreset> FrameworkPresets() { return TheCatalogue().presets; }

std::vector<std::string> FrameworkNames() { return DescribedIds(); }

FrameworkReference SplitReference(std::string_view text) {
  const std::size_t at = text.find('+');
  if (at == std::string_view::npos) return {std::string(text), ""};
  return {std::string(text.substr(0, at)), std::string(text.substr(at + 1))};
}

bool NamesRelease(std::string_view name) {
  return !IsYamlPath(std::string(name)) && name.find('@') != name.npos;
}

std::string WithFacts(const std::string& name, std::string_view facts) {
  return facts.empty() ? name : fmt::format("{}+{}", name, facts);
}

std::string FrameworkWords(std::string_view reference) {
  const auto [name, facts] = SplitReference(reference);
  if (facts.empty()) return name;
  std::string words = fmt::format("{} with ", name);
  for (const char c : facts) words += c == '=' ? " " : c == ',' ? ", " : std::string(1, c);
  return words;
}

FrameworkMatch MatchFramework(std::string_view reference) {
  const FrameworkReference parts = SplitReference(reference);
  if (!parts.facts.empty()) {
    const FrameworkMatch base = MatchFramework(parts.name);
    return {ShareFrameworkProfile(WithFacts(base.preset->name, parts.facts))->preset.get(),
            base.alias};
  }
  const std::string& name = parts.name;
  if (IsYamlPath(name)) return {&PresetOfFile(name), nullptr};
  const bool file = HasProfile(kFrameworkFolder, name);
  if (file && IsDescribed(name)) return {&PresetOf(name), nullptr};
  const std::string folded = FoldedName(name);
  for (const Spelling& spelling : TheCatalogue().spellings) {
    if (folded == spelling.folded) return spelling.match;
  }
  if (const auto broken = TheCatalogue().broken.find(folded); broken != TheCatalogue().broken.end())
    throw broken->second;
  if (file) {
    (void)ShareFrameworkProfile(name);  // a misspelt key, perhaps
    throw InputError(
        fmt::format("'{}' is no framework: its file has no description", name),
        fmt::format(
            "description: \"one line\" in {} makes it one; files of sites and bases have none",
            ProfileFile(kFrameworkFolder, name)));
  }
  std::vector<std::string> known = FrameworkNames();
  for (const FrameworkPreset& preset : FrameworkPresets()) {
    for (const FrameworkAlias& alias : preset.aliases) known.push_back(alias.name);
  }
  std::string hint = SuggestName(name, known);
  if (hint.empty()) hint = "`plan list frameworks` shows all of them";
  throw InputError(fmt::format("unknown framework '{}'", name), hint);
}

FrameworkMatch FrameworkThatBegins(std::string_view text) {
  const std::string folded = FoldedName(text);
  FrameworkMatch best{nullptr, nullptr};
  std::size_t longest = 0;
  for (const Spelling& spelling : TheCatalogue().spellings) {
    if (!folded.starts_with(spelling.folded) || spelling.folded.size() <= longest) continue;
    longest = spelling.folded.size();
    best = spelling.match;
  }
  return best;
}

}  // namespace orrery
