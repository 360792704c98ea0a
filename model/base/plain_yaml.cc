// SPDX-License-Identifier: Apache-2.0
// A recursive descent that gives up at the first character of whose meaning it is not sure.
#include "model/base/plain_yaml.h"

#include <algorithm>
#include <string>

namespace orrery {
namespace {

constexpr std::size_t kLongestKey =
    200;  // yaml-cpp looks no further than 1,024 characters for the colon
constexpr std::size_t kMostKeys = 1000;  // of a map: each is compared with all before it

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool IsNull(std::string_view word) {
  return word == "null" || word == "Null" || word == "NULL" || word == "~";
}

class PlainYamlReader {
 public:
  using Tree = std::shared_ptr<YamlTree>;

  PlainYamlReader(const SourcePtr& source, std::string_view text) : source_(source), text_(text) {}

  // Null: given up.
  Tree Run() {
    if (!ToContent() || AtEnd()) return nullptr;
    Tree root = column() == 0 ? ReadBlock() : nullptr;
    return root && AtEnd() ? root : nullptr;
  }

 private:
  bool AtEnd() const { return at_ == text_.size(); }
  char Here(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\n';
  }
  int column() const { return static_cast<int>(at_ - line_start_); }
  Location where() const { return {source_, line_, column() + 1}; }
  bool AtItem() const { return Here() == '-' && Here(1) == ' '; }

  void SkipSpaces() {
    while (Here() == ' ') ++at_;
  }
  void NextLine() {
    at_ = std::min(text_.find('\n', at_), text_.size() - 1) + 1;
    line_start_ = at_;
    ++line_;
  }

  // Behind spaces, comments and ends of lines, from the start of a line or behind a value. False: a mark of documents.
  bool ToContent() {
    for (;;) {
      if (column() == 0 && (text_.substr(at_, 3) == "---" || text_.substr(at_, 3) == "..."))
        return false;
      SkipSpaces();
      if (AtEnd() || (Here() != '#' && Here() != '\n')) return true;
      NextLine();
    }
  }
  // From behind a value in its line to what comes next, which does not belong to it.
  bool EndLine() {
    const bool spaced = Here() == ' ';
    SkipSpaces();
    if (Here() != '\n' && !(Here() == '#' && spaced)) return false;
    if (AtEnd()) return true;
    NextLine();
    return ToContent();
  }

  Tree Make(YamlTree::Kind kind) const {
    auto node = std::make_shared<YamlTree>();
    node->kind = kind;
    node->where = where();
    return node;
  }

  Tree ReadBlock() {
    if (++depth_ > kMostNested / 2) return nullptr;
    Tree node = AtItem() ? ReadList() : ReadMap();
    --depth_;
    return node;
  }

  Tree ReadMap() {
    const int indent = column();
    Tree map = Make(YamlTree::Kind::kMap);
    do {
      if (!ReadKey(map.get())) return nullptr;
      Tree value;
      if (Here() == '\n' || Here() == '#') {
        if (AtEnd()) return nullptr;
        NextLine();
        // Without a value, or a list that is not indented.
        if (!ToContent() || AtEnd() || column() <= indent) return nullptr;
        value = ReadBlock();
      } else {
        value = ReadInLine();
      }
      if (!value) return nullptr;
      map->members.back().value = std::move(value);
    } while (!AtEnd() && column() == indent);
    return AtEnd() || column() < indent ? map : nullptr;
  }

  // 0: no key that this class reads begins here.
  std::size_t KeyLength() const {
    std::size_t length = 0;
    while (IsWordCharacter(Here(length)) ||
           (length > 0 && std::string_view("-.@/*").find(Here(length)) != std::string_view::npos))
      ++length;
    return length <= kLongestKey && Here(length) == ':' &&
                   (Here(length + 1) == ' ' || Here(length + 1) == '\n')
               ? length
               : 0;
  }

  // Up to its value, or to the end of the line or a comment.
  bool ReadKey(YamlTree* map) {
    const std::string_view key = text_.substr(at_, KeyLength());
    if (key.empty() || IsNull(key) || map->members.size() == kMostKeys) return false;
    if (std::ranges::find(map->members, key, &YamlTree::Member::key) != map->members.end())
      return false;
    map->members.push_back({std::string(key), where(), nullptr});
    at_ += key.size() + 1;
    SkipSpaces();
    return true;
  }

  Tree ReadList() {
    const int indent = column();
    Tree list = Make(YamlTree::Kind::kSequence);
    do {
      if (!AtItem()) return nullptr;
      ++at_;
      SkipSpaces();
      Tree item = AtItem() || KeyLength() > 0 ? ReadBlock() : ReadInLine();
      if (!item) return nullptr;
      list->elements.push_back(std::move(item));
    } while (!AtEnd() && column() == indent);
    return AtEnd() || column() < indent ? list : nullptr;
  }

  // A value that begins in this line, and whatever stands behind it up to the next one.
  Tree ReadInLine() {
    Tree value = Here() == '[' || Here() == '{' ? ReadFlow() : ReadScalar(false);
    return value && EndLine() ? value : nullptr;
  }

  Tree ReadScalar(bool in_flow) {
    if (Here() == '"' || Here() == '\'') return ReadQuoted();
    const bool negative = Here() == '-' || Here() == '.' || Here() == '+' || Here() == '/';
    if (!IsWordCharacter(Here(negative ? 1 : 0))) return nullptr;
    Tree node = Make(YamlTree::Kind::kScalar);
    const std::size_t begin = at_;
    std::size_t end = at_;  // without spaces behind it
    for (; Here() != '\n'; ++at_) {
      const char c = Here();
      if (c == ' ') continue;
      if (c == '#' && at_ > end) break;
      if (in_flow && (c == ',' || c == ']' || c == '}')) break;
      if (in_flow && (c == ':' || c == '?' || c == '[' || c == '{')) return nullptr;
      if (c == ':' && (Here(1) == ' ' || Here(1) == '\n')) return nullptr;
      end = at_ + 1;
    }
    at_ = end;
    node->text = text_.substr(begin, end - begin);
    return IsNull(node->text) ? nullptr : node;
  }

  Tree ReadQuoted() {
    Tree node = Make(YamlTree::Kind::kScalar);
    const char quote = Here();
    const std::size_t begin = ++at_;
    while (Here() != quote) {
      if (Here() == '\n' || Here() == '\\') return nullptr;
      ++at_;
    }
    node->text = text_.substr(begin, at_ - begin);
    node->quoted = true;
    ++at_;
    return Here() == quote ? nullptr : node;  // '' is an escape
  }

  // In brackets, over any number of lines.
  Tree ReadFlow() {
    if (++depth_ > kMostNested / 2) return nullptr;
    const bool is_map = Here() == '{';
    const char close = is_map ? '}' : ']';
    Tree node = Make(is_map ? YamlTree::Kind::kMap : YamlTree::Kind::kSequence);
    ++at_;
    if (!ToFlow()) return nullptr;
    while (Here() != close || !(node->elements.empty() && node->members.empty())) {
      if (is_map && (!ReadKey(node.get()) || !ToFlow())) return nullptr;
      Tree value = Here() == '[' || Here() == '{' ? ReadFlow() : ReadScalar(true);
      if (!value || !ToFlow()) return nullptr;
      if (is_map)
        node->members.back().value = std::move(value);
      else
        node->elements.push_back(std::move(value));
      if (Here() == close) break;
      if (Here() != ',') return nullptr;
      ++at_;
      if (!ToFlow()) return nullptr;
    }
    ++at_;
    --depth_;
    return node;
  }

  // To what comes next in brackets; a comment stands apart from what is before it.
  bool ToFlow() {
    if (Here() == '#' && at_ > 0 && text_[at_ - 1] != ' ') return false;
    return ToContent() && !AtEnd();
  }

  const SourcePtr& source_;
  const std::string_view text_;
  std::size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
  int depth_ = 0;
};

}  // namespace

std::shared_ptr<YamlTree> ReadPlainYaml(const SourcePtr& source) {
  const std::string_view text = source->text;
  if (text.find('\r') != text.npos || text.find('\t') != text.npos) return nullptr;
  return PlainYamlReader(source, text).Run();
}

}  // namespace orrery
