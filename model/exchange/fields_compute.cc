// SPDX-License-Identifier: Apache-2.0
// The rows of Strategy that say how a rank computes, and what runs behind it.
#include "model/exchange/fields.h"
#include "model/exchange/spellings.h"
#include "model/plan/lower/names.h"

namespace orrery::exchange {
namespace {

const char* const kByModel = "the model's own setting (attn_implementation), not the trainer's";

// CanonicalLoRA has no such setting, and reduces what lies between its two matrices.
Cell BridgeAdapterSplit() {
  constexpr const char* kSwitch = "peft.a2a_experimental";
  return Rule(
      [](const Case& c) {
        const bool exchanges = c.strategy.adapter_split == AdapterSplit::kColumnsA2a;
        if (c.strategy.adapter_split == AdapterSplit::kRows)
          return No("its ParallelLinearAdapter cuts both matrices");
        if (!AdaptsParts(c.work.lora)) return Say({Set(kSwitch, exchanges ? "true" : "false")});
        return exchanges ? No("CanonicalLoRA has no a2a_experimental") : Default("");
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* found = settings.Find(kSwitch);
        if (found == nullptr) return std::nullopt;
        return From(found,
                    NameIn(kAdapterSplitNames,
                           Off(found->value) ? AdapterSplit::kColumns : AdapterSplit::kColumnsA2a));
      });
}

// What TRL's ModelConfig and LLaMA-Factory hand to the model.
Cell TrainerAttention() {
  return Rule([](const Case&) { return No(kByModel); },
              [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
                for (const char* key : {"args.attn_implementation", "args.flash_attn"}) {
                  const Setting* kernel = settings.Find(key);
                  if (kernel == nullptr || kernel->value == "auto" || kernel->value.empty())
                    continue;
                  const bool whole = kernel->value == "eager" || kernel->value == "disabled";
                  return From(kernel, OnOff(!whole));
                }
                return std::nullopt;
              });
}

std::vector<Field> Compute() {
  const Cell whole = Fixed("on", "torch.utils.checkpoint repeats the whole forward pass");
  const Cell early = Fixed("off", "a checkpoint that is not reentrant ends where it may");
  return {
      {"micro_batch",
       Number(&Strategy::micro_batch),
       "--micro-batch",
       {{kMegatron, Key("micro-batch-size")},
        {kBridge, Key("train.micro_batch_size")},
        {kDeepSpeed, DeepSpeedMicroBatch()},
        {kAccelerate, Key("args.per_device_train_batch_size")},
        {kTitan, TitanTokens()},
        {kTitanToml, TomlLocalBatch()},
        {kTorch, Key("MICRO_BATCH")}}},
      {"sequence_parallel",
       Where(Tensor, Switch(&Strategy::sequence_parallel)),
       "--sequence-parallel",
       {{kMegatron, Choices({{"on", {{"sequence-parallel", ""}}}, {"off", {}}}, "default")},
        {kBridge, Choices({{"on", {{"model.sequence_parallel", "true"}}},
                           {"off", {{"model.sequence_parallel", "false"}}},
                           {"off", {}}})},
        {kTitan, Choices({{"on", {{"parallelism.enable_sequence_parallel", "true"}}},
                          {"off", {{"parallelism.enable_sequence_parallel", "false"}}},
                          {"on", {}}})},
        {kTitanToml, Fixed("on", "always on with tensor parallelism")},
        {kAnyTarget, Fixed("off", "has none; Ulysses is context parallelism")}}},
      {"recompute",
       [](const Case& c) -> std::string { return RecomputeText(c.strategy.recompute); },
       "--recompute",
       {{kMegatron, MegatronRecompute(false)},
        {kBridge, MegatronRecompute(true)},
        {kDeepSpeed, Choices({{"none", {}}},
                             "the program turns it on (gradient_checkpointing_enable()), the JSON "
                             "file only tunes it")},
        {kAccelerate, AccelerateRecompute()},
        {kTitan, Choices({{"none", {{"activation_checkpoint", "None"}}},
                          {"op", {{"activation_checkpoint", "SelectiveAC.Config()"}}},
                          {"layernorm+mlp_act",
                           {{"activation_checkpoint", "SelectiveAC.Config()"}},
                           "also repeats key_proj, attn_proj and mlp_up"},
                          {"full", {{"activation_checkpoint", "FullAC.Config()"}}}},
                         "recomputes all layers, whole or what its list of operations leaves")},
        {kTitanToml, TomlRecompute()},
        {kTorch, Choices({{"none", {{"RECOMPUTE", "False"}}}, {"full", {{"RECOMPUTE", "True"}}}},
                         "recomputes whole layers or nothing")}}},
      {"offload",
       [](const Case& c) -> std::string {
         return c.strategy.offload.on() ? OffloadText(c.strategy.offload) : "";
       },
       "--offload",
       {{kMegatron, MegatronOffload(false)},
        {kBridge, MegatronOffload(true)},
        {kDeepSpeed, DeepSpeedOffload()},
        {kTitans, Choices({{"optimizer+weights", {{"training.enable_cpu_offload", "true"}}}},
                          "moves weights, gradients and states together")},
        {kAccelerate, AccelerateOffload()},
        {kAnyTarget, Choices({}, "keeps everything on the GPU")}}},
      {"whole_logits",
       Where(Tensor, Switch(&Strategy::whole_logits)),
       "fact whole_logits",
       {{kTitan | kTitanToml,
         Choices({{"off", {}}}, "its loss is computed on parts of the vocabulary")},
        {kAnyTarget, Choices({{"off", {}}}, "its loss is computed on parts of the vocabulary")}}},
      {"whole_embedding",
       Where(Tensor, Switch(&Strategy::whole_embedding)),
       "fact whole_embedding",
       {{kAnyTarget, Choices({{"off", {}}}, "holds parts of the token table")}}},
      {"whole_head",
       Where(Tensor, Switch(&Strategy::whole_head)),
       "",
       {{kAnyTarget, Choices({{"off", {}}}, "holds parts of the output matrix")}}},
      {"free_head",
       Where(Sharded3, Switch(&Strategy::free_head)),
       "",
       {{kAnyTarget, Choices({{"off", {}}}, "keeps the output matrix for its gradient")}}},
      {"recompute_unread",
       Where(Repeats, Switch(&Strategy::recompute_unread)),
       "fact recompute_unread",
       {{kTorch, early}, {kAccelerate, AccelerateUnread()}, {kAnyTarget, whole}}},
      {"split_products",
       Where(RepeatsProducts, Switch(&Strategy::split_products)),
       "fact split_products",
       {{kTitans, Fixed("on", "its layers have products of their own")},
        {kAnyTarget, Fixed("off", "recomputes no single products")}}},
      {"adapter_split",
       Where(CutsAdapters,
             [](const Case& c) -> std::string {
               return NameIn(kAdapterSplitNames, c.strategy.adapter_split);
             }),
       "fact adapter_split",
       {{kBridge, BridgeAdapterSplit()},
        {kAnyTarget, Choices({}, "adapters are made in the program")}}},
      {"adapter_gathers",  // follows from adapter_split and tp_overlap
       [](const Case&) -> std::string { return ""; },
       "",
       {{kAnyTarget, Choices({}, "follows from the overlap of tensor parallelism")}}},
      {"flash_attention",
       Switch(&Strategy::flash_attention),
       "--attention",
       {{kMegatron, MegatronAttention("attention-backend")},
        {kBridge, MegatronAttention("model.attention_backend")},
        {kAccelerate, TrainerAttention()},
        {kDeepSpeed, Choices({}, kByModel)},
        {kTitans, Fixed("on", "its attention is fused (SDPA, flex)")},
        {kTorch, Choices({{"on", {{"ATTENTION", "sdpa"}}}, {"off", {{"ATTENTION", "eager"}}}})}}},
  };
}

std::vector<Field> Overlaps() {
  const Cell always = Fixed("on", "reduces buckets in the backward pass");
  return {
      {"reduce_in_backward",
       Where(ReducesAfter, Switch(&Strategy::reduce_in_backward)),
       "fact reduce_in_backward",
       {{kMegatron, Choices({{"on", {{"overlap-grad-reduce", ""}}}, {"off", {}}}, "default")},
        {kBridge, Choices({{"on", {{"ddp.overlap_grad_reduce", "true"}}},
                           {"off", {{"ddp.overlap_grad_reduce", "false"}}}})},
        {kDeepSpeed, Rule([](const Case& c) {
           if (c.strategy.reduce_in_backward || !c.strategy.overlap_grad_reduce)
             return Default("hooks reduce buckets in the backward pass");
           return No("hooks reduce buckets in the backward pass");
         })},
        {kAnyTarget, always}}},
      {"overlap_grad_reduce",
       Where(Shares, Switch(&Strategy::overlap_grad_reduce)),
       "fact overlap_grad_reduce",
       {{kMegatron, MegatronOverlap("overlap-grad-reduce")},
        {kBridge, MegatronOverlap("ddp.overlap_grad_reduce")},
        {kDeepSpeed, DeepSpeedOverlap()},
        {kAccelerate, AccelerateOverlap()},
        {kAnyTarget, Fixed("on", "reduces on a stream of its own")}}},
      {"overlap_param_gather",
       Where(Sharded, Switch(&Strategy::overlap_param_gather)),
       "fact overlap_param_gather",
       {{kMegatron, MegatronGather("overlap-param-gather", "")},
        {kBridge, MegatronGather("ddp.overlap_param_gather", "true")},
        {kDeepSpeed, Rule([](const Case& c) {
           if (c.strategy.overlap_param_gather == c.strategy.overlap_grad_reduce)
             return Written{Status::kFollows, {}, "overlap_comm"};
           return No("overlap_comm stands for gathers and reductions alike");
         })},
        {kAnyTarget, Fixed("on", "gathers on a stream of its own")}}},
      {"tp_async",
       Where(Tensor, Switch(&Strategy::tp_async)),
       "fact tp_async",
       {{kAnyTarget, Fixed("off", "tensor-parallel collectives follow the products")}}},
      {"bucket_layers",
       Where(Shares, Number(&Strategy::bucket_layers)),
       "fact bucket_layers",
       {{kAnyTarget, Fixed("1", "a layer is a unit")}}},
      {"prefetch",
       Where(Sharded3, Number(&Strategy::prefetch)),
       "fact prefetch",
       {{kAnyTarget, Fixed("1", "gathers the next layer ahead")}}},
      {"fp32_grads",
       Where(Half, Switch(&Strategy::fp32_grads)),
       "fact fp32_grads",
       {{kMegatron, MegatronGradType()},
        {kBridge, Choices({{"on", {{"ddp.grad_reduce_in_fp32", "true"}}},
                           {"off", {{"ddp.grad_reduce_in_fp32", "false"}}}})},
        {kDeepSpeed, DeepSpeedGradType()},
        {kAccelerate, Rule(
                          [](const Case& c) {
                            const int zero = c.strategy.zero;
                            const char* const why =
                                zero == 0 ? "autocast keeps gradients in fp32"
                                : ByDeepSpeed(c)
                                    ? "DeepSpeed adds gradients up in the type of the weights"
                                    : "FSDP reduces in the type of mixed_precision";
                            return c.strategy.fp32_grads == (zero == 0) ? Default(why) : No(why);
                          },
                          [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
                            const Setting* weights = settings.Find("WEIGHTS");
                            return weights == nullptr ? std::nullopt : From(weights, "off");
                          })},
        {kTitans, Fixed("on", "reduces in float32 only")},
        {kFsdp,
         Choices({{"on", {{"REDUCE_DTYPE", "float32"}}}, {"off", {{"REDUCE_DTYPE", "half"}}}})},
        {kDdp, Fixed("on", "autocast keeps gradients in fp32")}}},
      {"fp8_weights",
       Where(HoldsCodes, Switch(&Strategy::fp8_weights)),
       "fact fp8_weights",
       {{kMegatron, MegatronHeldWeights()},
        {kBridge, BridgeHeldWeights()},
        {kTitanToml, TitanHeldWeights()},
        {kAnyTarget, Choices({}, "with products in 8 bits, in the program")}}},
      {"reduce_once",
       Where(ShardsGradients, Switch(&Strategy::reduce_once)),
       "fact reduce_once",
       {{kTitans, Rule(
                      [](const Case& c) {
                        const bool stages = c.strategy.pp > 1;
                        const char* why = stages ? "its pipelines reduce once per step"
                                                 : "reduces behind each backward pass";
                        return c.strategy.reduce_once == stages ? Default(why) : No(why);
                      },
                      [](const SettingIndex&, const Values& values) -> std::optional<Value> {
                        return Value{NumberOf(values, "pp", 1) > 1 ? "on" : "off", {}, ""};
                      })},
        {kFsdp, Choices({{"on", {{"REDUCE_ONCE", "True"}}}, {"off", {{"REDUCE_ONCE", "False"}}}})},
        {kAnyTarget, Fixed("off", "reduces behind each backward pass")}}},
      {"rings", Switch(&Strategy::rings), "", {{kAnyTarget, Own()}}},
      {"recv_slots", Number(&Strategy::recv_slots), "", {{kAnyTarget, Own()}}},
      {"send_slots", Number(&Strategy::send_slots), "", {{kAnyTarget, Own()}}},
      {"frame_pool", Switch(&Strategy::frame_pool), "", {{kAnyTarget, Own()}}},
  };
}

}  // namespace

const std::vector<Field>& ComputeFields() {
  static const std::vector<Field> fields = [] {
    std::vector<Field> all = Compute();
    for (Field& field : Overlaps()) all.push_back(std::move(field));
    return all;
  }();
  return fields;
}

}  // namespace orrery::exchange
