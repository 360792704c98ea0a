// SPDX-License-Identifier: Apache-2.0
// The rows of what a framework's release does by itself: its kernels, casts and buckets.
//
// Most are nothing that a target can be told. They hold in its job where its own release does the same: each is compared
// with the framework that stands for the target, so that a fact that --fact replaces is named as not expressed.
#include <fmt/format.h>

#include <algorithm>

#include "model/exchange/fields.h"
#include "model/exchange/spellings.h"
#include "model/framework/presets.h"
#include "model/plan/lower/names.h"

namespace orrery::exchange {
namespace {

using FactText = std::string (*)(const FrameworkPreset&, const Case&);

// The framework that stands for the target.
const FrameworkPreset& TheirRelease(const TargetInfo& target, const Case& c) {
  return FindFramework(target.target == kAccelerate && ByDeepSpeed(c) ? "huggingface"
                                                                      : target.framework);
}

// Of a target that cannot be told `text` of a release.
WriteRule AsRelease(FactText text, const TargetInfo& target) {
  return [text, target](const Case& c) {
    const std::string theirs = text(TheirRelease(target, c), c);
    if (theirs == text(FindFramework(c.framework), c)) return Default("as its release does");
    return No(fmt::format("no setting; its release has {}", theirs.empty() ? "none" : theirs));
  };
}

Field Fact(const char* name, const char* flag, FactText text,
           std::vector<std::pair<unsigned, Cell>> cells = {}) {
  Field field{name, [text](const Case& c) { return text(FindFramework(c.framework), c); }, flag,
              std::move(cells)};
  for (const TargetInfo& target : Targets())
    field.cells.emplace_back(target.target, Rule(AsRelease(text, target)));
  return field;
}

std::string OwnFact(const FrameworkPreset& preset, const char* name, bool on) {
  const auto fact = preset.facts.find(std::string("facts.") + name);
  return fact != preset.facts.end() && fact->second.file == kOwnFact ? OnOff(on) : "";
}

std::string KernelText(const FrameworkPreset& preset, const Case& c) {
  if (!c.strategy.flash_attention) return "";
  const auto kernel = std::ranges::find_if(preset.attention, [&](AttentionKernel one) {
    return std::ranges::find(c.chip_attention, one) != c.chip_attention.end();
  });
  return kernel == preset.attention.end() ? "" : NameIn(kAttentionKernelNames, *kernel);
}

// TransformerEngine takes cuDNN's kernel or that of the package flash-attn, which may hold the third release or not.
Cell MegatronKernel(const char* key) {
  return Rule(
      [key](const Case& c) -> Written {
        const std::string kernel = KernelText(FindFramework(c.framework), c);
        if (kernel == "cudnn" || kernel == "fa2") return {Status::kFollows, {}, key};
        if (kernel.ends_with("-deterministic"))
          return {Status::kNear, {}, "also needs --deterministic-mode and its environment"};
        return {Status::kNear, {}, fmt::format("{} names cuDNN's and flash-attn's alone", key)};
      },
      [key](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* backend = settings.Find(key);
        if (backend == nullptr) return std::nullopt;
        const char* const order = settings.Has("deterministic-mode") ? "-deterministic" : "";
        if (backend->value == "fused") return From(backend, std::string("cudnn") + order);
        return backend->value == "flash" ? From(backend, std::string("fa2") + order) : std::nullopt;
      });
}

std::string PaddedText(const FrameworkPreset& preset, const Case& c) {
  constexpr int64_t kUnits = 8;  // elements of 16 bytes: such rows are never padded
  const int64_t tp = c.strategy.tp;
  return c.model.vocab % (kUnits * tp) == 0 ? "" : OnOff(preset.padded_vocab);
}

// Rows are padded to a multiple of this number times the tensor-parallel ranks.
Cell MegatronPadding(const char* key) {
  return Rule(
      [key](const Case& c) {
        return FindFramework(c.framework).padded_vocab ? Default("128") : Say({Set(key, "1")});
      },
      [key](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* multiple = settings.Find(key);
        if (multiple == nullptr) return std::nullopt;
        return From(multiple, OnOff(multiple->value != "1"));
      });
}

std::string CompileText(const FrameworkPreset& preset, const Case&) {
  return OnOff(preset.compile);
}
std::string CompileLossText(const FrameworkPreset& preset, const Case&) {
  return OnOff(preset.compile_loss);
}

Cell TitanCompile() {
  return Choices({{"on", {{"compile.enable", "true"}}}, {"off", {}}}, "default");
}

// What compile.enable compiles: without the list, and since 2025, the loss, too (torchtitan v0.1.0, components/loss.py, and the
// default of compile.components in v0.2.0 to b5bcd76c). An import of 2024's files leaves that out.
Cell TitanCompiledLoss() {
  constexpr const char* kKey = "compile.components";
  return Rule(
      [](const Case& c) {
        const FrameworkPreset& preset = FindFramework(c.framework);
        if (preset.compile)
          return Say({Set(kKey, preset.compile_loss ? "[\"model\", \"loss\"]" : "[\"model\"]")});
        return preset.compile_loss ? No("compiles the loss with the model alone") : Default("");
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting *parts = settings.Find(kKey), *compile = settings.Find("compile.enable");
        const bool on = compile != nullptr && compile->value == "true";
        if (parts != nullptr)
          return From(parts, OnOff(on && parts->value.find("loss") != std::string::npos));
        return on ? From(compile, "on") : std::nullopt;
      });
}

// Accelerate's replicas run the model under autocast (accelerator.py, prepare_model); FSDP and DeepSpeed cast the weights.
Cell TrainerAutocast() {
  return Rule(
      [](const Case& c) {
        const bool theirs = c.strategy.zero == 0;
        const char* const why =
            theirs ? "runs replicas under autocast" : "FSDP and DeepSpeed cast the weights";
        return FindFramework(c.framework).autocast == theirs ? Default(why) : No(why);
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        for (const char* loaded : {"args.torch_dtype", "args.dtype"}) (void)settings.Find(loaded);
        const Setting* weights = settings.Find("WEIGHTS");
        if (weights == nullptr) weights = settings.Find("BASE");
        return weights == nullptr ? std::nullopt : From(weights, "off");  // nothing is left to cast
      });
}

std::string DummiesText(const FrameworkPreset& preset, const Case&) {
  return OwnFact(preset, "dummy_weight_gradients", preset.dummy_weight_gradients);
}

// They are TransformerEngine's: its own layers are without.
Cell MegatronDummies() {
  return Rule(AsRelease(DummiesText, InfoOf(kMegatron)),
              [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
                if (settings.Peek("transformer-impl") != "local") return std::nullopt;
                return From(settings.Find("transformer-impl"), "off");
              });
}

std::string AutocastText(const FrameworkPreset& preset, const Case& c) {
  return Half(c) ? OnOff(preset.autocast) : "";
}

// Its own 16 bits are written; files may have autocast in their place (SayAutocast). apex casts the weights from O2 on.
Cell DeepSpeedAutocast() {
  return Rule(AsRelease(AutocastText, InfoOf(kDeepSpeed)),
              [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
                const Setting* torch = settings.Find("torch_autocast.enabled");
                (void)settings.Find("torch_autocast.dtype");
                if (torch != nullptr && !Off(torch->value)) return From(torch, "on");
                const Setting *apex = settings.Find("amp.enabled"),
                              *level = settings.Find("amp.opt_level");
                if (apex == nullptr || Off(apex->value)) return std::nullopt;
                const bool casts = level != nullptr && level->value >= "O2";
                return casts ? std::nullopt : std::optional(From(apex, "on"));
              });
}

std::vector<Field> Kernels() {
  return {
      Fact("attention_kernel", "fact attention", KernelText,
           {{kMegatron, MegatronKernel("attention-backend")},
            {kBridge, MegatronKernel("model.attention_backend")}}),
      Fact("compile", "fact compile", CompileText,
           {{kTitans, TitanCompile()},
            {kMegatron | kBridge, Fixed("on", "its kernels are fused")},
            // Where no file names it, the program decides.
            {kAccelerate, Choices({{"on", {{"args.torch_compile", "true"}}},
                                   {"off", {{"args.torch_compile", "false"}}},
                                   {"on", {}},
                                   {"off", {}}})},
            {kTorch, Choices({{"on", {{"COMPILE", "True"}}},
                              {"off", {{"COMPILE", "False"}}},
                              {"on", {}},
                              {"off", {}}})}}),
      Fact("compile_loss", "fact compile_loss", CompileLossText, {{kTitans, TitanCompiledLoss()}}),
      Fact("fused_norm", "fact fused_norm",
           [](const FrameworkPreset& preset, const Case& c) -> std::string {
             return FindFramework(c.framework).compile ? "" : OnOff(preset.fused_norm);
           }),
      Fact("autocast", "fact autocast", AutocastText,
           {{kAccelerate, TrainerAutocast()}, {kDeepSpeed, DeepSpeedAutocast()}}),
      Fact("padded_vocab", "fact padded_vocab", PaddedText,
           {{kMegatron, MegatronPadding("make-vocab-size-divisible-by")},
            {kBridge, MegatronPadding("model.make_vocab_size_divisible_by")}}),
      Fact("fp8_fused_casts", "fact fp8_fused_casts",
           [](const FrameworkPreset& preset, const Case& c) -> std::string {
             return c.work.fp8 == Fp8::kOff ? ""
                                            : OnOff(preset.FusesCast(FormOf(c.work.fp8).product));
           }),
      Fact("sequence_copies", "fact sequence_copies",
           [](const FrameworkPreset& preset, const Case& c) -> std::string {
             return Tensor(c) && c.strategy.sequence_parallel ? OnOff(preset.sequence_copies) : "";
           }),
      Fact("reduces_apart", "fact reduces_apart",
           [](const FrameworkPreset& preset, const Case& c) -> std::string {
             return Tensor(c) ? OnOff(preset.defaults.reduces_apart) : "";
           }),
      Fact("gradients_on_host", "fact offload_gradients",
           [](const FrameworkPreset& preset, const Case& c) -> std::string {
             const bool moved = c.strategy.offload.optimizer > 0 && c.strategy.zero > 0;
             return moved ? OnOff(preset.offload_gradients) : "";
           }),
      Fact("fused_gate", "fact fused_gate",
           [](const FrameworkPreset& preset, const Case& c) -> std::string {
             // Of a framework without its own facts: who stops a compiler need not say it of gates.
             const bool compiles = FindFramework(SplitReference(c.framework).name).compile;
             return compiles && c.model.gated ? OnOff(preset.fused_gate) : "";
           }),
      // A release has them, or every target does as its library does: of note where somebody says otherwise alone.
      Fact("nccl", "fact nccl",
           [](const FrameworkPreset& preset, const Case&) -> std::string {
             const auto fact = preset.facts.find("facts.nccl");
             const bool own = fact != preset.facts.end() && fact->second.file == kOwnFact;
             return own ? fact->second.value : "";
           }),
      Fact("gather_messages", "fact gather_messages",
           [](const FrameworkPreset& preset, const Case& c) -> std::string {
             const bool apart = c.strategy.zero == 3 && preset.gather_messages > 1;
             return apart ? std::to_string(preset.gather_messages) : "";
           }),
      Fact("repeats_keys", "fact repeats_keys",
           [](const FrameworkPreset& preset, const Case&) {
             return OwnFact(preset, "repeats_keys", preset.repeats_keys);
           }),
      Fact("scores_buffer", "fact scores_buffer",
           [](const FrameworkPreset& preset, const Case&) {
             return OwnFact(preset, "scores_buffer", preset.scores_buffer);
           }),
      Fact("dummy_weight_gradients", "fact dummy_weight_gradients", DummiesText,
           {{kMegatron, MegatronDummies()}}),
      Fact("gathers_kept", "fact gathers_kept",
           [](const FrameworkPreset& preset, const Case& c) -> std::string {
             return Tensor(c) && c.strategy.sequence_parallel ? OnOff(preset.defaults.gathers_kept)
                                                              : "";
           }),
  };
}

std::string BucketText(const Case& c) {
  return Shares(c) && c.bucket_bytes > 0 ? fmt::format("{:.0f} MB", c.bucket_bytes / 1e6) : "";
}
// Gradients that a bucket holds.
int64_t BucketElements(const Case& c) {
  const bool whole = !Half(c) || c.strategy.fp32_grads;
  return static_cast<int64_t>(c.bucket_bytes / (whole ? 4 : 2));
}

// Megatron Core, distributed_data_parallel.py: the larger of 40 million parameters and a million per rank, unless it is told.
Cell MegatronBucket(const char* key) {
  return Rule([key](const Case& c) {
    constexpr int64_t kLeast = 40'000'000, kPerRank = 1'000'000;
    if (FindFramework(SplitReference(c.framework).name).name == InfoOf(kMegatron).framework)
      return Default("as its release does");
    const int64_t own = std::max(kLeast, kPerRank * c.strategy.data_parallel());
    const int64_t elements = BucketElements(c);
    return elements == own ? Default("40 million parameters, or a million per rank")
                           : Say({Set(key, elements)});
  });
}

Cell DeepSpeedBucket() {
  return Rule([](const Case& c) {
    const int64_t elements = BucketElements(c);
    return Say({Set("zero_optimization.reduce_bucket_size", elements),
                Set("zero_optimization.allgather_bucket_size", elements)});
  });
}

Cell TorchBucket(bool named) {
  return Rule([named](const Case& c) {
    if (c.strategy.zero >= 2) return Default("FSDP reduces layer by layer");
    const double megabytes = c.bucket_bytes / 1048576.0;
    if (named) return Say({Set("BUCKET_MB", fmt::format("{:.0f}", std::max(1.0, megabytes)))});
    if (megabytes > 24.5 && megabytes < 25.5) return Default("DistributedDataParallel's 25 MiB");
    return No("DistributedDataParallel's 25 MiB");
  });
}

// Without a file of its own DeepSpeed's buckets are of 500 million elements (runtime/zero/config.py).
Cell AccelerateBucket() {
  return Rule([plain = TorchBucket(false).write](const Case& c) {
    constexpr int64_t kOwn = 500'000'000;
    if (!ByDeepSpeed(c)) return plain(c);
    const char* const why = "DeepSpeed's 500 million elements";
    return BucketElements(c) == kOwn ? Default(why) : No(why);
  });
}

Field Buckets() {
  return {"bucket",
          BucketText,
          "",
          {{kMegatron, MegatronBucket("ddp-bucket-size")},
           {kBridge, MegatronBucket("ddp.bucket_size")},
           {kDeepSpeed, DeepSpeedBucket()},
           {kAccelerate, AccelerateBucket()},
           {kDdp, TorchBucket(true)},
           {kAnyTarget, TorchBucket(false)}}};
}

}  // namespace

std::string AttentionKernelOf(const Case& c) { return KernelText(FindFramework(c.framework), c); }

const std::vector<Field>& FactFields() {
  static const std::vector<Field> fields = [] {
    std::vector<Field> all = Kernels();
    all.push_back(Buckets());
    return all;
  }();
  return fields;
}

}  // namespace orrery::exchange
