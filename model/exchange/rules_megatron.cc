// SPDX-License-Identifier: Apache-2.0
// Context parallelism and sharding of Megatron, whose settings say more than one field.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "model/base/plain_text.h"
#include "model/exchange/rules.h"
#include "model/exchange/spellings.h"
#include "model/plan/lower/names.h"

namespace orrery::exchange {
namespace {

constexpr std::pair<const char*, CpMethod> kContextNames[] = {{"p2p", CpMethod::kRing},
                                                              {"all_gather", CpMethod::kAllGather},
                                                              {"a2a", CpMethod::kUlysses},
                                                              {"a2a+p2p", CpMethod::kA2aRing}};

std::optional<Value> ReadContext(const SettingIndex& settings, const Values& values,
                                 const std::string& key) {
  const Setting* type = settings.Find(key);
  if (NumberOf(values, "cp", 1) == 1) return std::nullopt;
  const std::vector<std::string> words =
      type == nullptr ? std::vector<std::string>() : WordsOf(type->value);
  // TransformerEngine's default is the ring.
  if (words.empty() || Off(words.front())) return Value{"ring", {}, ""};
  const auto row = std::ranges::find_if(
      kContextNames, [&](const auto& name) { return words.front() == name.first; });
  if (row == std::end(kContextNames))
    throw InputError(
        {{type->where, fmt::format("{} '{}' is no known choice of context", key, words.front()),
          "known: p2p, all_gather, a2a, a2a+p2p"}});
  // One word for all layers, or one for each.
  const auto other =
      std::ranges::find_if(words, [&](const std::string& word) { return word != words.front(); });
  if (other != words.end())
    throw InputError({{type->where,
                       fmt::format("{} has {} and {}: layers that share sequences in two ways are "
                                   "not modelled",
                                   key, words.front(), *other),
                       "one word for all layers"}});
  return From(type, NameIn(kCpMethodNames, row->second));
}

std::optional<Value> ReadLevels(const SettingIndex& settings, const Values& values,
                                const std::string& key) {
  const Setting* sizes = settings.Find(key);
  const auto context = values.find("context");
  const int64_t cp = NumberOf(values, "cp", 1);
  if (sizes == nullptr || Off(sizes->value) || cp == 1 || context == values.end() ||
      context->second.text != NameIn(kCpMethodNames, CpMethod::kA2aRing))
    return std::nullopt;
  const std::vector<std::string> words = WordsOf(sizes->value);
  int64_t inner = 0, outer = 0;
  if (words.size() != 2 || ParseInteger(words[0], &inner) != NumberFault::kNone ||
      ParseInteger(words[1], &outer) != NumberFault::kNone || inner < 1 || outer < 1 ||
      inner > cp || inner * outer != cp)
    throw InputError(
        {{sizes->where,
          fmt::format("{} {} are no two levels of {} ranks", key, fmt::join(words, " "), cp),
          "ranks that exchange all-to-all, then those of the ring; their product is "
          "the context-parallel size"}});
  return From(sizes, words[0]);
}

// Which of the shards of FSDP, of the distributed optimizer and of DeepSpeed a job has. The strategy has no effect without
// Megatron-FSDP: dumps name it always.
std::optional<Value> ReadShards(const SettingIndex& settings) {
  const Setting* own = settings.Find("use-megatron-fsdp");
  const Setting* torch = settings.Find("use-torch-fsdp2");
  const Setting* optimizer = settings.Find("use-distributed-optimizer");
  if (own != nullptr && torch != nullptr)
    throw InputError({{torch->where,
                       fmt::format("use-torch-fsdp2 here contradicts use-megatron-fsdp in {}",
                                   Place(own->where)),
                       "keep one of them"}});
  if (torch != nullptr) {
    // Whole weights stay between the passes.
    const Setting* keeps = settings.Find("torch-fsdp2-no-reshard-after-forward");
    return keeps != nullptr ? From(keeps, "2") : From(torch, "3");
  }
  if (const Setting* stage = settings.Find("zero-stage")) return From(stage, stage->value);
  if (own == nullptr) return optimizer != nullptr ? From(optimizer, "1") : Value{"0", {}, ""};
  (void)settings.Find("ckpt-format");
  const Setting* strategy = settings.Find("data-parallel-sharding-strategy");
  constexpr std::string_view kStages[] = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
  if (strategy == nullptr) return From(own, "0");
  const auto stage = std::ranges::find(kStages, strategy->value);
  if (stage == std::end(kStages))
    throw InputError(
        {{strategy->where,
          fmt::format("{} '{}' is no known choice of zero", strategy->key, strategy->value),
          fmt::format("known: {}", fmt::join(kStages, ", "))}});
  return From(strategy, Text(std::distance(std::begin(kStages), stage)));
}

}  // namespace

std::vector<std::string> WordsOf(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (std::string_view(" \t,[]()\"'").find(c) == std::string_view::npos) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

Cell MegatronContext(const char* key) {
  const std::string name = key;
  return Rule(
      [name](const Case& c) {
        return Say({Set(name, NameIn(kContextNames, c.strategy.context.method))});
      },
      [name](const SettingIndex& settings, const Values& values) {
        return ReadContext(settings, values, name);
      });
}

Cell MegatronLevels(const char* key, bool bridge) {
  const std::string name = key;
  return Rule(
      [name, bridge](const Case& c) {
        const int inner = c.strategy.context.inner, outer = c.strategy.cp / inner;
        return Say({Set(name, bridge ? fmt::format("[{},{}]", inner, outer)
                                     : fmt::format("{} {}", inner, outer))});
      },
      [name](const SettingIndex& settings, const Values& values) {
        return ReadLevels(settings, values, name);
      });
}

Cell MegatronShards() {
  return Rule(
      [](const Case& c) {
        const Setting optimizer = Set("use-distributed-optimizer", "");
        if (c.strategy.zero == 0) return Default("default");
        if (c.strategy.zero == 1) return Say({optimizer});
        return Say({Set("data-parallel-sharding-strategy",
                        c.strategy.zero == 2 ? "optim_grads" : "optim_grads_params"),
                    Set("use-megatron-fsdp", ""), optimizer, Set("ckpt-format", "fsdp_dtensor")});
      },
      [](const SettingIndex& settings, const Values&) { return ReadShards(settings); });
}

}  // namespace orrery::exchange
