// SPDX-License-Identifier: Apache-2.0
// Builds the tree from yaml-cpp's parser events, which carry places and leave every policy to us.
#include "model/input/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <sstream>
#include <unordered_map>

#include "model/input/plain_text.h"

namespace orrery {
namespace {

// Ends the parse; what is wrong has been recorded.
struct Refused {};

class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(SourcePtr source, std::size_t first_line_offset, Diagnostics* diagnostics)
      : source_(std::move(source)),
        first_line_offset_(first_line_offset),
        diagnostics_(diagnostics) {}

  std::shared_ptr<YamlTree> root() const { return root_; }

  Location At(const YAML::Mark& mark) const {
    if (mark.is_null()) return {source_, 0, 0};
    const int offset = mark.line == 0 ? static_cast<int>(first_line_offset_) : 0;
    return {source_, mark.line + 1, mark.column + 1 + offset};
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (root_) Refuse(mark, "a second document starts here", "keep one document per file");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    Place(mark, YamlTree::Kind::kNull);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const bool named = anchor >= 1 && anchor <= anchors_.size();
    Refuse(mark, fmt::format("the alias '*{}' is not accepted", named ? anchors_[anchor - 1] : "?"),
           "write the value out where it is needed");
  }
  void OnAnchor(const YAML::Mark&, const std::string& name) override { anchors_.push_back(name); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    RefuseTag(mark, tag);
    const bool quoted = tag == "!";
    const bool null = !quoted && (value.empty() || value == "~" || value == "null" ||
                                  value == "Null" || value == "NULL");
    const auto node = Place(mark, null ? YamlTree::Kind::kNull : YamlTree::Kind::kScalar, value);
    node->text = value;
    node->quoted = quoted;
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    RefuseTag(mark, tag);
    Open(mark, YamlTree::Kind::kSequence);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    RefuseTag(mark, tag);
    Open(mark, YamlTree::Kind::kMap);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  // A collection whose end is still to come.
  struct Level {
    std::shared_ptr<YamlTree> node;
    bool value_due = false;                               // a map's key was read
    std::unordered_map<std::string, Location> key_where;  // of a map's keys
  };

  [[noreturn]] void Refuse(const YAML::Mark& mark, std::string message, std::string hint) {
    diagnostics_->Error(At(mark), std::move(message), std::move(hint));
    throw Refused{};
  }

  void RefuseTag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    Refuse(mark, fmt::format("the tag '{}' is not accepted", tag), "write the plain value");
  }

  void Open(const YAML::Mark& mark, YamlTree::Kind kind) {
    if (open_.size() >= kMostNested) {
      Refuse(mark, fmt::format("nested more than {} levels deep", kMostNested), "");
    }
    open_.push_back({Place(mark, kind), false, {}});
  }

  // Puts a new node where the innermost open collection expects the next one.
  std::shared_ptr<YamlTree> Place(const YAML::Mark& mark, YamlTree::Kind kind,
                                  const std::string& text = "") {
    auto node = std::make_shared<YamlTree>();
    node->kind = kind;
    node->where = At(mark);
    if (open_.empty()) {
      root_ = node;
      return node;
    }
    Level& level = open_.back();
    if (level.node->kind == YamlTree::Kind::kSequence) {
      level.node->elements.push_back(node);
    } else if (level.value_due) {
      level.node->members.back().value = node;
      level.value_due = false;
    } else {
      AddKey(mark, kind, text, level);
    }
    return node;
  }

  void AddKey(const YAML::Mark& mark, YamlTree::Kind kind, const std::string& text, Level& level) {
    if (kind != YamlTree::Kind::kScalar)
      Refuse(mark, "a key must be a name", "write `name: value`");
    const auto [first, is_new] = level.key_where.emplace(text, At(mark));
    if (!is_new) {
      diagnostics_->Error(At(mark), fmt::format("the key '{}' appears twice", text),
                          fmt::format("it is first given in line {}, column {}", first->second.line,
                                      first->second.column));
    }
    level.node->members.push_back({text, At(mark), nullptr});
    level.value_due = true;
  }

  SourcePtr source_;
  std::size_t first_line_offset_;
  Diagnostics* diagnostics_;
  std::shared_ptr<YamlTree> root_;
  std::vector<Level> open_;
  std::vector<std::string> anchors_;
};

// YAML forbids tabs as indentation; yaml-cpp takes some of them and misreads the structure.
bool CheckNoTabIndentation(const SourcePtr& source, std::string_view text,
                           Diagnostics* diagnostics) {
  int line = 1;
  for (std::size_t start = 0; start < text.size(); ++line) {
    const std::size_t content = text.find_first_not_of(" \t", start);
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::size_t tab = text.find('\t', start);
    const bool blank = content == std::string_view::npos || content >= end || text[content] == '\r';
    if (!blank && text[content] != '#' && tab < content) {
      diagnostics->Error({source, line, static_cast<int>(tab - start) + 1},
                         "a tab indents this line", "indent with spaces");
      return false;
    }
    start = end + 1;
  }
  return true;
}

// JSON may be indented with tabs, which YAML does not take even in its JSON subset. One for one, so
// that places stay right.
std::string ForParser(std::string_view text, bool json) {
  std::string copy(text);
  for (char& c : copy) {
    if (json && (c == '\t' || c == '\r')) c = ' ';
  }
  return copy;
}

std::string Sentence(const YAML::Exception& error) {
  std::string text = error.msg;
  return text.empty() ? "this is no YAML" : text;
}

}  // namespace

std::shared_ptr<YamlTree> ReadYaml(const SourcePtr& source, Diagnostics* diagnostics) {
  if (!CheckPlainText(source, diagnostics)) return nullptr;
  const std::string_view text = WithoutByteOrderMark(source->text);
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  const bool json = start != std::string_view::npos && (text[start] == '{' || text[start] == '[');
  if (!json && !CheckNoTabIndentation(source, text, diagnostics)) return nullptr;

  TreeBuilder builder(source, source->text.size() - text.size(), diagnostics);
  const char* language = json ? "JSON" : "YAML";
  try {
    std::istringstream stream(ForParser(text, json));
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Refused&) {
    return nullptr;
  } catch (const YAML::Exception& error) {
    diagnostics->Error(builder.At(error.mark),
                       fmt::format("{} syntax: {}", language, Sentence(error)));
    return nullptr;
  } catch (const std::exception& error) {
    diagnostics->Error({source, 0, 0},
                       fmt::format("cannot be read as {}: {}", language, error.what()));
    return nullptr;
  }
  if (!builder.root() || builder.root()->kind == YamlTree::Kind::kNull) {
    diagnostics->Error({source, 0, 0}, "the document is empty");
    return nullptr;
  }
  return builder.root();
}

}  // namespace orrery
