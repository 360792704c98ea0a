// SPDX-License-Identifier: Apache-2.0
// Products in 8 and 4 bits as the files of other programs spell them.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "model/exchange/rules.h"
#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

std::string Text(const SkippedLayers& skip) { return fmt::format("{},{}", skip.first, skip.last); }

// Configurations of Megatron-Bridge 0.7.0 by their names (training/mixed_precision.py). Those of fp16 are the same.
struct NamedRecipe {
  std::string_view name;
  const char* fp8;
  SkippedLayers skip;
  bool held;  // weights, in 8 bits
};
constexpr NamedRecipe kNamed[] = {
    {"bf16_with_fp8_delayed_scaling_mixed", "delayed", {}, true},
    {"bf16_with_fp8_current_scaling_mixed", "current", {1, 1}, true},
    {"bf16_with_fp8_subchannel_scaling_mixed", "blockwise", {}, false},
    {"bf16_with_mxfp8_mixed", "mxfp8", {}, true},
    {"bf16_with_nvfp4_mixed", "nvfp4", {}, false},
    {"nemotron_h_bf16_with_fp8_current_scaling_mixed", "current", {2, 2}, true},
    {"nanov2_bf16_with_fp8_current_scaling_mixed", "blockwise", {2, 2}, true},
};
constexpr char kMixed[] = "mixed_precision";

// And its 16 bits; null: none of these.
std::pair<const NamedRecipe*, const char*> NamedIn(const SettingIndex& settings) {
  std::string name = settings.Peek(kMixed);
  std::ranges::replace(name, '-', '_');
  const bool fp16 = name.starts_with("fp16_with");
  if (fp16) name.replace(0, 4, "bf16");
  const auto at = std::ranges::find(kNamed, name, &NamedRecipe::name);
  if (at == std::end(kNamed)) return {nullptr, ""};
  return {at, fp16 ? "fp16" : "bf16"};
}

// A recipe of TransformerEngine, by Megatron's names; the plan's own are those of Fp8.
struct RecipeRow {
  const char* own;
  const char* format;
  const char* name;
};
constexpr RecipeRow kRecipes[] = {{"delayed", "hybrid", "delayed"},
                                  {"current", "hybrid", "tensorwise"},
                                  {"blockwise", "e4m3", "blockwise"},
                                  {"mxfp8", "e4m3", "mxfp8"}};

// `missing`: the recipe where none is named.
Cell Recipes(const std::string& fp8, const std::string& fp8_recipe, const std::string& fp4,
             const std::string& fp4_recipe, const char* missing) {
  return Rule(
      [=](const Case& c) {
        const char* const own = NameIn(kFp8Names, c.work.fp8);
        for (const RecipeRow& row : kRecipes) {
          if (std::string_view(row.own) == own)
            return Say({Set(fp8, row.format), Set(fp8_recipe, row.name)});
        }
        return Say({Set(fp4, "e2m1"), Set(fp4_recipe, "nvfp4")});
      },
      [=](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        if (const auto [named, half] = NamedIn(settings); named != nullptr)
          return From(settings.Find(kMixed), named->fp8);
        const Setting *format = settings.Find(fp8), *recipe = settings.Find(fp8_recipe);
        const Setting* four = settings.Find(fp4);
        settings.Find(fp4_recipe);
        if (four != nullptr) return From(four, "nvfp4");
        if (format == nullptr) return std::nullopt;
        if (recipe == nullptr) return From(format, missing);
        std::vector<std::string> known;
        for (const RecipeRow& row : kRecipes) {
          if (recipe->value == row.name) return From(recipe, row.own);
          known.emplace_back(row.name);
        }
        throw InputError({{recipe->where, fmt::format("unknown {} '{}'", fp8_recipe, recipe->value),
                           SuggestName(recipe->value, known)}});
      });
}

// Layers in 16 bits at both ends, `missing` of each where a switch is on and no number is given. Megatron refuses them with
// delayed scaling (fp8_utils.py, get_fp8_context), and more than a stage has (transformer_config.py).
Cell SkippedEnds(const std::string& on, const std::string& first, const std::string& last,
                 const char* value, int64_t missing) {
  return Rule(
      [=](const Case& c) {
        if (c.work.fp8 == Fp8::kDelayed)
          return No("layers in 16 bits are refused with delayed scaling");
        if (std::max(c.work.fp8_skip.first, c.work.fp8_skip.last) > c.model.layers / c.strategy.pp)
          return No("at most as many layers in 16 bits at an end as a stage has");
        return Say(
            {Set(on, value), Set(first, c.work.fp8_skip.first), Set(last, c.work.fp8_skip.last)});
      },
      [=](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        if (const auto [named, half] = NamedIn(settings); named != nullptr)
          return named->skip.any() ? From(settings.Find(kMixed), Text(named->skip)) : std::nullopt;
        const Setting* taken = settings.Find(on);
        const int64_t at_start = settings.Whole(first, 0).value_or(missing);
        const int64_t at_end = settings.Whole(last, 0).value_or(missing);
        const bool cast = values.contains("fp8");
        if (taken == nullptr || Off(taken->value) || !cast || at_start + at_end == 0)
          return std::nullopt;
        return From(taken, fmt::format("{},{}", at_start, at_end));
      });
}

// torchao's converters of a model: scales by tensor, or blocks of 32 (MX). "": none of linear maps, or one by rows.
constexpr char kConverters[] = "model.converters";
constexpr char kScales[] = "torchao scales by tensor, or blocks of 32";
std::string ConvertedTo(const SettingIndex& settings) {
  std::string list = settings.Peek(kConverters) + ",";
  std::erase_if(
      list, [](char c) { return std::string_view("[]\"' ").find(c) != std::string_view::npos; });
  const auto holds = [&](const char* name) {
    const std::string whole = std::string("quantize.linear.") + name + ",",
                      old = std::string(name) + ",";
    return list.find(whole) != std::string::npos || list.starts_with(old) ||
           list.find("," + old) != std::string::npos;
  };
  if (holds("mx")) return "mxfp8";
  const std::string recipe = settings.Peek("quantize.linear.float8.recipe_name");
  const bool tensors = recipe.empty() || recipe == "tensorwise" || Off(recipe);
  return holds("float8") && tensors ? "current" : "";
}

constexpr char kScaledFilters[] = "quantize.linear.float8.filter_fqns";
constexpr char kBlockFilters[] = "quantize.linear.mx.filter_fqns";

// The head by its names before and since 2026, which stays in 16 bits, and layers that do.
std::string Filters(const Case& c) {
  std::string list = "[\"output\", \"lm_head\"";
  for (int64_t layer = 0; layer < c.model.layers; ++layer)
    if (c.work.fp8_skip.Hold(layer, c.model.layers)) list += fmt::format(", \"layers.{}.\"", layer);
  return list + "]";
}

// Of the layers that a filter names; torchao leaves out what has the filter somewhere in its name: "layers.1" names layers
// 10 to 19, too. Empty: it names parts of layers, or other modules.
std::set<int64_t> LayersOfFilter(const std::string& filter, int64_t layers) {
  constexpr std::string_view kLayers = "layers.";
  std::set<int64_t> named;
  if (!filter.starts_with(kLayers)) return named;
  const std::string rest = filter.substr(kLayers.size());
  for (int64_t layer = 0; layer < layers; ++layer)
    if (!rest.empty() && (std::to_string(layer) + ".").starts_with(rest)) named.insert(layer);
  return named;
}

}  // namespace

Filtered ReadFilters(std::string list, int64_t layers) {
  std::erase_if(list, [](char c) {
    return std::string_view("[]\"' \t\r\n").find(c) != std::string_view::npos;
  });
  Filtered filtered;
  std::set<int64_t> skipped;
  std::vector<std::string> by_layer;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string name = list.substr(begin, end - begin);
    begin = end + 1;
    const std::set<int64_t> named = LayersOfFilter(name, layers);
    skipped.insert(named.begin(), named.end());
    if (name == "output" || name == "lm_head")
      filtered.head = true;
    else if (!name.empty())
      (named.empty() ? filtered.others : by_layer).push_back(name);
  }
  SkippedLayers& ends = filtered.skipped;
  while (skipped.contains(ends.first)) ++ends.first;
  while (ends.first < layers && skipped.contains(layers - 1 - ends.last)) ++ends.last;
  if (static_cast<std::size_t>(ends.first + ends.last) == skipped.size()) return filtered;
  ends = {};  // some in between
  filtered.others.insert(filtered.others.end(), by_layer.begin(), by_layer.end());
  return filtered;
}

Cell TitanLowPrecision() {
  return Rule(
      [](const Case& c) {
        if (c.work.fp8 == Fp8::kCurrent)
          return Say(
              {Set(kConverters, "[\"quantize.linear.float8\"]"), Set(kScaledFilters, Filters(c))});
        if (c.work.fp8 == Fp8::kMxfp8)
          return Say(
              {Set(kConverters, "[\"quantize.linear.mx\"]"), Set(kBlockFilters, Filters(c))});
        return No(kScales);
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const std::string recipe = ConvertedTo(settings);
        if (recipe.empty()) return std::nullopt;
        for (const char* key : {"quantize.linear.float8.recipe_name", kScaledFilters,
                                "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp",
                                "quantize.linear.mx.recipe_name", kBlockFilters})
          settings.Find(key);
        return From(settings.Find(kConverters), recipe);
      });
}

// In the list of filters, which TitanLowPrecision() writes.
Cell TitanSkippedLayers() {
  return Rule(
      [](const Case& c) {
        if (c.work.fp8 != Fp8::kCurrent && c.work.fp8 != Fp8::kMxfp8) return No(kScales);
        return Written{Status::kFollows, {}, "names of layers in filter_fqns"};
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const std::string recipe = ConvertedTo(settings);
        if (recipe.empty() || !values.contains("fp8")) return std::nullopt;
        const Setting* list = settings.Find(recipe == "mxfp8" ? kBlockFilters : kScaledFilters);
        if (list == nullptr) return std::nullopt;
        const SkippedLayers ends =
            ReadFilters(list->value, settings.Whole("MODEL_LAYERS").value_or(0)).skipped;
        if (!ends.any()) return std::nullopt;
        return From(list, fmt::format("{},{}", ends.first, ends.last));
      });
}

Cell TitanHeldWeights() {
  constexpr const char* kGather = "quantize.linear.float8.enable_fsdp_float8_all_gather";
  return Rule(
      [](const Case& c) {
        if (!c.strategy.fp8_weights) return Default("");
        return c.work.fp8 == Fp8::kCurrent ? Say({Set(kGather, "true")})
                                           : No("gathers scales by tensor alone");
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        if (ConvertedTo(settings) != "current") return std::nullopt;
        const Setting* gather = settings.Find(kGather);
        if (gather == nullptr) return Value{"off", {}, ""};
        return From(gather, OnOff(!Off(gather->value)));
      });
}

Cell MegatronRecipes() {  // TransformerEngine's default
  return Recipes("fp8-format", "fp8-recipe", "fp4-format", "fp4-recipe", "delayed");
}
Cell BridgeRecipes() {
  return Recipes("mixed_precision.fp8", "mixed_precision.fp8_recipe", "mixed_precision.fp4",
                 "mixed_precision.fp4_recipe", "current");
}
Cell MegatronSkippedLayers() {
  return SkippedEnds("first-last-layers-bf16", "num-layers-at-start-in-bf16",
                     "num-layers-at-end-in-bf16", "", 1);
}
Cell BridgeSkippedLayers() {
  return SkippedEnds("mixed_precision.first_last_layers_bf16",
                     "mixed_precision.num_layers_at_start_in_bf16",
                     "mixed_precision.num_layers_at_end_in_bf16", "true", 0);
}

// With products in 8 bits run_orrery.py makes the configuration, whose members are then set (train_script.cc).
Cell BridgePrecision(const char* tf32) {
  return Rule(
      [tf32](const Case& c) {
        const std::string half = NameIn(kPrecisionNames, c.work.precision);
        if (c.work.precision == Precision::kFp32) return Say({Set(kMixed, "null")});
        if (c.work.precision == Precision::kTf32) return No(tf32);
        if (c.work.fp8 != Fp8::kOff) return Say({Set("mixed_precision." + half, "true")});
        return Say({Set(kMixed, half + "_mixed")});
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        for (const char* half : {"bf16", "fp16"})
          if (const Setting* on = settings.Find(std::string("mixed_precision.") + half);
              on != nullptr && !Off(on->value))
            return From(on, half);
        const Setting* name = settings.Find(kMixed);
        if (name == nullptr) return std::nullopt;
        if (const auto [named, half] = NamedIn(settings); named != nullptr) return From(name, half);
        const std::pair<const char*, const char*> plain[] = {
            {"null", "fp32"},       {"None", "fp32"},       {"bf16_mixed", "bf16"},
            {"bf16-mixed", "bf16"}, {"fp16_mixed", "fp16"}, {"fp16-mixed", "fp16"},
            {"16-mixed", "fp16"}};
        for (const auto& [own, precision] : plain)
          if (name->value == own) return From(name, precision);
        throw InputError({{name->where, fmt::format("'{}' is no known choice", name->value),
                           "known: bf16_mixed, fp16_mixed, bf16_with_fp8_current_scaling_mixed and "
                           "others of its kind, null"}});
      });
}

Cell BridgeHeldWeights() {
  constexpr const char* kGather = "mixed_precision.fp8_param_gather";
  constexpr const char* kReuse = "mixed_precision.reuse_grad_buf_for_mxfp8_param_ag";
  return Rule(
      [](const Case& c) {
        const bool on = c.strategy.fp8_weights;
        Settings settings = {Set(kGather, on ? "true" : "false")};
        if (on && !GathersCodes(c.work.fp8)) settings.push_back(Set(kReuse, "true"));
        return Say(std::move(settings));
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        if (const auto [named, half] = NamedIn(settings); named != nullptr)
          return From(settings.Find(kMixed), OnOff(named->held));
        (void)settings.Find(kReuse);
        const Setting* gather = settings.Find(kGather);
        if (gather == nullptr) return std::nullopt;
        return From(gather, OnOff(!Off(gather->value)));
      });
}

}  // namespace orrery::exchange
