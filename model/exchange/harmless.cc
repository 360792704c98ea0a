// SPDX-License-Identifier: Apache-2.0
// Settings of other programs that change neither the time nor the memory of a step, so that a report can tell them from those that
// nobody knows here.
#include <algorithm>
#include <string_view>

#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

struct HarmlessRow {
  unsigned targets;
  const char* names;  // with a blank behind each; "log-*": all that begin so
};
constexpr HarmlessRow kHarmless[] = {
    // megatron/training/arguments.py: data, rates, logs, snapshots; what means something next to another argument alone.
    {kMegatron,
     "lr lr-* min-lr override-opt_param-scheduler use-checkpoint-opt_param-scheduler weight-decay "
     "start-weight-decay end-weight-decay weight-decay-incr-style adam-* clip-grad seed "
     "init-method-* "
     "train-iters train-samples exit-* eval-* save save-* load load-* no-load-* no-save-* finetune "
     "ckpt-* async-save use-dist-ckpt dist-ckpt-* auto-detect-ckpt-format data-path "
     "data-cache-path "
     "train-data-path valid-data-path test-data-path split data-impl mock-data num-workers "
     "dataloader-type tokenizer-* vocab-file merge-file vocab-extra-ids mmap-warmup "
     "no-create-attention-mask-in-dataloader log-* tensorboard-* wandb-* timing-log-* "
     "no-log-* logging-level distributed-backend distributed-timeout-minutes "
     "local-rank rank world-size hysteresis initial-loss-scale loss-scale-window loss-scale "
     "min-loss-scale no-initialization recompute-* cpu-offloading "
     "cpu-offloading-* rotary-base rotary-percent rotary-seq-len-interpolation-factor norm-epsilon "
     "layernorm-epsilon use-mcore-models no-masked-softmax-fusion no-query-key-layer-scaling "
     "manual-gc manual-gc-* profile profile-* use-pytorch-profiler inference-* nccl-* "
     "deepspeed deepspeed_config deepspeed-* no-pipeline-parallel tflops "},
    {kBridge,
     "logger.* checkpoint.* dataset.* scheduler.* rng.* tokenizer.* validation.* profiling.* "
     "optimizer.lr optimizer.min_lr optimizer.weight_decay optimizer.adam_* train.train_iters "
     "train.eval_* train.exit_* train.manual_gc* model.rotary_base model.layernorm_epsilon "},
    {kTitans,
     "job.* profiling.* profiler.* metrics.* checkpoint.* comm.* optimizer.name optimizer.lr "
     "optimizer.beta* optimizer.eps optimizer.weight_decay lr_scheduler.* training.steps "
     "training.dataset* training.seed training.deterministic training.gc_* training.warmup_steps "
     "training.data_parallel_* model.tokenizer_path model.hf_assets_path model.norm_type "
     "model.print_after_conversion validation.* debug.* experimental.custom_* dataloader.* "
     "tokenizer.* dump_folder hf_assets_path compile.backend compile.components "},
    // transformers TrainingArguments, TRL, LLaMA-Factory: data, rates, logs, evaluation, snapshots, names.
    {kAccelerate,
     "args.learning_rate args.lr_* args.warmup_* args.weight_decay args.adam_* args.max_grad_norm "
     "args.num_train_epochs args.max_steps args.max_train_steps args.seed args.data_seed "
     "args.output_dir args.overwrite_* args.do_train args.do_eval args.do_predict args.eval_* "
     "args.evaluation_* args.per_device_eval_* args.prediction_loss_only args.predict_* "
     "args.logging_* args.log_* args.report_to args.run_name args.disable_tqdm args.plot_loss "
     "args.save_* args.load_best_model_at_end args.metric_for_best_model args.greater_is_better "
     "args.resume_from_checkpoint args.push_to_hub args.hub_* args.trust_remote_code "
     "args.model_revision args.tokenizer_name args.use_fast_tokenizer args.token args.cache_dir "
     "args.chat_template args.packing* args.assistant_only_loss args.padding_free args.beta "
     "args.loss_type args.max_prompt_length args.pref_* args.eos_token args.pad_token "
     "args.template args.dataset args.dataset_* "
     "args.eval_dataset args.train_file args.validation_* args.data_path args.max_samples "
     "args.max_train_samples args.max_eval_samples args.val_size args.preprocessing_num_workers "
     "args.tokenized_path args.streaming args.dataloader_* args.ddp_timeout args.ddp_backend "
     "args.local_rank args.remove_unused_columns args.label_names args.include_* args.past_index "
     "args.label_smoothing_factor args.average_tokens_across_devices args.stage args.task_type "
     "args.finetuning_type args.use_peft args.lora_* args.model_name_or_path "
     "args.adapter_name_or_path "
     "args.loraplus_* args.pissa_* args.export_* args.infer_* args.ray_* args.with_tracking "
     "args.checkpointing_steps args.num_warmup_steps args.torch_dtype args.dtype "
     "args.ignore_data_skip args.half_precision_backend args.fp16_* args.bf16_full_eval "
     "args.skip_memory_metrics args.auto_find_batch_size args.use_cpu args.no_cuda args.jit_* "
     "args.full_determinism args.restore_* args.accelerator_config args.accelerator_config.* "
     "args.ddp_find_unused_parameters args.ddp_broadcast_buffers args.group_by_length args.debug "
     "args.length_column_name args.gradient_checkpointing_kwargs.* args.torch_empty_cache_steps "
     "args.bnb_4bit_* args.use_bnb_nested_quant args.double_quantization args.quantization_method "
     "args.num_train_steps args.lazy_preprocess args.use_slow_tokenizer args.use_flash_attn "
     "args.use_flash_attention args.use_nested_quant "
     "args.lora_* args.q_lora args.full_finetune args.only_optimize_lora args.use_peft_lora "
     "args.use_lora args.enable_lora "
     "args.use_qlora args.dynamo_* args.torch_compile_* args.fsdp args.fsdp_min_num_params "
     "args.fsdp_transformer_layer_cls_to_wrap args.fsdp_config.transformer_layer_cls_to_wrap "
     "args.fsdp_config.fsdp_transformer_layer_cls_to_wrap args.fsdp_config.min_num_params "
     "args.fsdp_config.xla args.fsdp_config.limit_all_gathers args.fsdp_config.use_orig_params "
     "args.fsdp_config.sync_module_states args.fsdp_config.cpu_ram_efficient_loading "
     "args.fsdp_config.state_dict_type "
     "compute_environment rdzv_backend same_network machine_rank main_process_ip main_process_port "
     "main_training_function tpu_* downcast_bf16 debug use_cpu enable_cpu_affinity commands "
     "command_file tpu_vm mpirun_config.* dynamo_config.* fsdp_config.fsdp_auto_wrap_policy "
     "fsdp_config.fsdp_cpu_ram_efficient_loading fsdp_config.fsdp_state_dict_type "
     "fsdp_config.fsdp_sync_module_states fsdp_config.fsdp_use_orig_params "
     "fsdp_config.fsdp_version "
     "fsdp_config.fsdp_transformer_layer_cls_to_wrap fsdp_config.fsdp_min_num_params "
     "fsdp_config.fsdp_backward_prefetch fsdp_config.fsdp_forward_prefetch "
     "deepspeed_config.offload_* args.fsdp_config.backward_prefetch "
     "args.fsdp_config.forward_prefetch fp8_config.* deepspeed_config.deepspeed_* "
     "deepspeed_config.zero3_* deepspeed_config.gradient_clipping "
     "parallelism_config.parallelism_config_dp_shard_size "},
};

}  // namespace

bool IsHarmless(Target target, std::string_view key) {
  return std::ranges::any_of(kHarmless, [&](const HarmlessRow& row) {
    if ((row.targets & target) == 0) return false;
    std::string_view names = row.names;
    while (!names.empty()) {
      std::string_view name = names.substr(0, names.find(' '));
      names.remove_prefix(std::min(name.size() + 1, names.size()));
      const bool front = name.ends_with('*');
      if (front) name.remove_suffix(1);
      if (!name.empty() && (front ? key.starts_with(name) : key == name)) return true;
    }
    return false;
  });
}

}  // namespace orrery::exchange
