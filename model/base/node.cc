// SPDX-License-Identifier: Apache-2.0
// The typed getters of Node: each records what is wrong and hands back a harmless value.
#include "model/base/node.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/base/check.h"
#include "model/base/plain_text.h"
#include "model/base/release.h"
#include "model/base/text.h"
#include "model/base/yaml_tree.h"

namespace orrery {

struct Node::Document {
  SourcePtr source;
  Diagnostics* diagnostics;
};

namespace {

constexpr std::size_t kMostQuoted = 60;  // bytes of the user's text that a message repeats

std::string Quoted(const std::string& text) {
  if (text.size() <= kMostQuoted) return fmt::format("'{}'", text);
  std::size_t end = kMostQuoted;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return fmt::format("'{}...'", text.substr(0, end));
}

std::string Describe(const YamlTree& tree) {
  switch (tree.kind) {
    case YamlTree::Kind::kNull:
      return "nothing";
    case YamlTree::Kind::kScalar:
      return (tree.quoted ? "the string " : "") + Quoted(tree.text);
    case YamlTree::Kind::kSequence:
      return "a list";
    case YamlTree::Kind::kMap:
      return "a map";
  }
  return "";
}

// "'layers' " before a message, nothing when the node has no key.
std::string Named(const std::string& name) {
  return name.empty() ? "" : fmt::format("'{}': ", name);
}

std::string Range(double min, double max) {
  if (std::isinf(max) && std::isinf(min)) return "any number";
  if (std::isinf(max)) return fmt::format("at least {}", min);
  if (std::isinf(min)) return fmt::format("at most {}", max);
  return fmt::format("between {} and {}", min, max);
}

std::string Range(int64_t min, int64_t max) {
  if (max == INT64_MAX)
    return min == INT64_MIN ? "any whole number" : fmt::format("at least {}", min);
  return fmt::format("between {} and {}", min, max);
}

bool IsPlainScalar(const YamlTree& tree) {
  return tree.kind == YamlTree::Kind::kScalar && !tree.quoted;
}

std::string QuoteHint(const YamlTree& tree) {
  double number = 0;
  const bool quoted_number = tree.kind == YamlTree::Kind::kScalar && tree.quoted &&
                             ParseNumber(tree.text, &number) != NumberFault::kMalformed;
  return quoted_number ? "leave the quotes away" : "";
}

// "0.10.2" as numbers; empty: it is no release.
std::vector<int64_t> ReleaseNumbers(const std::string& text) {
  std::vector<int64_t> numbers;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('.', at), text.size());
    int64_t number = 0;
    if (ParseInteger(text.substr(at, end - at), &number) != NumberFault::kNone || number < 0)
      return {};
    numbers.push_back(number);
    at = end + 1;
  }
  while (!numbers.empty() && numbers.back() == 0) numbers.pop_back();  // 1 is 1.0
  return numbers.empty() ? std::vector<int64_t>{0} : numbers;
}

// `orrery: 0.1` in a file: the release that it needs. What a newer one says may mean nothing here, or something else.
bool IsForThisRelease(const YamlTree& tree, Diagnostics* diagnostics) {
  for (const YamlTree::Member& member : tree.members) {
    if (member.key != "orrery" || !member.value) continue;
    tree.asked.insert(member.key);
    const YamlTree& value = *member.value;
    const std::vector<int64_t> wanted =
        value.kind == YamlTree::Kind::kScalar ? ReleaseNumbers(value.text) : std::vector<int64_t>();
    if (wanted.empty()) {
      diagnostics->Error(value.where, fmt::format("'orrery': {} is no release", Describe(value)),
                         fmt::format("the release that the file needs, such as {}", kRelease));
    } else if (wanted > ReleaseNumbers(kRelease)) {
      diagnostics->Error(
          value.where,
          fmt::format("this file is for release {} of Orrery, and this program is {}", value.text,
                      kRelease),
          "a newer program reads it");
    } else {
      continue;
    }
    return false;
  }
  return true;
}

}  // namespace

Node::Node(std::shared_ptr<const Document> document, std::shared_ptr<const YamlTree> tree)
    : document_(std::move(document)), tree_(std::move(tree)) {}

Node Node::Parse(SourcePtr source, Diagnostics* diagnostics) {
  auto tree = ReadYaml(source, diagnostics);
  if (tree && !IsForThisRelease(*tree, diagnostics)) tree = nullptr;
  return Node(std::make_shared<Document>(Document{std::move(source), diagnostics}),
              std::move(tree));
}

Node Node::Absent() const { return Node(document_, nullptr); }

bool Node::IsMap() const { return !tree_ || tree_->kind == YamlTree::Kind::kMap; }
bool Node::IsSequence() const { return tree_ && tree_->kind == YamlTree::Kind::kSequence; }
bool Node::IsScalar() const { return tree_ && tree_->kind == YamlTree::Kind::kScalar; }

Location Node::where() const {
  ORRERY_CHECK(document_, "a node that belongs to no document");
  return tree_ ? tree_->where : Location{document_->source, 0, 0};
}

Location Node::where(const std::string& key) const {
  const YamlTree* value = IsMap() ? Lookup(key, false) : nullptr;
  return value ? value->where : where();
}

Diagnostics* Node::diagnostics() const {
  ORRERY_CHECK(document_, "a node that belongs to no document");
  return document_->diagnostics;
}

void Node::Record(const Location& place, const std::string& message,
                  const std::string& hint) const {
  diagnostics()->Error(place, message, hint);
}

const YamlTree* Node::Lookup(const std::string& key, bool required) const {
  if (!tree_) return nullptr;
  tree_->asked.insert(key);
  for (const YamlTree::Member& member : tree_->members) {
    if (member.key != key) continue;
    if (member.value && member.value->kind != YamlTree::Kind::kNull) return member.value.get();
    if (required) Record(member.key_where, fmt::format("'{}' has no value", key), "");
    return nullptr;
  }
  if (required && RequireMap()) Record(where(), fmt::format("the key '{}' is missing", key), "");
  return nullptr;
}

bool Node::RequireMap() const {
  if (!tree_ || tree_->kind == YamlTree::Kind::kMap) return true;
  if (!tree_->complained) {
    Record(where(), fmt::format("expected a map of `key: value`, found {}", Describe(*tree_)), "");
    tree_->complained = true;
  }
  return false;
}

bool Node::Has(const std::string& key) const {
  return RequireMap() && Lookup(key, false) != nullptr;
}

std::vector<std::string> Node::Keys() const {
  std::vector<std::string> keys;
  if (!tree_ || !RequireMap()) return keys;
  for (const YamlTree::Member& member : tree_->members) keys.push_back(member.key);
  return keys;
}

Node Node::Child(const std::string& key) const {
  const YamlTree* value = Lookup(key, true);
  return value ? Node(document_, {tree_, value}) : Absent();
}

std::optional<Node> Node::Find(const std::string& key) const {
  if (tree_ && !RequireMap()) return std::nullopt;
  const YamlTree* value = Lookup(key, false);
  return value ? std::optional<Node>(Node(document_, {tree_, value})) : std::nullopt;
}

std::vector<Node> Node::Items(const std::string& key) const {
  const YamlTree* value = Lookup(key, true);
  if (!value) return {};
  if (value->kind != YamlTree::Kind::kSequence) {
    Record(value->where, fmt::format("{}expected a list, found {}", Named(key), Describe(*value)),
           "write `[a, b]`, or one `- item` per line");
    return {};
  }
  return Node(document_, {tree_, value}).Elements();
}

std::vector<Node> Node::Elements() const {
  std::vector<Node> nodes;
  if (!tree_) return nodes;
  if (tree_->kind != YamlTree::Kind::kSequence) {
    Record(where(), fmt::format("expected a list, found {}", Describe(*tree_)),
           "write `[a, b]`, or one `- item` per line");
    return nodes;
  }
  for (const auto& element : tree_->elements) nodes.push_back(Node(document_, element));
  return nodes;
}

std::optional<std::string> Node::ScalarText(const YamlTree& tree, const std::string& name) const {
  if (tree.kind == YamlTree::Kind::kScalar) {
    // What a file calls itself is printed: it must not steer a terminal.
    const auto steers = [](unsigned char c) {
      return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
    };
    const auto at = std::ranges::find_if(tree.text, steers);
    if (at == tree.text.end()) return tree.text;
    Record(tree.where,
           fmt::format("{}holds the control character 0x{:02x}", Named(name),
                       static_cast<unsigned char>(*at)),
           "");
    return std::nullopt;
  }
  Record(tree.where,
         fmt::format("{}expected a single value, found {}", Named(name), Describe(tree)), "");
  return std::nullopt;
}

int64_t Node::ToInteger(const YamlTree& tree, const std::string& name, int64_t min,
                        int64_t max) const {
  int64_t value = 0;
  const auto fault =
      IsPlainScalar(tree) ? ParseInteger(tree.text, &value) : NumberFault::kMalformed;
  if (fault == NumberFault::kNone && value >= min && value <= max) return value;
  if (fault == NumberFault::kMalformed) {
    Record(tree.where,
           fmt::format("{}expected a whole number, found {}", Named(name), Describe(tree)),
           QuoteHint(tree));
  } else {
    Record(tree.where, fmt::format("{}{} is out of range", Named(name), Quoted(tree.text)),
           "allowed: " + Range(min, max));
  }
  return std::clamp<int64_t>(1, min, max);
}

double Node::ToNumber(const YamlTree& tree, const std::string& name, double min, double max) const {
  double value = 0;
  const auto fault = IsPlainScalar(tree) ? ParseNumber(tree.text, &value) : NumberFault::kMalformed;
  if (fault == NumberFault::kNone && value >= min && value <= max) return value;
  if (fault == NumberFault::kMalformed) {
    Record(tree.where, fmt::format("{}expected a number, found {}", Named(name), Describe(tree)),
           QuoteHint(tree));
  } else {
    Record(tree.where, fmt::format("{}{} is out of range", Named(name), Quoted(tree.text)),
           "allowed: " + Range(min, max));
  }
  return std::clamp(1.0, min, max);
}

std::string Node::String(const std::string& key) const {
  const YamlTree* value = Lookup(key, true);
  return value ? ScalarText(*value, key).value_or("") : "";
}
std::string Node::String(const std::string& key, const std::string& fallback) const {
  return Has(key) ? String(key) : fallback;
}

int64_t Node::Integer(const std::string& key, int64_t min, int64_t max) const {
  const YamlTree* value = Lookup(key, true);
  return value ? ToInteger(*value, key, min, max) : std::clamp<int64_t>(1, min, max);
}
int64_t Node::Integer(const std::string& key, int64_t min, int64_t max, int64_t fallback) const {
  return Has(key) ? Integer(key, min, max) : fallback;
}

double Node::Number(const std::string& key, double min, double max) const {
  const YamlTree* value = Lookup(key, true);
  return value ? ToNumber(*value, key, min, max) : std::clamp(1.0, min, max);
}
double Node::Number(const std::string& key, double min, double max, double fallback) const {
  return Has(key) ? Number(key, min, max) : fallback;
}

bool Node::Bool(const std::string& key) const {
  const YamlTree* value = Lookup(key, true);
  if (!value) return false;
  if (IsPlainScalar(*value) && (value->text == "true" || value->text == "false")) {
    return value->text == "true";
  }
  Record(value->where,
         fmt::format("{}expected true or false, found {}", Named(key), Describe(*value)), "");
  return false;
}
bool Node::Bool(const std::string& key, bool fallback) const {
  return Has(key) ? Bool(key) : fallback;
}

template <class Q>
Q Node::ReadQuantity(const std::string& key, bool above_zero) const {
  const YamlTree* tree = Lookup(key, true);
  const std::optional<std::string> text = tree ? ScalarText(*tree, key) : std::nullopt;
  if (!text) return Q(1.0);
  TextError error;
  const std::optional<Q> value = ParseQuantity<Q>(*text, &error);
  if (value && (value->value > 0 || !above_zero)) return *value;
  if (value) error = {fmt::format("{} must be above zero", Quoted(*text)), ""};
  Record(tree->where, Named(key) + error.message, error.hint);
  return Q(1.0);
}

Bytes Node::ReadBytes(const std::string& key) const { return ReadQuantity<Bytes>(key, false); }
Seconds Node::ReadSeconds(const std::string& key) const {
  return ReadQuantity<Seconds>(key, false);
}
BytesPerSecond Node::ReadBytesPerSecond(const std::string& key) const {
  return ReadQuantity<BytesPerSecond>(key, true);
}
FlopsPerSecond Node::ReadFlopsPerSecond(const std::string& key) const {
  return ReadQuantity<FlopsPerSecond>(key, true);
}
DollarsPerHour Node::ReadDollarsPerHour(const std::string& key) const {
  return ReadQuantity<DollarsPerHour>(key, false);
}

std::size_t Node::ChoiceIndex(const std::string& key, const std::vector<std::string>& names,
                              std::optional<std::size_t> fallback) const {
  if (fallback && !Has(key)) return *fallback;
  const YamlTree* value = Lookup(key, true);
  const std::optional<std::string> text = value ? ScalarText(*value, key) : std::nullopt;
  if (!text) return 0;
  const auto found = std::find(names.begin(), names.end(), *text);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  Record(value->where, fmt::format("{}unknown value {}", Named(key), Quoted(*text)),
         SuggestName(*text, names));
  return 0;
}

std::string Node::AsString() const { return tree_ ? ScalarText(*tree_, "").value_or("") : ""; }
int64_t Node::AsInteger(int64_t min, int64_t max) const {
  return tree_ ? ToInteger(*tree_, "", min, max) : std::clamp<int64_t>(1, min, max);
}
double Node::AsNumber(double min, double max) const {
  return tree_ ? ToNumber(*tree_, "", min, max) : std::clamp(1.0, min, max);
}

void Node::Error(const std::string& message, const std::string& hint) const {
  if (tree_) Record(where(), message, hint);
}

void Node::ErrorAt(const std::string& key, const std::string& message,
                   const std::string& hint) const {
  if (tree_) Record(where(key), message, hint);
}

void Node::RejectUnknownKeys() const {
  if (!tree_ || !RequireMap()) return;
  const std::vector<std::string> known(tree_->asked.begin(), tree_->asked.end());
  for (const YamlTree::Member& member : tree_->members) {
    if (!tree_->asked.contains(member.key)) {
      Record(member.key_where, fmt::format("unknown key {}", Quoted(member.key)),
             SuggestName(member.key, known));
    }
  }
}

}  // namespace orrery
