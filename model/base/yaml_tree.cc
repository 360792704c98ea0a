// SPDX-License-Identifier: Apache-2.0
// Builds the tree from yaml-cpp's parser events, which carry places and leave every policy to us.
#include "model/base/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <unordered_map>

#include "model/base/json_text.h"
#include "model/base/plain_text.h"
#include "model/base/syntax_words.h"

namespace orrery {
namespace {

// Ends the parse.
struct Refused {
  Diagnostic why;
};

class TreeBuilder : public YAML::EventHandler {
 public:
  // `text` is what the parser gets; it must outlive this object.
  TreeBuilder(SourcePtr source, std::string_view text, std::size_t first_line_offset,
              Diagnostics* diagnostics)
      : source_(std::move(source)),
        text_(text),
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
  // A document with aliases can be exponentially larger than its text.
  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    Refuse(mark, fmt::format("the anchor '&{}' is not accepted", name),
           "write the value out where it is needed");
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Refuse(mark, "aliases are not accepted", "write the value out where it is needed");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    RefuseTag(mark, tag);
    const bool quoted = tag == "!";
    const bool null = !quoted && (value.empty() || value == "~" || value == "null" ||
                                  value == "Null" || value == "NULL");
    const auto node = Place(mark, null ? YamlTree::Kind::kNull : YamlTree::Kind::kScalar, value);
    node->text = value;
    node->quoted = quoted;
    if (quoted && !ClosesQuote(mark)) Refuse(mark, "this quote is never closed", "");
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
    throw Refused{{At(mark), std::move(message), std::move(hint)}};
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

  // yaml-cpp takes the end of the text for a closing quote. True for block scalars.
  bool ClosesQuote(const YAML::Mark& mark) const {
    const auto start = static_cast<std::size_t>(mark.pos);
    if (start >= text_.size() || (text_[start] != '"' && text_[start] != '\'')) return true;
    for (std::size_t i = start + 1; i < text_.size(); ++i) {
      if (text_[start] == '"') {
        if (text_[i] == '"') return true;
        if (text_[i] == '\\') ++i;
      } else if (text_[i] == '\'') {
        if (text_.substr(i, 2) != "''") return true;
        ++i;
      }
    }
    return false;
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
    if (kind != YamlTree::Kind::kScalar) {
      Refuse(mark, "a key must be a name", "write `name: value`; is a bracket or brace left open?");
    }
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
  std::string_view text_;
  std::size_t first_line_offset_;
  Diagnostics* diagnostics_;
  std::shared_ptr<YamlTree> root_;
  std::vector<Level> open_;
};

// YAML forbids tabs as indentation; yaml-cpp takes some of them and misreads the structure.
bool CheckNoTabIndentation(const SourcePtr& source, std::string_view text,
                           Diagnostics* diagnostics) {
  int line = 1;
  for (std::size_t start = 0; start < text.size(); ++line) {
    const std::size_t content = std::min(text.find_first_not_of(' ', start), text.size() - 1);
    if (text[content] == '\t') {
      diagnostics->Error({source, line, static_cast<int>(content - start) + 1},
                         "a tab indents this line", "indent with spaces");
      return false;
    }
    const std::size_t end = text.find('\n', start);
    if (end == std::string_view::npos) break;
    start = end + 1;
  }
  return true;
}

Location PlaceOf(const SourcePtr& source, std::size_t offset) {
  const std::string_view before = std::string_view(source->text).substr(0, offset);
  const auto line = static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1;
  const std::size_t line_start = line == 1 ? 0 : before.rfind('\n') + 1;
  return {source, line, static_cast<int>(offset - line_start) + 1};
}

std::size_t OffsetOf(std::string_view text, const Location& where) {
  std::size_t start = 0;
  for (int line = 1; line < where.line; ++line) {
    const std::size_t end = text.find('\n', start);
    if (end == std::string_view::npos) return text.size();
    start = end + 1;
  }
  return start + static_cast<std::size_t>(std::max(0, where.column - 1));
}

// Runs the parser; what ends it early comes back.
std::optional<Diagnostic> Build(const std::string& text, const char* language,
                                TreeBuilder* builder) {
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(*builder)) {
    }
  } catch (const Refused& refused) {
    return refused.why;
  } catch (const YAML::Exception& error) {
    const auto [message, hint] = WordsOfSyntax(error.msg);
    return Diagnostic{builder->At(error.mark), fmt::format("{} syntax: {}", language, message),
                      hint};
  } catch (const std::exception&) {
    return Diagnostic{builder->At(YAML::Mark::null_mark()),
                      fmt::format("cannot be read as {}", language), ""};
  }
  return std::nullopt;
}

}  // namespace

std::shared_ptr<YamlTree> ReadYaml(const SourcePtr& source, Diagnostics* diagnostics) {
  if (!CheckPlainText(source, diagnostics)) return nullptr;
  const std::string_view text = WithoutByteOrderMark(source->text);
  const std::size_t mark = source->text.size() - text.size();
  const bool json = LooksLikeJson(text);
  if (!json && !CheckNoTabIndentation(source, text, diagnostics)) return nullptr;

  const std::string parsed = json ? JsonForParser(text) : std::string(text);
  TreeBuilder builder(source, parsed, mark, diagnostics);
  if (const auto fault = Build(parsed, json ? "JSON" : "YAML", &builder)) {
    // Of a flow that has no end the parser names the place where it gave up, often an empty line.
    const bool open_flow = fault->message.find(kOpenFlow) != std::string::npos;
    const auto unbalanced = json        ? FindUnbalanced(text)
                            : open_flow ? FindOpenFlow(text, OffsetOf(text, fault->where))
                                        : std::nullopt;
    if (unbalanced) {
      diagnostics->Error(PlaceOf(source, mark + unbalanced->offset), unbalanced->message);
    } else if (json && open_flow) {  // all are closed
      diagnostics->Error(fault->where, "JSON syntax: a ':' or a ',' is missing in front of this");
    } else {
      diagnostics->Error(fault->where, fault->message, fault->hint);
    }
    return nullptr;
  }
  if (!builder.root() || builder.root()->kind == YamlTree::Kind::kNull) {
    diagnostics->Error({source, 0, 0}, "the document is empty");
    return nullptr;
  }
  return builder.root();
}

}  // namespace orrery
