// SPDX-License-Identifier: Apache-2.0
// How Megatron spells virtual stages and the layers of each.
//
// NVIDIA/Megatron-LM, megatron/core/transformer: pipeline_parallel_layer_layout.py, parse_str_to_list; transformer_block.py,
// get_num_layers_to_build; megatron/training/arguments.py, validate_args, for the number of chunks and layers that do not divide.
#include <fmt/format.h>

#include <algorithm>

#include "model/base/plain_text.h"
#include "model/exchange/fields.h"
#include "model/exchange/model_arguments.h"
#include "model/exchange/rules.h"
#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

// How Megatron's arguments and the members of Bridge's model say that stages differ.
struct StageKeys {
  const char *first, *last, *embedding, *loss, *layout;
};
constexpr StageKeys kMegatronKeys = {
    "decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers",
    "account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split",
    "pipeline-model-parallel-layout"};
constexpr StageKeys kBridgeKeys = {
    "model.num_layers_in_first_pipeline_stage", "model.num_layers_in_last_pipeline_stage",
    "model.account_for_embedding_in_pipeline_split", "model.account_for_loss_in_pipeline_split",
    "model.pipeline_model_parallel_layout"};
const StageKeys& StageKeysOf(bool bridge) { return bridge ? kBridgeKeys : kMegatronKeys; }

const Setting* SwitchedOn(const SettingIndex& settings, const char* key) {
  const Setting* found = settings.Find(key);
  return found != nullptr && !Off(found->value) ? found : nullptr;
}
int64_t Count(const SettingIndex& settings, const Setting* setting) {
  return setting == nullptr ? 0 : settings.Whole(setting->key).value_or(0);
}
int64_t LayersOfModel(const SettingIndex& settings) {  // 0: the file does not say
  const Setting* layers = LayersOfMegatron(settings);
  if (layers == nullptr) return settings.Whole("MODEL_LAYERS").value_or(0);
  return settings.Whole(layers->key, 1).value_or(0);
}

// What counts as a layer where stages are made, besides layers.
struct CountedEnds {
  const Setting* embedding;
  const Setting* loss;
  CountedEnds(const SettingIndex& settings, const StageKeys& keys)
      : embedding(SwitchedOn(settings, keys.embedding)), loss(SwitchedOn(settings, keys.loss)) {}
  bool any() const { return embedding != nullptr || loss != nullptr; }
  int64_t count() const { return (embedding != nullptr ? 1 : 0) + (loss != nullptr ? 1 : 0); }
  const Setting* named() const { return embedding != nullptr ? embedding : loss; }
};

std::string UnevenHint(const StageKeys& keys) {
  const char* const dashes = &keys == &kMegatronKeys ? "--" : "";
  return fmt::format(
      "layers = stages x chunks x layers per chunk, or name the layers of the ends ({0}{1}, "
      "{0}{2}), count the ends as layers ({0}{3}, {0}{4}) or lay out all ({0}{5})",
      dashes, keys.first, keys.last, keys.embedding, keys.loss, keys.layout);
}

int64_t ChunksBySize(const SettingIndex& settings, const Setting& size, int64_t pp) {
  const int64_t per = *settings.Whole(size.key, 1);
  const CountedEnds ends(settings, kMegatronKeys);
  const int64_t layers = LayersOfModel(settings) + ends.count();
  if (layers == ends.count() || layers % (pp * per) != 0) {
    throw InputError({{size.where,
                       fmt::format("{} layers per virtual stage do not divide num-layers{} by {} "
                                   "stages",
                                   per, ends.any() ? " and the ends that count as layers" : "", pp),
                       UnevenHint(kMegatronKeys)}});
  }
  return layers / pp / per;
}

// Equal chunks of layers, embedding and loss; the ends hold a layer less.
std::string LayersWithCountedEnds(const SettingIndex& settings, const CountedEnds& ends,
                                  int64_t chunks) {
  const int64_t layers = LayersOfModel(settings);
  if ((layers + ends.count()) % chunks != 0) {
    throw InputError(
        {{ends.named()->where,
          fmt::format("{} layers and {} that count{} as one do not divide by {} stages", layers,
                      ends.count() == 2 ? "two ends" : "an end", ends.count() == 2 ? "" : "s",
                      chunks),
          "num-layers + ends = stages x chunks x layers per chunk"}});
  }
  const auto each = static_cast<int>((layers + ends.count()) / chunks);
  std::vector<int> list(static_cast<std::size_t>(chunks), each);
  if (ends.embedding != nullptr) --list.front();
  if (ends.loss != nullptr) --list.back();
  return ListText(list);
}

// The first or last stage of other size; each stage's layers are cut into equal chunks.
std::string LayersWithUnevenEnds(const SettingIndex& settings, const Setting* first,
                                 const Setting* last, int64_t pp, int64_t vpp) {
  const Setting& named = first != nullptr ? *first : *last;
  const int64_t all = LayersOfModel(settings);
  const int64_t between = pp - (first != nullptr ? 1 : 0) - (last != nullptr ? 1 : 0);
  const int64_t head = Count(settings, first), tail = Count(settings, last);
  const int64_t rest = all - head - tail;
  if (between < 0 || rest < 0 || (between == 0 ? rest != 0 : rest % between != 0)) {
    throw InputError(
        {{named.where, fmt::format("{} layers do not make up {} stages with these ends", all, pp),
          "the stages between them hold equal numbers of layers"}});
  }
  std::vector<int> layers(static_cast<std::size_t>(pp),
                          static_cast<int>(between > 0 ? rest / between : 0));
  if (first != nullptr) layers.front() = static_cast<int>(head);
  if (last != nullptr) layers.back() = static_cast<int>(tail);
  std::vector<int> chunks;
  for (int64_t chunk = 0; chunk < vpp; ++chunk) {
    for (const int stage : layers) {
      if (stage % vpp != 0)
        throw InputError(
            {{named.where, fmt::format("a stage of {} layers has no {} equal chunks", stage, vpp),
              "layers of each stage must divide by the virtual stages"}});
      chunks.push_back(static_cast<int>(stage / vpp));
    }
  }
  return ListText(chunks);
}

}  // namespace

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
        if (const Setting* size = settings.Find("num-layers-per-virtual-pipeline-stage"))
          return From(size, Text(ChunksBySize(settings, *size, pp)));
        if (const Setting* layout = settings.Find("pipeline-model-parallel-layout")) {
          const auto chunks = static_cast<int64_t>(LayersOfMegatronLayout(*layout).size());
          if (chunks % pp != 0)
            RefuseLayout(*layout, fmt::format("{} stages for pp {}", chunks, pp));
          return From(layout, Text(chunks / pp));
        }
        return Value{"1", {}, ""};
      });
}

Cell MegatronUnevenStages(bool bridge) {
  const StageKeys& keys = StageKeysOf(bridge);
  return Rule(
      [&keys](const Case& c) {
        if (EvenStages(c)) return Default("equal stages");
        return Say({Set(keys.layout, MegatronLayout(LayersByChunk(c)))});
      },
      [&keys](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const Setting* layout = SwitchedOn(settings, keys.layout);
        // Without the number of layers these arguments say nothing, and are named as not read.
        if (LayersOfModel(settings) == 0 && layout == nullptr) return Value{"even", {}, ""};
        const CountedEnds ends(settings, keys);
        const Setting* first = SwitchedOn(settings, keys.first);
        const Setting* last = SwitchedOn(settings, keys.last);
        const Setting* sized = layout != nullptr ? layout : first != nullptr ? first : last;
        if (ends.any() && sized != nullptr) {
          throw InputError({{ends.named()->where,
                             fmt::format("{} contradicts {}", ends.named()->key, sized->key),
                             "keep one of them: Megatron refuses both"}});
        }
        if (layout != nullptr) return From(layout, ListText(LayersOfMegatronLayout(*layout)));
        const int64_t pp = NumberOf(values, "pp", 1), vpp = NumberOf(values, "vpp", 1);
        if (ends.any() && pp > 1)
          return From(ends.named(), LayersWithCountedEnds(settings, ends, pp * vpp));
        if (first == nullptr && last == nullptr) return Value{"even", {}, ""};
        return From(sized, LayersWithUnevenEnds(settings, first, last, pp, vpp));
      });
}

std::optional<Diagnostic> UnevenStages(const SettingIndex& settings, int64_t layers,
                                       const Values& known, bool bridge) {
  const auto layout = known.find("layout");
  const int64_t pp = NumberOf(known, "pp", 1), vpp = NumberOf(known, "vpp", 1);
  if (layout == known.end() || layout->second.text != "even" || layout->second.where.source ||
      pp == 1 || layers % (pp * vpp) == 0 ||
      !settings.Peek("decoder-num-layers").empty())  // two stacks
    return std::nullopt;
  const std::string chunks = vpp > 1 ? fmt::format(" x {} chunks", vpp) : "";
  return Diagnostic{known.at(vpp > 1 ? "vpp" : "pp").where,
                    fmt::format("{} layers do not divide by {} stages{}, and Megatron starts with "
                                "equal ones unless arguments say otherwise",
                                layers, pp, chunks),
                    UnevenHint(StageKeysOf(bridge))};
}

}  // namespace orrery::exchange
