// SPDX-License-Identifier: Apache-2.0
// Megatron's rules of the mapping, and what all rules share.
#include "model/exchange/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/plain_text.h"
#include "model/exchange/fields.h"
#include "model/exchange/spellings.h"
#include "model/plan/lower/names.h"

namespace orrery::exchange {
int64_t NumberOf(const Values& values, const char* field, int64_t missing) {
  const auto at = values.find(field);
  int64_t number = 0;
  if (at == values.end() || ParseInteger(at->second.text, &number) != NumberFault::kNone ||
      number < 1)
    return missing;
  return number;
}

std::optional<int64_t> ReplicasOf(const SettingIndex& settings, const Values& values) {
  const auto nodes = settings.Whole("NNODES", 1), gpus = settings.Whole("GPUS_PER_NODE", 1);
  const auto all = nodes && gpus ? std::optional(*nodes * *gpus) : settings.Whole("WORLD", 1);
  const int64_t ranks = ModelRanks(values);
  return all && *all % ranks == 0 ? std::optional(*all / ranks) : std::nullopt;
}

Written Say(Settings settings) { return {Status::kWritten, std::move(settings), ""}; }
Written No(std::string why) { return {Status::kNotExpressed, {}, std::move(why)}; }
Written Default(std::string why) { return {Status::kFixed, {}, std::move(why)}; }
Setting Set(std::string key, std::string value) {
  return {std::move(key), std::move(value), {}, ""};
}
Setting Set(std::string key, int64_t value) { return {std::move(key), Text(value), {}, ""}; }
std::optional<Value> From(const Setting* setting, std::string text) {
  return Value{std::move(text), setting->where, setting->key};
}

Cell MegatronGradType() {
  return Rule(
      [](const Case& c) {
        const bool bf16 = c.work.precision == Precision::kBf16;
        if (c.strategy.fp32_grads) return Say({Set("accumulate-allreduce-grads-in-fp32", "")});
        return bf16 ? Say({Set("grad-reduce-in-bf16", "")}) : Default("fp16");
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* whole = settings.Find("accumulate-allreduce-grads-in-fp32");
        const Setting* half = settings.Find("grad-reduce-in-bf16");
        if (whole != nullptr && half != nullptr)
          throw InputError({{half->where,
                             fmt::format("grad-reduce-in-bf16 contradicts "
                                         "accumulate-allreduce-grads-in-fp32 in {}",
                                         Place(whole->where)),
                             "keep one of them"}});
        if (whole != nullptr) return From(whole, "on");
        if (half != nullptr) return From(half, "off");
        // Megatron's arguments.py: bf16 runs accumulate in fp32 unless told otherwise.
        return Value{OnOff(settings.Has("bf16")), {}, ""};
      });
}

// One micro-batch per replica where no argument says a batch (training/arguments.py: validate_args).
Cell MegatronBatch() {
  constexpr const char* kKey = "global-batch-size";
  return Rule([](const Case& c) { return Say({Set(kKey, c.work.global_batch)}); },
              [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
                if (const Setting* batch = settings.Find(kKey)) return From(batch, batch->value);
                const auto replicas = ReplicasOf(settings, values);
                const int64_t micro = NumberOf(values, "micro_batch", 0);
                if (!replicas || micro == 0) return std::nullopt;
                return Value{Text(micro * *replicas), {}, ""};
              });
}

std::optional<OpenBatch> MegatronOpenBatch(const SettingIndex& settings, const Values& values) {
  const Setting* micro = settings.Find("micro-batch-size");
  if (values.contains("global_batch") || micro == nullptr) return std::nullopt;
  return OpenBatch{micro->where,
                   fmt::format("micro-batch-size {} x data-parallel ranks is the global batch "
                               "(without --global-batch-size), and nothing says how many GPUs "
                               "there are",
                               micro->value),
                   "--nodes N, or --global-batch N"};
}

Cell MegatronAttention(const char* key) {
  return Rule(
      [key](const Case& c) {
        if (!c.strategy.flash_attention) return Say({Set(key, "unfused")});
        return Say({Set(key, AttentionKernelOf(c).starts_with("cudnn") ? "fused" : "flash")});
      },
      [key](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* backend = settings.Find(key);
        // That it is fused, not by which kernel: TransformerEngine decides on those.
        const Setting* old = settings.Find("use-flash-attn");
        if (backend == nullptr && old != nullptr) return From(old, "on");
        // Its own layers compute scores (core/transformer/dot_product_attention.py, legacy/model/transformer.py: CoreAttention).
        const Setting* before = settings.Find(kBeforeFlash);
        const bool automatic = backend == nullptr || backend->value == "auto";
        if (automatic && settings.Peek("transformer-impl") == "local")
          return From(settings.Find("transformer-impl"), "off");
        if (backend == nullptr && before != nullptr) return From(before, "off");
        if (automatic) return std::nullopt;
        if (backend->value == "flash" || backend->value == "fused") return From(backend, "on");
        if (backend->value == "unfused" || backend->value == "local") return From(backend, "off");
        throw InputError({{backend->where,
                           fmt::format("{} '{}' is no known choice", backend->key, backend->value),
                           "known: flash, fused, unfused, local, auto"}});
      });
}

Cell MegatronOverlap(const char* key) {
  return Rule(
      [](const Case& c) {
        const bool in_backward = c.strategy.reduce_in_backward || c.strategy.zero >= 2;
        if (c.strategy.overlap_grad_reduce == in_backward)
          return Written{Status::kFollows, {}, "reduce_in_backward"};
        return No(in_backward ? "reduces on a stream of its own in the backward pass"
                              : "computes nothing while it reduces after the backward pass");
      },
      [key](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const Setting* setting = settings.Find(key);
        if (setting != nullptr) return From(setting, OnOff(setting->value != "false"));
        const auto zero = values.find("zero");
        const bool sharded = zero != values.end() && zero->second.text >= "2";
        return Value{OnOff(sharded), {}, ""};
      });
}

Cell MegatronGather(const char* on, const char* value) {
  return Rule(
      [on, value](const Case& c) {
        const bool shows = *value != '\0';
        if (!c.strategy.overlap_param_gather)
          return shows ? Say({Set(on, "false")}) : Default("gathers after the step");
        if (c.strategy.zero == 1 && !c.strategy.reduce_in_backward)
          return No("asserts --overlap-grad-reduce, which is off");
        Settings settings = {Set(on, value)};
        // It asserts this of its FSDP, too, whose reductions are beside the backward pass in any case.
        if (c.strategy.zero >= 2)
          settings.push_back(Set(shows ? "ddp.overlap_grad_reduce" : "overlap-grad-reduce", value));
        return Say(settings);
      },
      [on](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* setting = settings.Find(on);
        if (setting != nullptr) return From(setting, OnOff(setting->value != "false"));
        // PyTorch's fully_shard prefetches by itself.
        const Setting* torch = settings.Find("use-torch-fsdp2");
        return torch != nullptr ? From(torch, "on") : Value{"off", {}, ""};
      });
}

Cell MegatronScatterGather() {
  constexpr const char* kKey = "scatter-gather-tensors-in-pipeline";
  return Rule(
      [](const Case& c) {
        return c.strategy.scatter_gather ? No("core 0.20 sends whole tensors between stages")
                                         : Default("sends whole tensors between stages");
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        settings.Find(std::string("no-") + kKey);
        const Setting* on = settings.Find(kKey);  // in dumps of older releases
        return on != nullptr ? From(on, "on") : Value{"off", {}, ""};
      });
}

Cell MegatronLengths() {
  return Rule(
      [](const Case& c) {
        Settings said = {
            Set("seq-length", c.work.seq_len),
            Set("max-position-embeddings", std::max(c.model.max_positions, c.work.seq_len))};
        // Both stacks of a plan see as many tokens. pretrain_t5.py asserts that there is a length of the decoder.
        if (c.model.family == Family::kEncoderDecoder)
          said.push_back(Set("decoder-seq-length", c.work.seq_len));
        return Say(std::move(said));
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* length = settings.Find("seq-length");
        if (length == nullptr) length = settings.Find("encoder-seq-length");
        if (length != nullptr && settings.Peek("decoder-seq-length") == length->value)
          (void)settings.Find("decoder-seq-length");
        return length == nullptr ? std::nullopt : From(length, length->value);
      });
}

// Weights in 8 bits. MXFP8's gathers move 16 bits, into the gradients' buffer: the framework asks for a flag of its own.
Cell MegatronHeldWeights() {
  static constexpr const char* kFlag = "fp8-param-gather";
  static constexpr const char* kReuse = "reuse-grad-buf-for-mxfp8-param-ag";
  return Rule(
      [](const Case& c) {
        if (!c.strategy.fp8_weights) return Default("");
        Settings settings = {Set(kFlag, "")};
        if (!GathersCodes(c.work.fp8)) settings.push_back(Set(kReuse, ""));
        return Say(std::move(settings));
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        (void)settings.Find(kReuse);
        const Setting* flag = settings.Find(kFlag);
        if (flag == nullptr) return Value{"off", {}, ""};
        return From(flag, flag->value == "false" ? "off" : "on");
      });
}

}  // namespace orrery::exchange
