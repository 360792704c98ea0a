// SPDX-License-Identifier: Apache-2.0
// Recomputation as Megatron and torchtitan spell it.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "model/exchange/rules.h"
#include "model/exchange/spellings.h"
#include "model/plan/lower/names.h"

namespace orrery::exchange {
namespace {

// Of layers that no plan has. `refused`: Megatron does not start with it where the model has none of them (core/transformer/
// transformer_config.py, __post_init__).
struct OtherModule {
  const char *name, *layers;
  bool refused = false;
};
constexpr const char* kOfExperts = "experts";
constexpr const char* kOfLatent = "latent attention";
constexpr const char* kOfLinear = "linear attention";
constexpr OtherModule kModulesOfOtherLayers[] = {
    {"moe_act", kOfExperts, true},    {"moe", kOfExperts},
    {"shared_experts", kOfExperts},   {"mla_up_proj", kOfLatent, true},
    {"mhc", "hyper-connections"},     {"gdn_norm_out", kOfLinear, true},
    {"gdp_in_proj", kOfLinear, true}, {"gdp_qkv", kOfLinear, true}};

const OtherModule* OtherModuleOf(std::string_view name) {
  const auto at = std::ranges::find(kModulesOfOtherLayers, name,
                                    [](const OtherModule& one) { return one.name; });
  return at == std::end(kModulesOfOtherLayers) ? nullptr : at;
}

struct RecomputeKeys {
  std::string granularity, method, layers, modules;
};

RecomputeKeys RecomputeKeysOf(bool bridge) {
  if (!bridge)
    return {"recompute-granularity", "recompute-method", "recompute-num-layers",
            "recompute-modules"};
  return {"model.recompute_granularity", "model.recompute_method", "model.recompute_num_layers",
          "model.recompute_modules"};
}

Written WriteModuleList(const Case& c, const RecomputeKeys& keys, bool bridge) {
  const unsigned char modules = c.strategy.recompute.modules;
  if ((modules & kRecomputeActivation) != 0)
    return No("has no module for the activation of a dense MLP (mlp_act)");
  if ((modules & (kRecomputeKeys | kRecomputeOut | kRecomputeUp)) != 0)
    return No("has no modules for single products (key_proj, attn_proj, mlp_up)");
  if ((modules & kRecomputeNorms) != 0 && c.work.fp8 == Fp8::kDelayed)
    return No("refuses layernorm among the modules with delayed scales");
  std::string list;
  for (const auto& [name, module] : kRecomputeModuleNames) {
    if ((modules & module) != 0)
      list += fmt::format("{}{}", list.empty() ? "" : bridge ? ", " : " ", name);
  }
  return Say({Set(keys.granularity, "selective"),
              Set(keys.modules, bridge ? fmt::format("[{}]", list) : list)});
}

Written WriteRecomputation(const Case& c, bool bridge) {
  const RecomputeKeys keys = RecomputeKeysOf(bridge);
  const Recompute& r = c.strategy.recompute;
  if (r == Recompute::kNone)
    return bridge ? Say({Set(keys.granularity, "null")}) : Default("default");
  if (r.every > 1) return No("chooses layers from the front of each chunk alone");
  if (r.modules != kRecomputeLayer)
    return r.first > 0 ? No("recomputes modules in all layers alone")
                       : WriteModuleList(c, keys, bridge);
  const bool some = r.first > 0;
  return Say({Set(keys.granularity, "full"), Set(keys.method, some ? "block" : "uniform"),
              Set(keys.layers, some ? r.first : 1)});
}

std::string ReadModuleList(const SettingIndex& settings, const RecomputeKeys& keys) {
  const Setting* list = settings.Find(keys.modules);
  if (list == nullptr) return "selective";
  Recompute recompute;
  for (const std::string& word : WordsOf(list->value)) {
    if (OtherModuleOf(word) != nullptr) continue;  // OtherModulesNote() names it
    const std::optional<Recompute> one = ReadRecompute(word);
    constexpr unsigned kModules = kRecomputeCoreAttention | kRecomputeNorms | kRecomputeMlp;
    if (!one || word == "selective" || (one->modules & ~kModules) != 0) {
      throw InputError(
          {{list->where, fmt::format("{}: there is no module '{}'", list->key, word),
            fmt::format("core_attn, layernorm, mlp; whole layers: {} full", keys.granularity)}});
    }
    recompute.modules |= one->modules;
  }
  return RecomputeText(recompute);
}

std::optional<Value> ReadRecomputation(const SettingIndex& settings, bool bridge) {
  const RecomputeKeys keys = RecomputeKeysOf(bridge);
  const Setting* granularity = settings.Find(keys.granularity);
  const auto said = [&](const std::string& key) {
    const Setting* setting = settings.Find(key);
    return setting != nullptr && Off(setting->value) ? nullptr : setting;
  };
  if (granularity == nullptr || Off(granularity->value)) {
    (void)settings.Find(keys.method), (void)settings.Find(keys.layers);
    (void)settings.Find(keys.modules);
    return Value{"none", {}, ""};
  }
  const Setting* method = said(keys.method);
  if (granularity->value == "selective") {
    if (method != nullptr)
      throw InputError(
          {{method->where,
            fmt::format("{} {} next to {} selective", method->key, method->value, granularity->key),
            "Megatron recomputes modules in all layers; omit it, or the granularity "
            "full"}});
    return From(granularity, ReadModuleList(settings, keys));
  }
  const auto layers = said(keys.layers) == nullptr ? std::nullopt : settings.Whole(keys.layers, 0);
  if (granularity->value != "full") {
    throw InputError({{granularity->where,
                       fmt::format("{} '{}' is no known choice of recompute", granularity->key,
                                   granularity->value),
                       "known: selective, full"}});
  }
  if (method == nullptr || method->value == "uniform") return From(granularity, "full");
  if (method->value != "block") {
    throw InputError(
        {{method->where,
          fmt::format("{} '{}' is no known choice of recompute", method->key, method->value),
          "known: uniform, block"}});
  }
  if (!layers) return From(granularity, "full");
  return From(granularity, *layers == 0 ? "none" : fmt::format("full:{}", *layers));
}

}  // namespace

Cell MegatronRecompute(bool bridge) {
  return Rule([bridge](const Case& c) { return WriteRecomputation(c, bridge); },
              [bridge](const SettingIndex& settings, const Values&) {
                return ReadRecomputation(settings, bridge);
              });
}

Cell TomlRecompute() {
  constexpr const char* kMode = "activation_checkpoint.mode";
  constexpr const char* kOption = "activation_checkpoint.selective_ac_option";
  return Rule(
      [](const Case& c) {
        const Recompute& r = c.strategy.recompute;
        const std::string text = RecomputeText({r.modules});
        if (r.first > 0) return No("chooses each so-many-th layer, or all");
        if (r.modules == kRecomputeLayer && r.every > 1)
          return Say({Set(kMode, "selective"), Set(kOption, Text(r.every))});
        if (r.every > 1) return No("chooses whole layers by number alone");
        if (text == "none" || text == "full") return Say({Set(kMode, text)});
        if (text == "op") return Say({Set(kMode, "selective"), Set(kOption, "op")});
        if (r.modules != (kRecomputeNorms | kRecomputeActivation))
          return No("recomputes what its list of operations leaves: op");
        return Written{Status::kNear,
                       {Set(kMode, "selective"), Set(kOption, "op")},
                       "also repeats key_proj, attn_proj and mlp_up"};
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* mode = settings.Find(kMode);
        const Setting* option = settings.Find(kOption);
        const std::string value = mode == nullptr ? "selective" : mode->value;
        if (value == "none" || value == "full") return From(mode, value);
        if (value != "selective") {
          throw InputError(
              {{mode->where,
                fmt::format("{} '{}' is no known choice of recompute", mode->key, value),
                "known: none, selective, full"}});
        }
        if (option == nullptr)  // torchtitan's own choice
          return mode != nullptr ? From(mode, "full/2") : Value{"full/2", {}, ""};
        if (option->value == "op") return From(option, "op");
        const std::optional<Recompute> read = ReadRecompute("full/" + option->value);
        if (!read) {
          throw InputError(
              {{option->where,
                fmt::format("{} '{}' is neither op nor a number", option->key, option->value),
                "a number: each so-many-th layer is recomputed"}});
        }
        return From(option, RecomputeText(*read));
      });
}

std::string OtherModulesNote(const SettingIndex& settings, bool bridge) {
  const RecomputeKeys keys = RecomputeKeysOf(bridge);
  if (settings.Peek(keys.granularity) != "selective") return "";
  const Setting* list = settings.Find(keys.modules);
  if (list == nullptr) return "";
  std::string note;
  for (const std::string& word : WordsOf(list->value)) {
    const OtherModule* const other = OtherModuleOf(word);
    if (other == nullptr) continue;
    note += fmt::format("{}{} (of layers with {}{})", note.empty() ? "" : ", ", word, other->layers,
                        other->refused ? ", without which Megatron refuses it" : "");
  }
  return note.empty() ? ""
                      : fmt::format("{}: {}: the model has no layers for {}", Place(list->where),
                                    list->key, note);
}

}  // namespace orrery::exchange
