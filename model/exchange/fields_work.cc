// SPDX-License-Identifier: Apache-2.0
// The rows of Workload, and of what else a job is: facts of the framework, nodes and GPUs.
#include <fmt/format.h>

#include "model/base/plain_text.h"
#include "model/exchange/rules.h"

namespace orrery::exchange {
namespace {

std::string Short(double number) { return fmt::format("{:g}", number); }

const char* const kByProgram = "the program's own (data set, model configuration)";
const char* const kTf32 = "the environment decides on tf32 (torch.set_float32_matmul_precision)";

// As --dropout takes it: one rate, or one and that of attention.
std::string DropoutText(const Case& c) {
  const Workload& work = c.work;
  const bool one = work.AttentionDropout() == work.dropout;
  return Short(work.dropout) + (one ? "" : "/" + Short(work.AttentionDropout()));
}

// Two settings; `fallback`: of either where a file names none.
Cell Dropouts(const char* attention_key, const char* hidden_key, const char* fallback) {
  return Rule(
      [=](const Case& c) {
        return Say({Set(attention_key, Short(c.work.AttentionDropout())),
                    Set(hidden_key, Short(c.work.dropout))});
      },
      [=](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* attention = settings.Find(attention_key);
        const Setting* hidden = settings.Find(hidden_key);
        if (hidden == nullptr && attention == nullptr && *fallback == '\0') return std::nullopt;
        const auto rate = [&](const Setting* one) -> std::string {
          return one != nullptr ? one->value : *fallback != '\0' ? fallback : "0";
        };
        std::string text = rate(hidden);
        double of_attention = 0, of_hidden = 0;
        const bool read = ParseNumber(rate(attention), &of_attention) == NumberFault::kNone &&
                          ParseNumber(text, &of_hidden) == NumberFault::kNone;
        if (read && of_attention != of_hidden) text += "/" + rate(attention);
        const Setting* told = hidden != nullptr ? hidden : attention;
        return told != nullptr ? From(told, text) : Value{text, {}, ""};
      });
}

Cell OneDropout() {
  return Rule(
      [](const Case& c) {
        if (c.work.AttentionDropout() != c.work.dropout)
          return No("its program has one rate for attention and sublayers");
        return Say({Set("DROPOUT", Short(c.work.dropout))});
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* rate = settings.Find("DROPOUT");
        return rate != nullptr ? From(rate, rate->value) : std::nullopt;
      });
}

std::string MasterWeights(const Case& c) {
  const bool half = c.work.precision == Precision::kBf16 || c.work.precision == Precision::kFp16;
  return half ? OnOff(c.work.master_weights) : "";
}

const char* const kOwnType = "casts fp32 weights; a model in 16 bits is the program's own choice";

Cell TrainerMasterWeights() {
  return Rule(
      [](const Case& c) { return c.work.master_weights ? Default(kOwnType) : No(kOwnType); },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* weights = settings.Find("WEIGHTS");
        return weights == nullptr ? Value{"on", {}, ""} : From(weights, "off");
      });
}

Cell BridgeLengths() {
  return Rule(
      [](const Case& c) {
        return Say(
            {Set("model.seq_length", c.work.seq_len), Set("dataset.seq_length", c.work.seq_len)});
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* model = settings.Find("model.seq_length");
        const Setting* data = settings.Find("dataset.seq_length");
        const Setting* found = data != nullptr ? data : model;
        return found != nullptr ? From(found, found->value) : std::nullopt;
      });
}

// What the Trainer's examples and TRL call it; it is no setting of the Trainer's own.
Cell TrainerLengths() {
  return Rule(
      [](const Case&) { return No(kByProgram); },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        for (const char* key : {"args.block_size", "args.max_seq_length", "args.max_seq_len",
                                "args.max_length", "args.model_max_length", "args.cutoff_len"}) {
          if (const Setting* length = settings.Find(key); length != nullptr)
            return From(length, length->value);
        }
        return std::nullopt;
      });
}

Cell AccelerateGpus() {
  return Rule(
      [](const Case& c) { return Say({Set("num_processes", c.gpus())}); },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const auto all = settings.Whole("num_processes", 1);
        if (!all) return std::nullopt;
        const int64_t nodes = NumberOf(values, "nodes", 1);
        const Setting* setting = settings.Find("num_processes");
        if (*all % nodes == 0) return From(setting, Text(*all / nodes));
        throw InputError(
            {{setting->where,
              fmt::format("num_processes {} does not divide by num_machines {}", *all, nodes),
              "num_processes counts all machines together"}});
      });
}

std::vector<Field> Sizes() {
  return {
      {"nodes",
       [](const Case& c) { return Text(c.nodes); },
       "--nodes",
       {{kAccelerate, Key("num_machines")}, {kAnyTarget, Key("NNODES")}}},
      {"gpus_per_node",
       [](const Case& c) { return Text(c.gpus_per_node); },
       "--gpus-per-node",
       {{kAccelerate, AccelerateGpus()}, {kAnyTarget, Key("GPUS_PER_NODE")}}},
      {"seq_len",
       [](const Case& c) { return Text(c.work.seq_len); },
       "--seq-len",
       {{kMegatron, MegatronLengths()},
        {kBridge, BridgeLengths()},
        {kDeepSpeed, Choices({}, kByProgram)},
        {kAccelerate, TrainerLengths()},
        {kTitan, Key("training.max_context_length")},
        {kTitanToml, Key("training.seq_len")},
        {kTorch, Key("SEQ_LEN")}}},
      {"global_batch",
       [](const Case& c) { return Text(c.work.global_batch); },
       "--global-batch",
       {{kMegatron, MegatronBatch()},
        {kBridge, Key("train.global_batch_size")},
        {kDeepSpeed, DeepSpeedBatch()},
        {kAccelerate, AccumulationOf("micro_batch", "args.gradient_accumulation_steps")},
        {kTitan, TitanGlobalTokens()},
        {kTitanToml, TomlGlobalBatch()},
        {kTorch, Key("GLOBAL_BATCH")}}},
      {"masked_positions",
       [](const Case& c) {
         return c.model.family == Family::kEncoder ? Text(c.work.masked_positions) : "";
       },
       "",
       {{kAnyTarget, Choices({}, "the data set masks a share of the tokens")}}},
  };
}

std::vector<Field> LowPrecision() {
  const char* const code = "a conversion of the model in the program, not a setting";
  return {
      {"fp8",
       [](const Case& c) -> std::string {
         return c.work.fp8 == Fp8::kOff ? "" : NameIn(kFp8Names, c.work.fp8);
       },
       "--fp8",
       {{kMegatron, MegatronRecipes()},
        {kBridge, BridgeRecipes()},
        {kAccelerate, Choices({}, "fp8_config, with a library of its own")},
        {kTitanToml, TitanLowPrecision()},
        {kAnyTarget, Choices({}, code)}}},
      {"fp8_skip",
       [](const Case& c) -> std::string {
         if (!c.work.fp8_skip.any()) return "";
         return fmt::format("{},{}", c.work.fp8_skip.first, c.work.fp8_skip.last);
       },
       "--fp8-skip",
       {{kMegatron, MegatronSkippedLayers()},
        {kBridge, BridgeSkippedLayers()},
        {kTitanToml, TitanSkippedLayers()},
        {kAnyTarget, Choices({}, code)}}},
  };
}

// Megatron-Bridge's list of modules: [linear_qkv,linear_proj], with quotes or without. Its LoRA knows whole products alone,
// its CanonicalLoRA refuses them (peft/canonical_lora.py).
Cell BridgeTargets() {
  return Rule(
      [](const Case& c) {
        if (AdaptsParts(c.work.lora) && (c.work.lora.targets & (kLoraQkv | kLoraFc1)) != 0)
          return No("LoRA adapts whole products, CanonicalLoRA their parts; none does both");
        return Say({Set("peft.target_modules", "[" + LoraTargetWords(c.work.lora.targets) + "]")});
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* found = settings.Find("peft.target_modules");
        if (found == nullptr) return std::nullopt;
        std::string list = found->value;
        std::erase_if(list, [](char c) {
          return std::string_view("[]()'\" ").find(c) != std::string_view::npos;
        });
        return From(found, list);
      });
}

std::vector<Field> Adapters() {
  const auto row = [](const char* name, const auto& text, const char* flag, Cell bridge) {
    return Field{
        name,
        [=](const Case& c) -> std::string { return c.work.lora.on() ? text(c.work.lora) : ""; },
        flag,
        {{kBridge, std::move(bridge)},
         {kAccelerate, AccelerateLora(name)},
         {kMegatron, Choices({}, "adapters are Megatron-Bridge's and NeMo's, not Megatron-LM's")},
         {kAnyTarget, Choices({}, "adapters (PEFT's LoraConfig) are made in the program")}}};
  };
  return {row(
              "lora", [](const Lora& lora) { return Text(lora.rank); }, "--lora-rank",
              BridgeLora("peft.dim")),
          row(
              "lora_alpha", [](const Lora& lora) { return Short(lora.alpha); }, "--lora-alpha",
              BridgeLora("peft.alpha")),
          row(
              "lora_targets", [](const Lora& lora) { return LoraTargetWords(lora.targets); },
              "--lora-targets", BridgeTargets()),
          {"lora_base",
           [](const Case& c) -> std::string {
             return c.work.lora.packed() ? NameIn(kLoraBaseNames, c.work.lora.base) : "";
           },
           "--lora-base",
           {{kAccelerate, AccelerateLora("lora_base")},
            {kAnyTarget, Choices({},
                                 "weights in few bits (bitsandbytes' BitsAndBytesConfig, "
                                 "TransformerEngine's fp8_model_init) are made in the program")}}}};
}

std::vector<Field> ArithmeticFields() {
  return {
      {"precision",
       [](const Case& c) -> std::string { return NameIn(kPrecisionNames, c.work.precision); },
       "--precision",
       {{kMegatron,
         Choices({{"fp32", {}}, {"bf16", {{"bf16", ""}}}, {"fp16", {{"fp16", ""}}}}, kTf32)},
        {kBridge, BridgePrecision(kTf32)},
        {kDeepSpeed, Choices({{"fp32", {}},
                              {"bf16", {{"bf16.enabled", "true"}}},
                              {"fp16", {{"fp16.enabled", "true"}}}},
                             kTf32)},
        {kAccelerate, Choices({{"fp32", {{"mixed_precision", "no"}}},
                               {"bf16", {{"mixed_precision", "bf16"}}},
                               {"fp16", {{"mixed_precision", "fp16"}}},
                               {"tf32", {{"args.tf32", "true"}, {"mixed_precision", "no"}}},
                               {"bf16", {{"args.bf16", "true"}}},
                               {"fp16", {{"args.fp16", "true"}}}})},
        {kTitans, Choices({{"bf16", {{"training.mixed_precision_param", "bfloat16"}}},
                           {"fp32", {{"training.mixed_precision_param", "float32"}}},
                           {"bf16", {}}},
                          "computes in bfloat16 or float32")},
        {kTorch, Key("PRECISION")}}},
      {"optimizer",
       [](const Case& c) -> std::string { return NameIn(kOptimizerNames, c.work.optimizer); },
       "--optimizer",
       {{kMegatron,
         Choices({{"adamw", {{"optimizer", "adam"}}},
                  {"adam", {{"optimizer", "adam"}}, "weight decay is decoupled, as AdamW's"},
                  {"sgd", {{"optimizer", "sgd"}, {"sgd-momentum", "0"}}},
                  {"muon", {{"optimizer", "muon"}}},
                  {"adamw", {}}},
                 "--optimizer has adam, sgd, muon and others")},
        {kBridge,
         Choices({{"adamw", {{"optimizer.optimizer", "adam"}}},
                  {"adam", {{"optimizer.optimizer", "adam"}}, "weight decay is decoupled"},
                  {"sgd", {{"optimizer.optimizer", "sgd"}, {"optimizer.sgd_momentum", "0"}}},
                  {"adamw", {}}},
                 "optimizer.optimizer has adam and sgd")},
        {kDeepSpeed,
         Choices({{"adamw", {{"optimizer.type", "AdamW"}}},
                  {"adam", {{"optimizer.type", "Adam"}, {"optimizer.params.adam_w_mode", "false"}}},
                  {"lamb", {{"optimizer.type", "Lamb"}}},
                  {"muon", {{"optimizer.type", "Muon"}}},
                  {"sgd", {{"optimizer.type", "SGD"}}}},
                 "optimizer.type has no moments of a byte")},
        {kAccelerate,
         Choices({{"adamw", {{"args.optim", "adamw_torch_fused"}}},
                  {"adamw", {{"args.optim", "adamw_torch"}}},
                  {"adamw", {{"args.optim", "adamw_hf"}}},  // of releases before 5
                  {"adam8bit", {{"args.optim", "adamw_bnb_8bit"}}},
                  {"adam8bit", {{"args.optim", "adamw_8bit"}}},
                  // apex, and bitsandbytes with states that leave the GPU where it is full.
                  {"adamw", {{"args.optim", "adamw_apex_fused"}}},
                  {"adamw", {{"args.optim", "paged_adamw_32bit"}}},
                  {"adam8bit", {{"args.optim", "paged_adamw_8bit"}}},
                  {"sgd", {{"args.optim", "sgd"}}}},
                 "TrainingArguments.optim has no such optimizer")},
        {kTitan, Fixed("adamw", "the base configuration trains with AdamW")},
        {kTitanToml, Choices({{"adamw", {{"optimizer.name", "AdamW"}}},
                              {"adam", {{"optimizer.name", "Adam"}}},
                              {"adamw", {}}},
                             "[optimizer] name is Adam or AdamW")},
        {kTorch, Choices({{"adamw", {{"OPTIMIZER", "AdamW"}}},
                          {"adam", {{"OPTIMIZER", "Adam"}}},
                          {"sgd", {{"OPTIMIZER", "SGD"}}}},
                         "torch.optim has no such optimizer")}}},
      {"clip_norm",
       [](const Case& c) { return Short(c.work.clip_norm); },
       "",
       {{kMegatron, Key("clip-grad")},
        {kBridge, Key("optimizer.clip_grad")},
        {kDeepSpeed, Key("gradient_clipping")},
        {kAccelerate, Key("args.max_grad_norm")},
        {kTitans, Key("training.max_norm")},
        {kTorch, Key("CLIP_NORM")}}},
      {"dropout",
       DropoutText,
       "--dropout",
       {{kMegatron, Dropouts("attention-dropout", "hidden-dropout", "0.1")},
        {kBridge, Dropouts("model.attention_dropout", "model.hidden_dropout", "")},
        {kDeepSpeed | kAccelerate, Choices({}, kByProgram)},
        {kTitans, Fixed("0", "its models have no dropout")},
        {kTorch, OneDropout()}}},
      {"master_weights",
       MasterWeights,
       "fact master_weights",
       {{kMegatron | kBridge, Fixed("on", "updates fp32 copies of 16-bit weights")},
        {kDeepSpeed, Fixed("on", "updates fp32 copies of 16-bit weights")},
        {kAccelerate, TrainerMasterWeights()},
        {kAnyTarget, Choices({{"on", {}}}, kOwnType)}}},
      {"tp_overlap",
       [](const Case& c) {
         return c.strategy.tp > 1 && c.strategy.sequence_parallel ? OnOff(c.tp_overlap) : "";
       },
       "fact tp_overlap",
       {{kMegatron, Choices({{"on", {{"tp-comm-overlap", ""}}}, {"off", {}}}, "default")},
        {kBridge, Choices({{"on", {{"comm_overlap.tp_comm_overlap", "true"}}},
                           {"off", {{"comm_overlap.tp_comm_overlap", "false"}}},
                           {"off", {}}})},
        {kTitan, TitanAsync("compile.enable_async_tensor_parallel")},
        {kTitanToml, TitanAsync("parallelism.enable_async_tensor_parallel")},
        {kAnyTarget, Fixed("off", "has no such overlap")}}},
  };
}

}  // namespace

const std::vector<Field>& WorkFields() {
  static const std::vector<Field> fields = [] {
    std::vector<Field> all = Sizes();
    for (Field& field : LowPrecision()) all.push_back(std::move(field));
    for (Field& field : Adapters()) all.push_back(std::move(field));
    for (Field& field : ArithmeticFields()) all.push_back(std::move(field));
    return all;
  }();
  return fields;
}

}  // namespace orrery::exchange
