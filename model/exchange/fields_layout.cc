// SPDX-License-Identifier: Apache-2.0
// The rows of Strategy: a member each, in the order in which they are read.
#include "model/exchange/rules.h"
#include "model/plan/lower/names.h"

namespace orrery::exchange {
namespace {

using Texts = std::function<std::string(const Case&)>;

Texts Number(int Strategy::*member) {
  return [member](const Case& c) { return Text(c.strategy.*member); };
}
Texts Switch(bool Strategy::*member) {
  return [member](const Case& c) { return OnOff(c.strategy.*member); };
}
// "" unless the condition holds: the field means nothing there.
Texts Where(bool (*holds)(const Case&), Texts text) {
  return [holds, text = std::move(text)](const Case& c) { return holds(c) ? text(c) : ""; };
}

bool Tensor(const Case& c) { return c.strategy.tp > 1; }
bool CutsAdapters(const Case& c) { return Tensor(c) && c.work.lora.on(); }
bool Pipeline(const Case& c) { return c.strategy.pp > 1; }
bool Replicas(const Case& c) { return c.strategy.data_parallel() > 1; }
// States can be shared out: over ranks that share sequences, too.
bool Shares(const Case& c) { return Replicas(c) || c.strategy.cp > 1; }
bool Sharded(const Case& c) { return c.strategy.dp > 1 && c.strategy.zero >= 1; }
bool Sharded3(const Case& c) { return c.strategy.dp > 1 && c.strategy.zero == 3; }
bool ReducesAfter(const Case& c) { return Replicas(c) && c.strategy.zero <= 1; }
bool ShardsGradients(const Case& c) {
  return c.strategy.shards() > 1 && c.strategy.zero >= 2 && c.micro_batches() > 1;
}
bool Scatters(const Case& c) { return Tensor(c) && Pipeline(c) && !c.strategy.sequence_parallel; }
bool Half(const Case& c) {
  return c.work.precision == Precision::kBf16 || c.work.precision == Precision::kFp16;
}
bool HoldsCodes(const Case& c) { return CanHoldCodes(c.work, c.strategy); }
bool RepeatsProducts(const Case& c) {
  return (c.strategy.recompute.modules & (kRecomputeKeys | kRecomputeUp)) != 0;
}
bool Repeats(const Case& c) {
  return (c.strategy.recompute.modules & (kRecomputeLayer | kRecomputeMlp)) != 0;
}

const char* const kWholeModel = "every rank holds whole layers: --to torchtitan or megatron";
const char* const kNoStages = "has no pipelines";
const char* const kByModel = "the model's own setting (attn_implementation), not the trainer's";

bool Context(const Case& c) { return c.strategy.cp > 1; }
bool TwoLevels(const Case& c) {
  return Context(c) && c.strategy.context.method == CpMethod::kA2aRing;
}
const char* const kGathersOrRotates = "gathers keys and values or passes them on";

// Megatron's names; TransformerEngine's default is the ring.
Cell ContextMethods(const std::string& key) {
  return Choices({{"ring", {{key, "p2p"}}},
                  {"allgather", {{key, "all_gather"}}},
                  {"ulysses", {{key, "a2a"}}},
                  {"a2a_ring", {{key, "a2a+p2p"}}},
                  {"ring", {}}});
}

std::vector<Field> Degrees() {
  return {
      {"tp",
       Number(&Strategy::tp),
       "--tp",
       {{kMegatron, Key("tensor-model-parallel-size", "1")},
        {kBridge, Key("model.tensor_model_parallel_size", "1")},
        {kDeepSpeed, Key("tensor_parallel.autotp_size", "1")},
        {kAccelerate, Key("parallelism_config.parallelism_config_tp_size", "1")},
        {kTitans, Key("parallelism.tensor_parallel_degree", "1")},
        {kTorch, Fixed("1", kWholeModel)}}},
      {"pp",
       Number(&Strategy::pp),
       "--pp",
       {{kMegatron, Key("pipeline-model-parallel-size", "1")},
        {kBridge, Key("model.pipeline_model_parallel_size", "1")},
        {kDeepSpeed, Fixed("1", "stages are code (PipelineModule), not configuration")},
        {kTitans, Key("parallelism.pipeline_parallel_degree", "1")},
        {kAnyTarget, Fixed("1", kNoStages)}}},
      {"cp",
       Number(&Strategy::cp),
       "--cp",
       {{kMegatron, Key("context-parallel-size", "1")},
        {kBridge, Key("model.context_parallel_size", "1")},
        {kDeepSpeed, Key("sequence_parallel_size", "1")},
        {kAccelerate, Key("parallelism_config.parallelism_config_cp_size", "1")},
        {kTitans, Key("parallelism.context_parallel_degree", "1")},
        {kTorch, Fixed("1", "has no context parallelism")}}},
      {"context",
       Where(Context,
             [](const Case& c) -> std::string {
               return NameIn(kCpMethodNames, c.strategy.context.method);
             }),
       "--cp-method",
       {{kMegatron, ContextMethods("cp-comm-type")},
        {kBridge, ContextMethods("model.cp_comm_type")},
        {kDeepSpeed, Fixed("ulysses", "shares sequences by heads alone")},
        {kAccelerate,
         Choices(
             {{"allgather",
               {{"parallelism_config.parallelism_config_cp_comm_strategy", "allgather"}}},
              {"ring", {{"parallelism_config.parallelism_config_cp_comm_strategy", "alltoall"}}},
              {"allgather", {}}},
             kGathersOrRotates)},
        {kTitans, Fixed("allgather", "gathers keys and values")},
        {kTorch, Choices({}, "has no context parallelism")}}},
      {"cp_inner",
       Where(TwoLevels, [](const Case& c) { return Text(c.strategy.context.inner); }),
       "--cp-inner",
       {{kMegatron, Choices({}, "--hierarchical-context-parallel-sizes names both levels")},
        {kAnyTarget, Choices({}, "has one level")}}},
      {"zigzag",
       Where(Context, [](const Case& c) { return OnOff(c.strategy.context.zigzag); }),
       "--zigzag",
       {{kDeepSpeed, Fixed("off", "keeps sequences in order")},
        {kTitans, Choices({{"on", {{"parallelism.context_parallel_load_balancer", "headtail"}}},
                           {"off", {{"parallelism.context_parallel_load_balancer", "None"}}},
                           {"on", {}}})},
        {kAnyTarget, Choices({{"on", {}}}, "always balances the causal mask")}}},
      {"ep",
       Number(&Strategy::ep),
       "",
       {{kMegatron, Key("expert-model-parallel-size", "1")},
        {kBridge, Key("model.expert_model_parallel_size", "1")},
        {kTitans, Key("parallelism.expert_parallel_degree", "1")},
        {kAnyTarget, Fixed("1", "has no expert parallelism")}}},
      {"dp_outer",
       Number(&Strategy::dp_outer),
       "--dp-outer",
       {{kMegatron, Key("num-distributed-optimizer-instances", "1")},
        {kBridge, Key("ddp.num_distributed_optimizer_instances", "1")},
        {kDeepSpeed, DeepSpeedReplicas()},
        {kAccelerate, Key("parallelism_config.parallelism_config_dp_replicate_size", "1")},
        {kTitans, TitanReplicas()},
        {kFsdp, Key("REPLICAS", "1")},
        {kDdp, Fixed("1", "shards nothing")}}},
      {"dp",
       Number(&Strategy::dp),
       "--dp",
       {{kMegatron | kBridge, Follows("GPUs / (tp x pp x cp x copies of the shards)")},
        {kDeepSpeed, Follows("GPUs / (tp x cp), see dp_outer")},
        {kAccelerate, AccelerateShards()},
        {kTitans, TitanShards()},
        {kTorch, Follows("GPUs / copies of the shards")}}},
      {"zero",
       Where(Shares, Number(&Strategy::zero)),
       "--zero",
       {{kMegatron, Choices({{"0", {}},
                             {"1", {{"use-distributed-optimizer", ""}}},
                             {"2",
                              {{"data-parallel-sharding-strategy", "optim_grads"},
                               {"use-megatron-fsdp", ""},
                               {"use-distributed-optimizer", ""},
                               {"ckpt-format", "fsdp_dtensor"}}},
                             {"3",
                              {{"data-parallel-sharding-strategy", "optim_grads_params"},
                               {"use-megatron-fsdp", ""},
                               {"use-distributed-optimizer", ""},
                               {"ckpt-format", "fsdp_dtensor"}}}})},
        {kBridge, Choices({{"0", {{"ddp.use_distributed_optimizer", "false"}}},
                           {"1",
                            {{"ddp.use_distributed_optimizer", "true"},
                             {"optimizer.use_distributed_optimizer", "true"}}},
                           {"2",
                            {{"ddp.data_parallel_sharding_strategy", "optim_grads"},
                             {"ddp.use_megatron_fsdp", "true"},
                             {"ddp.use_distributed_optimizer", "true"},
                             {"optimizer.use_distributed_optimizer", "true"}}},
                           {"3",
                            {{"ddp.data_parallel_sharding_strategy", "optim_grads_params"},
                             {"ddp.use_megatron_fsdp", "true"},
                             {"ddp.use_distributed_optimizer", "true"},
                             {"optimizer.use_distributed_optimizer", "true"}}}})},
        {kDeepSpeed, Key("zero_optimization.stage")},
        {kAccelerate,
         Choices({{"0", {{"distributed_type", "MULTI_GPU"}}},
                  {"1", {{"deepspeed_config.zero_stage", "1"}, {"distributed_type", "DEEPSPEED"}}},
                  {"2",
                   {{"fsdp_config.fsdp_reshard_after_forward", "false"},
                    {"fsdp_config.fsdp_version", "2"},
                    {"fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
                    {"distributed_type", "FSDP"}}},
                  {"3",
                   {{"fsdp_config.fsdp_reshard_after_forward", "true"},
                    {"fsdp_config.fsdp_version", "2"},
                    {"fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
                    {"distributed_type", "FSDP"}}},
                  {"2", {{"deepspeed_config.zero_stage", "2"}, {"distributed_type", "DEEPSPEED"}}},
                  {"3", {{"deepspeed_config.zero_stage", "3"}, {"distributed_type", "DEEPSPEED"}}},
                  {"2", {{"fsdp_config.fsdp_sharding_strategy", "SHARD_GRAD_OP"}}},
                  {"3", {{"fsdp_config.fsdp_sharding_strategy", "FULL_SHARD"}}},
                  {"3", {{"fsdp_config.fsdp_sharding_strategy", "HYBRID_SHARD"}}},
                  {"0", {{"fsdp_config.fsdp_sharding_strategy", "NO_SHARD"}}}})},
        {kTitans, TitanZero()},
        {kFsdp, Choices({{"2", {{"RESHARD_AFTER_FORWARD", "False"}}},
                         {"3", {{"RESHARD_AFTER_FORWARD", "True"}}}},
                        "fully_shard shards gradients and optimizer at least: --to ddp")},
        {kDdp, Choices({{"0", {}}, {"1", {{"SHARDED_OPTIMIZER", "True"}}}},
                       "DistributedDataParallel keeps all weights and gradients: --to fsdp")}}},
  };
}

std::vector<Field> Pipelines() {
  return {
      {"schedule",
       Where(Pipeline,
             [](const Case& c) -> std::string {
               return NameIn(kScheduleNames, c.strategy.schedule);
             }),
       "--schedule",
       {{kMegatron, Rule([](const Case& c) {
           if (c.strategy.schedule == PipelineSchedule::k1F1B) return Default("1F1B");
           if (c.strategy.schedule == PipelineSchedule::kInterleaved)
             return Written{Status::kFollows, {}, "interleaved where there are virtual stages"};
           return No("runs 1F1B, interleaved or not");
         })},
        {kBridge, Rule([](const Case& c) {
           if (c.strategy.schedule == PipelineSchedule::k1F1B) return Default("1F1B");
           if (c.strategy.schedule == PipelineSchedule::kInterleaved)
             return Written{Status::kFollows, {}, "interleaved where there are virtual stages"};
           return No("runs 1F1B, interleaved or not");
         })},
        {kTitans,
         Choices({{"1f1b", {{"parallelism.pipeline_parallel_schedule", "1F1B"}}},
                  {"gpipe", {{"parallelism.pipeline_parallel_schedule", "GPipe"}}},
                  {"interleaved", {{"parallelism.pipeline_parallel_schedule", "Interleaved1F1B"}}},
                  {"zero-bubble-v", {{"parallelism.pipeline_parallel_schedule", "ZBVZeroBubble"}}},
                  {"1f1b", {}}},
                 "PyTorch's zero-bubble schedules have two chunks per rank, ZB-H1 has one")},
        {kAnyTarget, Follows("pp")}}},
      {"vpp",
       Where(Pipeline, Number(&Strategy::vpp)),
       "--vpp",
       {{kMegatron, MegatronVirtualStages()},
        {kBridge, Key("model.virtual_pipeline_model_parallel_size", "1")},
        {kTitans, TitanVirtualStages()},
        {kAnyTarget, Follows("pp")}}},
      {"layout",
       LayoutText,
       "--layout",
       {{kMegatron, MegatronUnevenStages("pipeline-model-parallel-layout")},
        {kBridge, MegatronUnevenStages("model.pipeline_model_parallel_layout")},
        {kTitan, TitanLayout("lm_head")},  // since 2026
        {kTitanToml, TitanLayout("output")},
        {kAnyTarget, Follows("pp")}}},
      {"placement",
       [](const Case& c) -> std::string {
         return c.strategy.placement ? PlacementText(*c.strategy.placement) : "";
       },
       "--placement",
       {{kMegatron, MegatronPlacement("use-tp-pp-dp-mapping", "")},
        {kBridge, MegatronPlacement("dist.use_tp_pp_dp_mapping", "true")},
        {kAnyTarget, OtherPlacement()}}},
      {"count_embedding",
       Where(Pipeline, Switch(&Strategy::count_embedding)),
       "",
       {{kAnyTarget, Follows("layout, which names the layers of each stage")}}},
      {"count_head",
       Where(Pipeline, Switch(&Strategy::count_head)),
       "",
       {{kAnyTarget, Follows("layout, which names the layers of each stage")}}},
      {"scatter_gather",
       Where(Scatters, Switch(&Strategy::scatter_gather)),
       "fact scatter_gather",
       {{kMegatron, MegatronScatterGather()},
        {kBridge, Fixed("off", "Megatron Core sends whole tensors between stages")},
        {kTitans, Fixed("off", "stages exchange whole tensors")},
        {kAnyTarget, Fixed("on", "partitions the tensors between stages")}}},
  };
}

std::vector<Field> Compute() {
  const Cell whole = Fixed("on", "torch.utils.checkpoint repeats the whole forward pass");
  return {
      {"micro_batch",
       Number(&Strategy::micro_batch),
       "--micro-batch",
       {{kMegatron, Key("micro-batch-size")},
        {kBridge, Key("train.micro_batch_size")},
        {kDeepSpeed, Key("train_micro_batch_size_per_gpu")},
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
        {kAccelerate,
         Choices({{"optimizer+weights", {{"fsdp_config.fsdp_offload_params", "true"}}}},
                 "moves weights, gradients and states together")},
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
       {{kAnyTarget, whole}}},
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
       {{kBridge, Choices({{"columns_a2a", {{"peft.a2a_experimental", "true"}}},
                           {"columns", {{"peft.a2a_experimental", "false"}}}},
                          "its ParallelLinearAdapter cuts both matrices")},
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
        {kDeepSpeed | kAccelerate, Choices({}, kByModel)},
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
       Where(Replicas, Switch(&Strategy::overlap_grad_reduce)),
       "fact overlap_grad_reduce",
       {{kMegatron, MegatronOverlap("overlap-grad-reduce")},
        {kBridge, MegatronOverlap("ddp.overlap_grad_reduce")},
        {kDeepSpeed, Choices({{"on", {{"zero_optimization.overlap_comm", "true"}}},
                              {"off", {{"zero_optimization.overlap_comm", "false"}}}})},
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
       Where(Replicas, Number(&Strategy::bucket_layers)),
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
        {kAccelerate, Rule([](const Case& c) {
           const bool shards = c.strategy.zero >= 2;
           if (c.strategy.fp32_grads != shards)
             return Default(shards ? "FSDP reduces in the type of mixed_precision"
                                   : "autocast keeps gradients in fp32");
           return No(shards ? "FSDP reduces in the type of mixed_precision"
                            : "autocast keeps gradients in fp32");
         })},
        {kTitans, Fixed("on", "reduces in float32 only")},
        {kFsdp,
         Choices({{"on", {{"REDUCE_DTYPE", "float32"}}}, {"off", {{"REDUCE_DTYPE", "half"}}}})},
        {kDdp, Fixed("on", "autocast keeps gradients in fp32")}}},
      {"fp8_weights",
       Where(HoldsCodes, Switch(&Strategy::fp8_weights)),
       "fact fp8_weights",
       {{kMegatron, MegatronHeldWeights(false)},
        {kBridge, MegatronHeldWeights(true)},
        {kTitanToml,
         Choices({{"on", {{"quantize.linear.float8.enable_fsdp_float8_all_gather", "true"}}},
                  {"off", {{"quantize.linear.float8.enable_fsdp_float8_all_gather", "false"}}}})},
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

const std::vector<Field>& LayoutFields() {
  static const std::vector<Field> fields = [] {
    std::vector<Field> all = Degrees();
    for (auto&& part : {Pipelines(), Compute(), Overlaps()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return fields;
}

}  // namespace orrery::exchange
