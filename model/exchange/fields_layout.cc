// SPDX-License-Identifier: Apache-2.0
// The rows of Strategy that share the work out: degrees, stages, the order of ranks.
#include "model/exchange/fields.h"
#include "model/plan/lower/names.h"

namespace orrery::exchange {
namespace {

const char* const kWholeModel = "every rank holds whole layers: --to torchtitan or megatron";
const char* const kNoStages = "has no pipelines";

const char* const kGathersOrRotates = "gathers keys and values or passes them on";

// What Megatron-Bridge asserts of its FSDP, or sets by itself (training/config.py, ConfigContainer.validate; docs/training/
// megatron-fsdp.md): recipes save snapshots, in another format.
std::vector<std::pair<std::string, std::string>> BridgeFsdp(const char* strategy) {
  return {{"ddp.data_parallel_sharding_strategy", strategy},
          {"ddp.use_megatron_fsdp", "true"},
          {"dist.use_megatron_fsdp", "true"},
          {"ddp.use_distributed_optimizer", "true"},
          {"optimizer.use_distributed_optimizer", "true"},
          {"ddp.average_in_collective", "false"},
          {"checkpoint.ckpt_format", "fsdp_dtensor"}};
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
       {{kMegatron, MegatronContext("cp-comm-type")},
        {kBridge, MegatronContext("model.cp_comm_type")},
        {kDeepSpeed, Fixed("ulysses", "shares sequences by heads alone")},
        {kAccelerate,
         Choices(
             {{"allgather",
               {{"parallelism_config.parallelism_config_cp_comm_strategy", "allgather"}}},
              {"ring", {{"parallelism_config.parallelism_config_cp_comm_strategy", "alltoall"}}},
              {"allgather", {}}},
             kGathersOrRotates)},
        {kTitan, Fixed("allgather", "gathers keys and values")},
        {kTitanToml,  // up to v0.2.2
         Choices({{"allgather", {{"parallelism.context_parallel_rotate_method", "allgather"}}},
                  {"ring", {{"parallelism.context_parallel_rotate_method", "alltoall"}}},
                  {"allgather", {}}},
                 kGathersOrRotates)},
        {kTorch, Choices({}, "has no context parallelism")}}},
      {"cp_inner",
       Where(TwoLevels, [](const Case& c) { return Text(c.strategy.context.inner); }),
       "--cp-inner",
       {{kMegatron, MegatronLevels("hierarchical-context-parallel-sizes", false)},
        {kBridge, MegatronLevels("model.hierarchical_context_parallel_sizes", true)},
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
        {kAccelerate, AccelerateReplicas()},
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
       {{kMegatron, MegatronShards()},
        {kBridge, Choices({{"0", {{"ddp.use_distributed_optimizer", "false"}}},
                           {"1",
                            {{"ddp.use_distributed_optimizer", "true"},
                             {"optimizer.use_distributed_optimizer", "true"}}},
                           {"2", BridgeFsdp("optim_grads")},
                           {"3", BridgeFsdp("optim_grads_params")}})},
        {kDeepSpeed, Key("zero_optimization.stage")},
        {kAccelerate,
         AccelerateZero(Choices(
             {{"0", {{"distributed_type", "MULTI_GPU"}}},
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
              {"0", {{"deepspeed_config.zero_stage", "0"}, {"distributed_type", "DEEPSPEED"}}},
              {"2", {{"deepspeed_config.zero_stage", "2"}, {"distributed_type", "DEEPSPEED"}}},
              {"3", {{"deepspeed_config.zero_stage", "3"}, {"distributed_type", "DEEPSPEED"}}},
              {"2", {{"fsdp_config.fsdp_sharding_strategy", "SHARD_GRAD_OP"}}},
              {"3", {{"fsdp_config.fsdp_sharding_strategy", "FULL_SHARD"}}},
              {"3", {{"fsdp_config.fsdp_sharding_strategy", "HYBRID_SHARD"}}},
              {"2", {{"fsdp_config.fsdp_sharding_strategy", "HYBRID_SHARD_ZERO2"}}},
              {"0", {{"fsdp_config.fsdp_sharding_strategy", "NO_SHARD"}}},
              {"3", {{"fsdp_config.fsdp_sharding_strategy", "1"}}},
              {"2", {{"fsdp_config.fsdp_sharding_strategy", "2"}}},
              {"0", {{"fsdp_config.fsdp_sharding_strategy", "3"}}},
              {"3", {{"fsdp_config.fsdp_sharding_strategy", "4"}}},
              {"2", {{"fsdp_config.fsdp_sharding_strategy", "5"}}},
              {"", {{"distributed_type", "DEEPSPEED"}}}}))},
        {kTitans, TitanZero()},
        {kFsdp, Choices({{"2", {{"RESHARD_AFTER_FORWARD", "False"}}},
                         {"3", {{"RESHARD_AFTER_FORWARD", "True"}}}},
                        "fully_shard shards gradients and optimizer at least: --to ddp")},
        {kDdp, Choices({{"0", {}},
                        {"1",
                         {{"SHARDED_OPTIMIZER", "True"}},
                         "ZeroRedundancyOptimizer shards the optimizer alone: gradients are "
                         "reduced whole and each weight is broadcast by its owner, where the "
                         "prediction scatters the ones and gathers the others"}},
                       "DistributedDataParallel keeps all weights and gradients: --to fsdp")}}},
  };
}

const char* const kByLayout = "layout, which names the layers of each stage";

// BigScience's stages count the token table, which stands at both ends, as a layer where they are told so (its gpt_model.py).
// Two stages are equal all the same.
Cell CountedEnd() {
  return Rule(
      [](const Case&) {
        return Written{Status::kFollows, {}, kByLayout};
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const std::vector<std::string> words = WordsOf(settings.Peek("pp-partition-method"));
        if (words.size() != 1 || !words[0].starts_with("type:transformer")) return std::nullopt;
        const Setting* method = settings.Find("pp-partition-method");
        if (words[0] != "type:transformer|embedding" || NumberOf(values, "pp", 1) < 3)
          return std::nullopt;
        return From(method, "on");
      });
}

std::vector<Field> Pipelines() {
  return {
      {"schedule",
       Where(Pipeline,
             [](const Case& c) -> std::string {
               return NameIn(kScheduleNames, c.strategy.schedule);
             }),
       "--schedule",
       {{kMegatron,
         Rule(
             [](const Case& c) {
               if (c.strategy.schedule == PipelineSchedule::k1F1B) return Default("1F1B");
               if (c.strategy.schedule == PipelineSchedule::kInterleaved)
                 return Written{Status::kFollows, {}, "interleaved where there are virtual stages"};
               return No("runs 1F1B, interleaved or not");
             },
             [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
               // Megatron-DeepSpeed's; its exact semantics are of the update's checks.
               const Setting* bubble = settings.Find("enable-zbh1-pipeline");
               (void)settings.Find("enable-zbh1-exact-semantics");
               if (bubble == nullptr) return std::nullopt;
               return From(bubble, NameIn(kScheduleNames, PipelineSchedule::kZeroBubble));
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
       {{kMegatron, MegatronUnevenStages(false)},
        {kBridge, MegatronUnevenStages(true)},
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
       "fact count_embedding",
       {{kMegatron, CountedEnd()}, {kAnyTarget, Follows(kByLayout)}}},
      {"count_head",
       Where(Pipeline, Switch(&Strategy::count_head)),
       "fact count_head",
       {{kMegatron, CountedEnd()}, {kAnyTarget, Follows(kByLayout)}}},
      {"scatter_gather",
       Where(Scatters, Switch(&Strategy::scatter_gather)),
       "fact scatter_gather",
       {{kMegatron, MegatronScatterGather()},
        {kBridge, Fixed("off", "Megatron Core sends whole tensors between stages")},
        {kTitans, Fixed("off", "stages exchange whole tensors")},
        {kAnyTarget, Fixed("on", "partitions the tensors between stages")}}},
  };
}

}  // namespace

const std::vector<Field>& LayoutFields() {
  static const std::vector<Field> fields = [] {
    std::vector<Field> all = Degrees();
    for (Field& field : Pipelines()) all.push_back(std::move(field));
    return all;
  }();
  return fields;
}

}  // namespace orrery::exchange
