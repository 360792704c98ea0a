// SPDX-License-Identifier: Apache-2.0
// A typed cursor over YAML and JSON text that knows where it stands.
//
// JSON is read by the same parser. Getters never throw: a missing key, a wrong type or a bad unit
// is recorded in the document's Diagnostics, and a harmless value comes back, so that reading goes
// on. Call Diagnostics::ThrowIfAny() before using what was read. Every key that was asked for is
// marked as known; RejectUnknownKeys() reports the others with the nearest right name. Duplicate
// keys, anchors, tags, tab indentation, nesting above 64 levels, truncated, empty and
// multi-document texts are errors at parse time. Numbers and truth values are plain: "12" in quotes
// is a string. The harmless value is the one nearest to 1 in range, one base unit, the first
// choice, "" or false; a missing map or list is an empty stand-in that records nothing more.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/base/diagnostics.h"
#include "model/base/quantity.h"

namespace orrery {

struct YamlTree;

class Node {
 public:
  // Parses the text; a syntax error, or `orrery:` with a newer release, is recorded and an empty map comes back.
  static Node Parse(SourcePtr source, Diagnostics* diagnostics);

  bool IsMap() const;
  bool IsSequence() const;
  bool IsScalar() const;
  Location where() const;
  Location where(const std::string& key) const;  // of the value under `key`, else of this node
  Diagnostics* diagnostics() const;

  bool Has(const std::string& key) const;  // present and not null; marks the key as known
  std::vector<std::string> Keys() const;   // in file order

  // Children. Child: required. Find: nullopt when absent. Items: required sequence under `key`,
  // Elements: the elements of this sequence.
  Node Child(const std::string& key) const;
  std::optional<Node> Find(const std::string& key) const;
  std::vector<Node> Items(const std::string& key) const;
  std::vector<Node> Elements() const;

  // Scalars under `key` of this map: required without a fallback, optional with one.
  std::string String(const std::string& key) const;
  std::string String(const std::string& key, const std::string& fallback) const;
  int64_t Integer(const std::string& key, int64_t min, int64_t max) const;
  int64_t Integer(const std::string& key, int64_t min, int64_t max, int64_t fallback) const;
  double Number(const std::string& key, double min, double max) const;  // dimensionless
  double Number(const std::string& key, double min, double max, double fallback) const;
  bool Bool(const std::string& key) const;
  bool Bool(const std::string& key, bool fallback) const;
  Bytes ReadBytes(const std::string& key) const;
  Seconds ReadSeconds(const std::string& key) const;
  BytesPerSecond ReadBytesPerSecond(const std::string& key) const;  // rates are above zero
  FlopsPerSecond ReadFlopsPerSecond(const std::string& key) const;
  DollarsPerHour ReadDollarsPerHour(const std::string& key) const;

  // One of a table of names; anything else is an error that lists the nearest.
  template <class E>
  E Choice(const std::string& key, std::span<const std::pair<const char*, E>> table) const {
    return table[ChoiceIndex(key, Names(table), std::nullopt)].second;
  }
  template <class E>
  E Choice(const std::string& key, std::span<const std::pair<const char*, E>> table,
           E fallback) const {
    return Has(key) ? Choice(key, table) : fallback;
  }

  // This node itself as a scalar (elements of sequences).
  std::string AsString() const;
  int64_t AsInteger(int64_t min, int64_t max) const;
  double AsNumber(double min, double max) const;

  void Error(const std::string& message, const std::string& hint = "") const;  // at this node
  void ErrorAt(const std::string& key, const std::string& message,
               const std::string& hint = "") const;
  void RejectUnknownKeys() const;  // this map only, not its children

 private:
  template <class E>
  static std::vector<std::string> Names(std::span<const std::pair<const char*, E>> table) {
    std::vector<std::string> names;
    for (const auto& row : table) names.emplace_back(row.first);
    return names;
  }
  std::size_t ChoiceIndex(const std::string& key, const std::vector<std::string>& names,
                          std::optional<std::size_t> fallback) const;

  struct Document;  // what all nodes of a document share
  Node(std::shared_ptr<const Document> document, std::shared_ptr<const YamlTree> tree);

  // The value under `key`, marked as known. Null: absent; recorded when `required`.
  const YamlTree* Lookup(const std::string& key, bool required) const;
  Node Absent() const;  // stands in for what is missing; reading from it records nothing more
  bool RequireMap() const;
  void Record(const Location& where, const std::string& message, const std::string& hint) const;
  std::optional<std::string> ScalarText(const YamlTree& tree, const std::string& name) const;
  int64_t ToInteger(const YamlTree& tree, const std::string& name, int64_t min, int64_t max) const;
  double ToNumber(const YamlTree& tree, const std::string& name, double min, double max) const;
  template <class Q>
  Q ReadQuantity(const std::string& key, bool above_zero) const;

  std::shared_ptr<const Document> document_;
  std::shared_ptr<const YamlTree> tree_;  // null: absent
};

}  // namespace orrery
