// SPDX-License-Identifier: Apache-2.0
// Megatron's rules of the mapping, and what all rules share.
#include "model/exchange/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/plain_text.h"
#include "model/exchange/fields.h"
#include "model/plan/lower/names.h"

namespace orrery::exchange {
namespace {

constexpr int64_t kMostChunks = 4096;

[[noreturn]] void RefuseLayout(const Setting& setting, const std::string& why) {
  throw InputError({{setting.where, fmt::format("{} '{}': {}", setting.key, setting.value, why),
                     "stages between |, E for the embedding, t for a layer, L for the loss: "
                     "Et*3|t*4|tttL"}});
}

// Megatron Core: (ab|)*3 repeats a group, x*3 a letter; commas mean nothing.
std::string Unrolled(const Setting& setting) {
  std::string text, out;
  std::ranges::copy_if(setting.value, std::back_inserter(text),
                       [](char c) { return c != ',' && c != ' ' && c != '\'' && c != '"'; });
  std::string last;  // what a repetition repeats
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '(') {
      const std::size_t end = text.find(')', at);
      if (end == std::string::npos) RefuseLayout(setting, "a bracket is never closed");
      last = text.substr(at + 1, end - at - 1);
      at = end + 1;
      out += last;
      continue;
    }
    if (text[at] != '*') {
      last = text.substr(at++, 1);
      out += last;
      continue;
    }
    std::size_t end = ++at;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
    int64_t times = 0;
    if (last.empty() ||
        ParseInteger(std::string_view(text).substr(at, end - at), &times) != NumberFault::kNone ||
        times < 1 || times > kMostChunks)
      RefuseLayout(setting, "'*' stands between a stage or letter and a number");
    for (int64_t i = 1; i < times && out.size() < 64 * kMostChunks; ++i) out += last;
    last.clear();
    at = end;
  }
  return out;
}

}  // namespace

int64_t NumberOf(const Values& values, const char* field, int64_t missing) {
  const auto at = values.find(field);
  int64_t number = 0;
  if (at == values.end() || ParseInteger(at->second.text, &number) != NumberFault::kNone ||
      number < 1)
    return missing;
  return number;
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

std::string MegatronLayout(const std::vector<int>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (i > 0) text += '|';
    if (i == 0) text += 'E';
    if (layers[i] > 0) text += layers[i] > 1 ? fmt::format("t*{}", layers[i]) : "t";
    if (i + 1 == layers.size()) text += 'L';
  }
  return text;
}

std::vector<int> LayersOfMegatronLayout(const Setting& setting) {
  std::vector<int> layers = {0};
  for (const char letter : Unrolled(setting)) {
    if (letter == '|') {
      layers.push_back(0);
      if (layers.size() > kMostChunks) RefuseLayout(setting, "more than 4096 stages");
    } else if (letter == 't') {
      ++layers.back();
    } else if (letter == 'm') {
      RefuseLayout(setting, "layers for multi-token prediction (m) are not modelled");
    } else if (letter != 'E' && letter != 'L') {
      RefuseLayout(setting, fmt::format("'{}' is no layer", letter));
    }
  }
  return layers;
}

std::string ListText(const std::vector<int>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i;
    while (end < layers.size() && layers[end] == layers[i]) ++end;
    text += text.empty() ? "" : ",";
    text += end - i == 1 ? Text(layers[i]) : fmt::format("{}x{}", end - i, layers[i]);
    i = end;
  }
  return text;
}

Cell MegatronVirtualStages() {
  return Rule(
      [](const Case& c) {
        if (c.strategy.vpp == 1) return Default("one chunk per stage");
        if (!EvenStages(c)) return Written{Status::kFollows, {}, "pipeline-model-parallel-layout"};
        return Say({Set("num-virtual-stages-per-pipeline-rank", c.strategy.vpp)});
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const int64_t pp = NumberOf(values, "pp", 1);
        if (const auto count = settings.Whole("num-virtual-stages-per-pipeline-rank", 1))
          return From(settings.Find("num-virtual-stages-per-pipeline-rank"), Text(*count));
        if (const auto per = settings.Whole("num-layers-per-virtual-pipeline-stage", 1)) {
          const Setting* setting = settings.Find("num-layers-per-virtual-pipeline-stage");
          const auto layers = settings.Whole("num-layers", 1);
          if (!layers || *layers % (pp * *per) != 0)
            throw InputError(
                {{setting->where,
                  fmt::format("{} layers per virtual stage do not divide num-layers by {} stages",
                              *per, pp),
                  "num-layers = stages x chunks x layers per chunk"}});
          return From(setting, Text(*layers / pp / *per));
        }
        if (const Setting* layout = settings.Find("pipeline-model-parallel-layout")) {
          const auto chunks = static_cast<int64_t>(LayersOfMegatronLayout(*layout).size());
          if (chunks % pp != 0)
            RefuseLayout(*layout, fmt::format("{} stages for pp {}", chunks, pp));
          return From(layout, Text(chunks / pp));
        }
        return Value{"1", {}, ""};
      });
}

Cell MegatronUnevenStages(const char* key) {
  return Rule(
      [key](const Case& c) {
        if (EvenStages(c)) return Default("equal stages");
        return Say({Set(key, MegatronLayout(LayersByChunk(c)))});
      },
      [key](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        if (const Setting* layout = settings.Find(key))
          return From(layout, ListText(LayersOfMegatronLayout(*layout)));
        const Setting* first = settings.Find("decoder-first-pipeline-num-layers");
        const Setting* last = settings.Find("decoder-last-pipeline-num-layers");
        if (first == nullptr && last == nullptr) return Value{"even", {}, ""};
        const int64_t pp = NumberOf(values, "pp", 1);
        const int64_t all = settings.Whole("num-layers", 1).value_or(0);
        const int64_t ends = (first != nullptr ? 1 : 0) + (last != nullptr ? 1 : 0);
        const int64_t head = settings.Whole("decoder-first-pipeline-num-layers").value_or(0);
        const int64_t tail = settings.Whole("decoder-last-pipeline-num-layers").value_or(0);
        const int64_t rest = all - head - tail;
        if (pp <= ends || rest % (pp - ends) != 0 || rest < 0)
          throw InputError(
              {{(first != nullptr ? first : last)->where,
                fmt::format("{} layers do not make up {} stages with these ends", all, pp),
                "the stages between them hold equal numbers of layers"}});
        std::vector<int> layers(static_cast<std::size_t>(pp), static_cast<int>(rest / (pp - ends)));
        if (first != nullptr) layers.front() = static_cast<int>(head);
        if (last != nullptr) layers.back() = static_cast<int>(tail);
        return From(first != nullptr ? first : last, ListText(layers));
      });
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
        if (backend == nullptr || backend->value == "auto") return std::nullopt;
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
        return Say({Set(on, value)});
      },
      [on](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* setting = settings.Find(on);
        if (setting == nullptr) return Value{"off", {}, ""};
        return From(setting, OnOff(setting->value != "false"));
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
        return Say(
            {Set("seq-length", c.work.seq_len),
             Set("max-position-embeddings", std::max(c.model.max_positions, c.work.seq_len))});
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* length = settings.Find("seq-length");
        if (length == nullptr) length = settings.Find("encoder-seq-length");
        return length == nullptr ? std::nullopt : From(length, length->value);
      });
}

// Weights in 8 bits. MXFP8's gathers move 16 bits, into the gradients' buffer: the framework asks for a flag of its own.
Cell MegatronHeldWeights(bool bridge) {
  static constexpr const char* kFlag = "fp8-param-gather";
  static constexpr const char* kReuse = "reuse-grad-buf-for-mxfp8-param-ag";
  static constexpr const char* kGather = "ddp.fp8_param_gather";
  return Rule(
      [bridge](const Case& c) {
        const bool on = c.strategy.fp8_weights, sixteen = !GathersCodes(c.work.fp8);
        if (!bridge && !on) return Default("");
        Settings settings;
        if (bridge) {
          const char* const value = on ? "true" : "false";
          settings = {Set("model.fp8_param", value), Set(kGather, value)};
          if (on && sixteen)
            settings.push_back(Set("ddp.reuse_grad_buf_for_mxfp8_param_ag", "true"));
          return Say(std::move(settings));
        }
        settings = {Set(kFlag, "")};
        if (sixteen) settings.push_back(Set(kReuse, ""));
        return Say(std::move(settings));
      },
      [bridge](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        if (bridge) {
          (void)settings.Find("model.fp8_param");
          (void)settings.Find("ddp.reuse_grad_buf_for_mxfp8_param_ag");
          const Setting* gather = settings.Find(kGather);
          if (gather == nullptr) return std::nullopt;
          return From(gather, gather->value == "true" ? "on" : "off");
        }
        (void)settings.Find(kReuse);
        const Setting* flag = settings.Find(kFlag);
        if (flag == nullptr) return Value{"off", {}, ""};
        return From(flag, flag->value == "false" ? "off" : "on");
      });
}

}  // namespace orrery::exchange
