// SPDX-License-Identifier: Apache-2.0
// NeMo 1's overrides (examples/nlp/language_modeling/megatron_gpt_pretraining.py, conf/megatron_gpt_config.yaml at v2.0.0) as
// Megatron's arguments, which its model hands to Megatron Core.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "model/exchange/command_settings.h"
#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

struct NemoRow {
  std::string_view key;
  const char* argument;
  // What the argument is: a value, a switch of what is on, a switch of what is off.
  enum class Kind { kValue, kOn, kOff } kind = Kind::kValue;
};
constexpr NemoRow::Kind kOn = NemoRow::Kind::kOn, kNot = NemoRow::Kind::kOff;
constexpr NemoRow kNemo[] = {
    {"trainer.num_nodes", "NNODES"},
    {"trainer.devices", "GPUS_PER_NODE"},
    {"trainer.gradient_clip_val", "clip-grad"},
    {"trainer.max_steps", "train-iters"},
    {"model.micro_batch_size", "micro-batch-size"},
    {"model.global_batch_size", "global-batch-size"},
    {"model.rampup_batch_size", "rampup-batch-size"},
    {"model.tensor_model_parallel_size", "tensor-model-parallel-size"},
    {"model.pipeline_model_parallel_size", "pipeline-model-parallel-size"},
    {"model.virtual_pipeline_model_parallel_size", "num-virtual-stages-per-pipeline-rank"},
    {"model.context_parallel_size", "context-parallel-size"},
    {"model.expert_model_parallel_size", "expert-model-parallel-size"},
    {"model.num_moe_experts", "num-experts"},
    {"model.encoder_seq_length", "seq-length"},
    {"model.data.seq_length", "seq-length"},
    {"model.max_position_embeddings", "max-position-embeddings"},
    {"model.num_layers", "num-layers"},
    {"model.hidden_size", "hidden-size"},
    {"model.ffn_hidden_size", "ffn-hidden-size"},
    {"model.num_attention_heads", "num-attention-heads"},
    {"model.num_query_groups", "num-query-groups"},
    {"model.kv_channels", "kv-channels"},
    {"model.hidden_dropout", "hidden-dropout"},
    {"model.attention_dropout", "attention-dropout"},
    {"model.layernorm_epsilon", "norm-epsilon"},
    {"model.make_vocab_size_divisible_by", "make-vocab-size-divisible-by"},
    {"model.position_embedding_type", "position-embedding-type"},
    {"model.rotary_percentage", "rotary-percent"},
    {"model.rotary_base", "rotary-base"},
    {"model.seq_len_interpolation_factor", "rotary-seq-len-interpolation-factor"},
    {"model.activations_checkpoint_granularity", "recompute-granularity"},
    {"model.activations_checkpoint_method", "recompute-method"},
    {"model.activations_checkpoint_num_layers", "recompute-num-layers"},
    {"model.seed", "seed"},
    {"model.optim.lr", "lr"},
    {"model.optim.weight_decay", "weight-decay"},
    {"model.sequence_parallel", "sequence-parallel", kOn},
    {"model.qk_layernorm", "qk-layernorm", kOn},
    {"model.ub_tp_comm_overlap", "tp-comm-overlap", kOn},
    {"model.fp8_params", "fp8-param-gather", kOn},
    {"model.use_flash_attention", "use-flash-attn", kOn},
    {"model.optim.overlap_grad_sync", "overlap-grad-reduce", kOn},
    {"model.optim.overlap_param_sync", "overlap-param-gather", kOn},
    {"model.bias", "disable-bias-linear", kNot},
    {"model.share_embeddings_and_output_weights", "untie-embeddings-and-output-weights", kNot},
    {"model.bias_dropout_add_fusion", "no-bias-dropout-fusion", kNot},
    {"model.apply_rope_fusion", "no-rope-fusion", kNot},
};

// What it has and an import of it does not.
constexpr std::pair<std::string_view, const char*> kNotRead[] = {
    {"model.peft.peft_scheme", "adapters of NeMo 1 are not read: give --lora-rank and --framework"},
    {"model.fsdp", "FSDP of NeMo 1 is not modelled"},
    {"model.cpu_offloading", "offloading of NeMo 1 is not read: give --offload"},
    {"model.optim.sharded", "another optimizer of NeMo 1 is not modelled"},
};

bool True(const std::string& value) {
  return value == "True" || value == "true" || value == "TRUE" || value == "1";
}
std::string Unquoted(std::string text) {
  std::erase_if(text, [](char c) { return c == '\'' || c == '"'; });
  return text;
}

// Choices by words of its own. False: none of them.
bool TakeWords(const Setting& setting, Settings* settings) {
  const auto add = [&](const char* key, const char* value) {
    settings->push_back({key, value, setting.where, "", true, setting.key});
    return true;
  };
  const std::string& value = setting.value;
  if (setting.key == "trainer.precision" || setting.key == "model.precision") {
    if (value.starts_with("bf16")) return add("bf16", "");
    if (value.starts_with("16")) return add("fp16", "");
    return value.starts_with("32");
  }
  if (setting.key == "model.normalization") {
    if (value == "rmsnorm") return add("normalization", "RMSNorm");
    return value.starts_with("layernorm") || value == "low_precision_layernorm" ||
           add("normalization", value.c_str());
  }
  if (setting.key == "model.activation") {
    const std::string name = value.starts_with("fast-") ? value.substr(5) : value;
    if (name == "swiglu") return add("swiglu", "");
    if (name == "geglu" || name == "reglu") return add("glu-activation", name.c_str());
    if (name == "squared-relu") return add("squared-relu", "");
    if (name == "gelu") return true;
    throw InputError({{setting.where, fmt::format("{} '{}' is not modelled", setting.key, value),
                       "known: gelu, geglu, reglu, swiglu, squared-relu"}});
  }
  if (setting.key == "model.optim.name") {
    if (value == "distributed_fused_adam" || value == "mcore_distributed_optim")
      return add("use-distributed-optimizer", "");
    return value == "fused_adam" || value == "adamw" || value == "adam" ||
           add("optimizer", value.c_str());
  }
  if (setting.key == "model.fp8_hybrid" || setting.key == "model.fp8_e4m3")
    return !True(value) || add("fp8-format", setting.key.ends_with("hybrid") ? "hybrid" : "e4m3");
  return setting.key == "model.fp8";
}

}  // namespace

bool IsNemo(const Settings& settings) {
  const auto starts = [&](std::string_view part) {
    return std::ranges::any_of(
        settings, [&](const Setting& setting) { return setting.key.starts_with(part); });
  };
  return starts("model.micro_batch_size") || starts("model.activations_checkpoint_") ||
         starts("model.encoder_seq_length") ||
         (starts("trainer.") && starts("model.tensor_model_parallel_size"));
}

Settings ArgumentsOfNemo(const Settings& overrides, std::vector<std::string>* notes) {
  Settings settings;
  for (Setting setting : overrides) {
    setting.value = Unquoted(setting.value);
    const bool none =
        setting.unresolved.empty() && (setting.value == "null" || setting.value == "None");
    const bool off = Off(setting.value);
    const auto unread = std::ranges::find(kNotRead, setting.key,
                                          [](const auto& row) { return std::string(row.first); });
    if (unread != std::end(kNotRead) && !off)
      throw InputError(
          {{setting.where, fmt::format("{} {}: {}", setting.key, setting.value, unread->second),
            ""}});
    if (none || TakeWords(setting, &settings)) continue;
    const auto row = std::ranges::find(kNemo, setting.key,
                                       [](const NemoRow& one) { return std::string(one.key); });
    if (row == std::end(kNemo)) {
      settings.push_back(std::move(setting));
      continue;
    }
    if (row->kind != NemoRow::Kind::kValue) {
      const bool on = True(setting.value);
      if (on != (row->kind == NemoRow::Kind::kOn) && setting.unresolved.empty()) continue;
      setting.value.clear();
    }
    setting.said = setting.key;
    setting.key = row->argument;
    settings.push_back(setting);
    if (setting.key == "num-query-groups") {
      setting.key = "group-query-attention";
      setting.value.clear();
      settings.push_back(std::move(setting));
    }
  }
  const auto half = std::ranges::find(overrides, "model.megatron_amp_O2", &Setting::key);
  if (half != overrides.end() && Off(half->value))
    notes->push_back(fmt::format(
        "{}: not modelled: weights in fp32 under autocast (model.megatron_amp_O2); the prediction "
        "is without",
        Place(half->where)));
  if (!overrides.empty())
    notes->push_back(fmt::format(
        "{}: NeMo 1's own configuration (--config-name, a file of Hydra) is not read: what this "
        "command does not say is taken as Megatron-LM's default",
        Place(overrides.front().where)));
  return settings;
}

}  // namespace orrery::exchange
