// SPDX-License-Identifier: Apache-2.0
// Facts of a framework's release and choices that shape a run, as it ran: {"attention", "fa2"}, {"compile", "on"}.
//
// Stated are those for which the layout has an occasion, in whichever way they went: no fact of tensor parallelism where
// nothing is cut, none of reductions where nothing is reduced.
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "model/price/setting.h"

namespace orrery {

// Copies share their facts until one of them is changed: a thousand calibrated runs have few different ones.
class RunFacts {
 public:
  using Map = std::map<std::string, std::string>;

  RunFacts(std::initializer_list<Map::value_type> facts = {})
      : facts_(std::make_shared<Map>(facts)) {}

  Map::const_iterator begin() const { return facts_->begin(); }
  Map::const_iterator end() const { return facts_->end(); }
  Map::const_iterator find(const std::string& key) const { return facts_->find(key); }
  const std::string& at(const std::string& key) const { return facts_->at(key); }
  std::string& operator[](const std::string& key) {
    if (facts_.use_count() != 1) facts_ = std::make_shared<Map>(*facts_);
    return (*facts_)[key];
  }
  bool contains(const std::string& key) const { return facts_->contains(key); }
  bool operator==(const RunFacts& other) const { return *facts_ == *other.facts_; }

 private:
  std::shared_ptr<Map> facts_;
};

// Kernels of a chip: known where they ran on it.
inline constexpr const char* kAttentionFact = "attention";
inline constexpr const char* kProductsFact = "products";  // "16-bit", "fp32", "mxfp8"

RunFacts FactsOf(const CostSetting& setting, const Workload& work, const Strategy& strategy);
std::string FactsText(const RunFacts& facts);  // "attention=fa2;compile=on"
RunFacts ReadFacts(std::string_view text);

}  // namespace orrery
