// SPDX-License-Identifier: Apache-2.0
// Settings that change a job in a way that plans do not model.
#include <algorithm>
#include <iterator>
#include <string_view>

#include "model/base/plain_text.h"
#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

struct Unmodelled {
  unsigned targets;
  const char* part;  // the key begins so
  const char* what;
  double but = -1;        // with this number it is as plans have it
  const char* same = "";  // with this word, likewise
  bool off = false;       // it is the setting that is off which changes the job
};
constexpr Unmodelled kUnmodelled[] = {
    {kMegatron, "fp4-param", "weights held in 4 bits"},
    {kMegatron, "softmax-type", "another softmax", -1, "vanilla"},
    {kMegatron, "decoder-seq-length", "another length of the decoder's sequences"},
    {kMegatron, "no-rope-freq", "layers without positions"},
    // Their scope, warm-up and the like mean nothing without these, and dumps have defaults of all. So have they of mixtures
    // of experts, which are refused by their number.
    {kMegatron, "cuda-graph-impl", "CUDA graphs"},
    {kMegatron, "enable-cuda-graph", "CUDA graphs"},
    {kMegatron, "external-cuda-graph", "CUDA graphs"},
    {kMegatron, "fine-grained-activation-offloading", "offloading of activations by modules"},
    {kMegatron, "cpu-offloading-weights", "weights of layers that leave the GPU"},
    {kBridge, "model.cpu_offloading_weights", "weights of layers that leave the GPU"},
    {kMegatron, "fp32-residual-connection", "residuals in fp32"},
    {kMegatron, "rampup-batch-size", "a batch that grows"},
    {kMegatron, "spec", "layers of a specification of its own"},
    {kMegatron, "transformer-impl",
     "kernels of PyTorch and Apex in the place of TransformerEngine's", -1, "transformer_engine"},
    {kMegatron, "fp8-dot-product-attention", "attention in 8 bits"},
    {kMegatron, "fp8-multi-head-attention", "attention in 8 bits"},
    {kMegatron, "no-rope-fusion", "element-wise chains in several kernels"},
    {kMegatron, "no-bias-", "element-wise chains in several kernels"},
    {kMegatron, "no-gradient-accumulation-fusion", "gradients of weights that are added up apart"},
    {kMegatron, "reset-attention-mask", "attention within documents alone"},
    {kMegatron, "ddp-num-buckets", "another size of buckets"},
    {kMegatron, "offload-optimizer-states", "states that leave the GPU between steps"},
    {kMegatron, "distribute-saved-activations",
     "kept activations that tensor-parallel ranks share out"},
    {kMegatron, "overlap-param-gather-with-optimizer-step", "gathers next to the update"},
    {kMegatron, "cross-entropy-loss-fusion", "a fused loss"},
    {kMegatron, "use-sharp", "reductions in the network's switches"},
    {kMegatron, "no-overlap-p2p-communication", "transfers between chunks that nothing hides"},
    {kMegatron, "overlap-p2p-communication-warmup-flush",
     "transfers that are hidden at the pipeline's ends, too"},
    {kMegatron, "no-async-tensor-model-parallel-allreduce",
     "all-reduces of tensor parallelism that gradients of weights wait for"},
    {kMegatron, "num-microbatches-with-partial-activation-checkpoints",
     "recomputation of some micro-batches alone"},
    {kMegatron, "defer-embedding-wgrad-compute",
     "gradients of the head in the pipeline's last bubble"},
    {kMegatron, "delay-wgrad-compute", "gradients of weights apart from those of activations"},
    {kMegatron, "tensor-parallel-num-weight-shards", "weights sharded besides tensor parallelism",
     1},
    {kMegatron, "hybrid-context-parallel", "context parallelism by the length of each sequence"},
    {kMegatron, "step-batch-size-schedule", "a batch that grows"},
    {kMegatron, "use-checkpoint-args", "arguments of the checkpoint, which replace these"},
    {kMegatron, "use-mp-args-from-checkpoint-args",
     "degrees of the checkpoint, which replace these"},
    {kMegatron, "fsdp-double-buffer", "two buffers of gathered weights that FSDP keeps"},
    {kMegatron, "use-nccl-ub", "buffers registered with NCCL"},
    {kMegatron, "ddp-reduce-scatter-with-fp32-accumulation",
     "reduce-scatters that exchange all-to-all and add up in fp32"},
    {kMegatron, "disable-tp-comm-", "parts of tensor parallelism's overlap that are off"},
    {kMegatron, "no-masked-softmax-fusion", "a softmax in several kernels"},
    {kMegatron, "openai-gelu", "element-wise chains in several kernels"},
    {kMegatron, "disable-jit-fuser", "element-wise chains in several kernels"},
    {kMegatron, "fp16-lm-cross-entropy", "a loss in 16 bits"},
    {kMegatron, "output-logit-dtype", "logits of another type"},
    {kMegatron, "apply-residual-connection-post-layernorm", "residuals behind the norms"},
    {kMegatron, "embed-layernorm", "a norm of the embeddings"},
    {kMegatron, "sync-tp-duplicated-parameters",
     "weights that tensor-parallel ranks compare in each pass"},
    {kMegatron, "use-bnb-optimizer", "states of a byte (--optimizer adam8bit)"},
    {kMegatron, "cpu_torch_adam", "an update on the CPU by PyTorch"},
    {kMegatron, "cpu-torch-adam", "an update on the CPU by PyTorch"},
    {kMegatron, "pp-partition-method", "stages cut by weights of modules"},
    {kMegatron, "partition-activations", "kept activations that tensor-parallel ranks share out"},
    {kMegatron, "distribute-checkpointed-activations",
     "kept activations that tensor-parallel ranks share out"},
    {kMegatron, "checkpoint-in-cpu", "kept activations on the host"},
    {kMegatron, "synchronize-each-layer", "a synchronisation at each layer"},
    {kMegatron, "remote-device", "weights that leave the GPU", -1, "none"},
    {kMegatron, "memory-centric-tiled-linear", "products in tiles"},
    {kMegatron, "split-transformers", "checkpoints of half layers"},
    {kMegatron, "scattered-embeddings", "embeddings that tensor-parallel ranks share out"},
    {kMegatron, "ds-sequence-parallel-fpdt", "attention in chunks (FPDT)", 65536},
    {kMegatron, "random-ltd", "layers that see some of the tokens"},
    {kMegatron, "data-efficiency-curriculum-learning", "sequences that grow"},
    {kMegatron, "curriculum-learning", "sequences that grow"},
    {kDeepSpeed, "zero_optimization.offload_param",
     "weights on NVMe, or on the CPU without all of the optimizer's states"},
    {kDeepSpeed, "zero_optimization.offload_optimizer",
     "states on NVMe, or other choices of offload"},
    {kDeepSpeed, "zero_optimization.zero_quantized", "quantised collectives"},
    {kDeepSpeed, "zero_hpz", "a second shard of the weights in each node"},
    {kDeepSpeed, "zero_optimization.reduce_scatter", "gradients reduced whole, by all-reduces", -1,
     "", true},
    {kDeepSpeed, "zero_optimization.zenflow", "updates on the CPU that later steps overlap"},
    {kDeepSpeed, "zero_optimization.mics_hierarchical_params_gather", "gathers in two levels"},
    {kDeepSpeed, "bf16.bf16_", "weights or states of the optimizer in bf16"},
    {kDeepSpeed, "fp16.fp16_master_weights", "weights of the optimizer in fp16"},
    {kDeepSpeed, "activation_checkpointing.cpu_checkpointing", "kept activations on the host"},
    {kDeepSpeed, "elasticity.enabled", "a batch that follows the number of GPUs"},
    {kDeepSpeed, "curriculum_learning.enabled", "sequences that grow"},
    {kDeepSpeed, "data_efficiency.enabled", "sampling and dropping of data"},
    {kDeepSpeed, "progressive_layer_drop.enabled", "layers that are dropped"},
    {kDeepSpeed, "quantize_training.enabled", "quantised training"},
    {kDeepSpeed, "compile.", "compiled kernels"},
    {kDeepSpeed, "sparse_attention", "sparse attention"},
    {kDeepSpeed, "compression_training", "compression"},
    {kAccelerate, "args.lora_dropout", "dropout in front of adapters", 0},
    {kAccelerate, "deepspeed_config.offload", "offloading"},
    {kAccelerate, "fsdp_config.fsdp_backward_prefetch", "gathers that are not fetched ahead", -1,
     "BACKWARD_PRE"},
    {kAccelerate, "args.use_galore", "GaLore's projected states"},
    {kAccelerate, "args.use_apollo", "APOLLO's projected states"},
    {kAccelerate, "args.use_badam", "BAdam, which trains block by block"},
    {kAccelerate, "args.use_adam_mini", "Adam-mini's fewer moments"},
    {kAccelerate, "args.use_muon", "Muon"},
    {kAccelerate, "args.mixture_of_depths", "layers that tokens skip"},
    {kAccelerate, "args.use_unsloth", "Unsloth's kernels"},
    {kAccelerate, "args.use_liger_kernel", "Liger's fused kernels and loss"},
    {kAccelerate, "args.enable_liger_kernel", "Liger's fused kernels and loss"},
    {kAccelerate, "args.use_kt", "KTransformers' weights on the CPU"},
    {kAccelerate, "args.fp8", "products in 8 bits", -1, "", false},
    {kAccelerate, "args.use_asft_loss", "a second model for the loss"},
    {kAccelerate, "args.freeze_", "parts of the model that are frozen"},
    {kAccelerate, "args.group_by_length", "batches of sequences of one length"},
    {kDeepSpeed, "zero_optimization.reduce_bucket_size", "another size of buckets", 5e8},
    {kMegatron, "ddp-bucket-size", "another size of buckets"},
    {kBridge, "ddp.bucket_size", "another size of buckets"},
    {kTitans, "compile.", "compiled kernels", -1, "inductor"},
    {kTitans, "parallelism.pipeline_parallel_schedule_csv", "a schedule of its own"},
    {kTitans, "parallelism.disable_loss_parallel", "logits that ranks gather for the loss"},
    {kTitans, "parallelism.enable_compiled_autograd", "compiled backward passes"},
    {kTitans, "activation_checkpoint.early_stop", "recomputation that ends where it may"},
    {kTitans, "optimizer.early_step_in_backward", "updates in the backward pass"},
    {kTitans, "optimizer.implementation", "updates tensor by tensor", -1, "fused"},
    {kTitans, "fault_tolerance.enable", "replicas that come and go"},
    {kTitanToml, "model.converters", "a conversion of the model", -1, "[]"},
    {kTitans, "model_converters.converters", "a conversion of the model", -1, "[]"},
    {kTitanToml, "parallelism.enable_sequence_parallel",
     "tensor parallelism without that of sequences", -1, "", true},
    {kTitans, "training.dtype", "weights, gradients and states all in 16 bits", -1, "float32"},
    {kTitans, "training.mixed_precision_reduce", "gradients reduced in 16 bits", -1, "float32"},
    {kTitanToml, "quantize.linear.float8.recipe_name", "fp8 with scales by rows"},
};

// Of DeepSpeed 0.19 (runtime/config.py, runtime/constants.py and the configurations that they read) and of older releases.
constexpr std::string_view kKeysOfDeepSpeed[] = {"activation_checkpointing",
                                                 "aio",
                                                 "amp",
                                                 "autotuning",
                                                 "bf16",
                                                 "bfloat16",
                                                 "checkpoint",
                                                 "comet",
                                                 "communication_data_type",
                                                 "comms_logger",
                                                 "compile",
                                                 "compression_training",
                                                 "csv_monitor",
                                                 "curriculum_learning",
                                                 "data_efficiency",
                                                 "data_types",
                                                 "dataloader_drop_last",
                                                 "datastates",
                                                 "disable_allgather",
                                                 "dump_state",
                                                 "eigenvalue",
                                                 "elasticity",
                                                 "expert_parallel",
                                                 "flops_profiler",
                                                 "fp16",
                                                 "fp32_allreduce",
                                                 "gradient_accumulation_steps",
                                                 "gradient_allreduce_op",
                                                 "gradient_clipping",
                                                 "gradient_predivide_factor",
                                                 "graph_harvesting",
                                                 "hybrid_engine",
                                                 "log_level",
                                                 "managed_gradient_accumulation",
                                                 "memory_breakdown",
                                                 "nebula",
                                                 "optimizer",
                                                 "pipeline",
                                                 "prescale_gradients",
                                                 "progressive_layer_drop",
                                                 "quantize_training",
                                                 "scheduler",
                                                 "seq_parallel_communication_data_type",
                                                 "sequence_parallel_size",
                                                 "sparse_attention",
                                                 "sparse_gradients",
                                                 "steps_per_print",
                                                 "tensor_parallel",
                                                 "tensorboard",
                                                 "timers",
                                                 "torch_autocast",
                                                 "train_batch_size",
                                                 "train_micro_batch_size_per_gpu",
                                                 "use_data_before_expert_parallelism",
                                                 "vocabulary_size",
                                                 "wall_clock_breakdown",
                                                 "wandb",
                                                 "weight_quantization",
                                                 "zero_allow_untested_optimizer",
                                                 "zero_force_ds_cpu_optimizer",
                                                 "zero_optimization"};

// Of its zero_optimization (runtime/zero/config.py at edaa7221); fields of stage 3 are read with that in front, too.
constexpr std::string_view kKeysOfZero[] = {"allgather_bucket_size",
                                            "allgather_partitions",
                                            "allgather_sequential",
                                            "contiguous_gradients",
                                            "cpu_offload",
                                            "cpu_offload_param",
                                            "cpu_offload_params",
                                            "cpu_offload_use_pin_memory",
                                            "elastic_checkpoint",
                                            "enable_sanity_checks",
                                            "gather_16bit_weights_on_model_save",
                                            "gather_fp16_weights_on_model_save",
                                            "ignore_unused_parameters",
                                            "leaf_module",
                                            "legacy_stage1",
                                            "load_from_fp32_weights",
                                            "log_trace_cache_warnings",
                                            "max_live_parameters",
                                            "max_reuse_distance",
                                            "memory_efficient_linear",
                                            "mics_hierarchical_params_gather",
                                            "mics_shard_size",
                                            "model_persistence_threshold",
                                            "module_granularity_threshold",
                                            "offload_optimizer",
                                            "offload_param",
                                            "overlap_comm",
                                            "override_module_apply",
                                            "param_persistence_threshold",
                                            "partition_stream_chunk_size",
                                            "pipeline_loading_checkpoint",
                                            "prefetch_bucket_size",
                                            "reduce_bucket_size",
                                            "reduce_scatter",
                                            "round_robin_gradients",
                                            "save_muon_momentum_buffer_in_memory",
                                            "stage",
                                            "sub_group_size",
                                            "use_all_reduce_for_fetch_params",
                                            "use_multi_rank_bucket_allreduce",
                                            "zenflow",
                                            "zero_hpz_partition_size",
                                            "zero_quantized_gradients",
                                            "zero_quantized_nontrainable_weights",
                                            "zero_quantized_weights",
                                            "zeropp_loco_param"};

}  // namespace

bool IsKeyOfZero(std::string_view key) {
  key = key.substr(0, key.find('.'));
  constexpr std::string_view kStage3 = "stage3_";
  if (key.starts_with(kStage3)) key.remove_prefix(kStage3.size());
  return std::ranges::find(kKeysOfZero, key) != std::end(kKeysOfZero);
}

bool IsKeyOfDeepSpeed(std::string_view key) {
  return std::ranges::find(kKeysOfDeepSpeed, key.substr(0, key.find('.'))) !=
         std::end(kKeysOfDeepSpeed);
}

bool IsAsModelled(Target target, const Setting& setting) {
  return NotModelled(target, setting) == nullptr &&
         std::ranges::any_of(kUnmodelled, [&](const Unmodelled& what) {
           return (what.targets & target) != 0 && setting.key == what.part;
         });
}

const char* NotModelled(Target target, const Setting& setting) {
  double number = 0;
  const bool known = ParseNumber(setting.value, &number) == NumberFault::kNone;
  const auto row = std::ranges::find_if(kUnmodelled, [&](const Unmodelled& what) {
    return (what.targets & target) != 0 && setting.key.starts_with(what.part) &&
           Off(setting.value) == what.off && !(known && number == what.but) &&
           (what.same[0] == '\0' || setting.value != what.same);
  });
  return row == std::end(kUnmodelled) ? nullptr : row->what;
}

}  // namespace orrery::exchange
