// SPDX-License-Identifier: Apache-2.0
// Reads the neutral description of a transformer, wherever a file format keeps its values.
//
// A model file of this project holds each value under the description's own key; a config.json holds it under the key
// that its family's YAML names (hf_family.h). Both formats are read by the same code, with errors at the place in the file.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "model/arch/readers.h"

namespace orrery {

// Where the value of a description's key stands: under `key` of `node`; absent when the node has none.
struct Place {
  Node node;
  std::string key;
  int64_t plus = 0;  // added to a whole number (OPT's position table has two rows more)
};

class Fields {
 public:
  explicit Fields(std::function<Place(const std::string&)> find) : find_(std::move(find)) {}

  Place At(const std::string& key) const { return find_(key); }
  bool Has(const std::string& key) const;
  int64_t Integer(const std::string& key, int64_t min, int64_t max) const;
  int64_t Integer(const std::string& key, int64_t min, int64_t max, int64_t fallback) const;
  double Number(const std::string& key, double min, double max, double fallback) const;
  bool Bool(const std::string& key, bool fallback) const;
  template <class E>
  E Choice(const std::string& key, std::span<const std::pair<const char*, E>> table,
           E fallback) const {
    const Place place = At(key);
    return place.node.Choice<E>(place.key, table, fallback);
  }
  void Error(const std::string& key, const std::string& message,
             const std::string& hint = "") const;

 private:
  std::function<Place(const std::string&)> find_;
};

// Everything but name, family and layers of a plain MLP. `diagnostics` collects what is wrong.
void ReadTransformer(const Fields& fields, const Diagnostics& diagnostics, ModelSpec* spec);

}  // namespace orrery
