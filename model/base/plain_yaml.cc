// SPDX-License-Identifier: Apache-2.0
// A reader by recursive descent that gives up at the first thing that is not plain.
#include "model/base/plain_yaml.h"

#include <algorithm>
#include <utility>

namespace orrery {
namespace {

using Tree = std::shared_ptr<YamlTree>;

constexpr std::size_t kMostKeys = 500;    // of one map
constexpr std::size_t kLongestKey = 200;  // YAML takes keys of up to 1,024 characters

bool IsNullWord(std::string_view text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

// What may begin a plain scalar; YAML takes more.
bool BeginsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '/' || c == '(' || c == '<' || c == '+' || c == '=' || c == '~' ||
         c == '^' || static_cast<unsigned char>(c) >= 0x80;
}

class PlainReader {
 public:
  explicit PlainReader(const SourcePtr& source) : source_(source), text_(source->text) {}

  Tree Read() {
    // A tab or a carriage return may be space or text, a backslash an escape; a byte order mark is neither.
    if (text_.find_first_of("\t\r\\") != text_.npos || text_.starts_with("\xEF\xBB\xBF"))
      return nullptr;
    if (!NextContent()) return nullptr;
    if (indent_ != 0) return nullptr;
    Tree root = Root();
    return root && !NextContent() && !odd_ ? root : nullptr;
  }

 private:
  Tree Root() {
    if (Peek() == '{' || Peek() == '[') return Value(0, -1);
    return AtListEntry() ? List(0, 0) : Map(0, 0);
  }

  bool AtListEntry() const { return Peek() == '-' && Peek(1) == ' '; }
  char Peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\n';
  }
  bool AtLineEnd() const { return Peek() == '\n'; }
  Location Here() const { return {source_, line_, static_cast<int>(at_ - line_start_) + 1}; }
  int Column() const { return static_cast<int>(at_ - line_start_); }

  void NextLine() {
    const std::size_t end = text_.find('\n', at_);
    at_ = end == text_.npos ? text_.size() : end + 1;
    line_start_ = at_;
    ++line_;
  }

  // Goes to the next text that is no comment, from the start of a line; false: there is none.
  bool NextContent() {
    while (at_ < text_.size()) {
      const std::size_t first = std::min(text_.find_first_not_of(' ', at_), text_.size());
      if (first == text_.size()) break;
      if (text_[first] != '\n' && text_[first] != '#') {
        at_ = first;
        indent_ = Column();
        const std::string_view rest = text_.substr(at_, 3);
        odd_ |= indent_ == 0 && (rest == "---" || rest == "..." || rest[0] == '%');
        return !odd_;
      }
      NextLine();
    }
    at_ = text_.size();
    indent_ = -1;
    return false;
  }

  void SkipSpaces() {
    while (Peek() == ' ' && at_ < text_.size()) ++at_;
  }

  // After a value: nothing but a comment may follow, and no line that continues it. Goes to the next content.
  bool EndValue(int indent) {
    const bool spaced = Peek() == ' ';
    SkipSpaces();
    if (!AtLineEnd() && !(spaced && Peek() == '#')) return false;
    NextLine();
    NextContent();
    return !odd_ && indent_ <= indent;
  }

  Tree Make(YamlTree::Kind kind) const {
    auto tree = std::make_shared<YamlTree>();
    tree->kind = kind;
    tree->where = Here();
    return tree;
  }

  // Length of a block map's key at this place; 0: none. What follows is a colon.
  std::size_t KeyLength() const {
    if (!BeginsPlain(Peek())) return 0;
    for (std::size_t i = 1; i < kLongestKey; ++i) {
      const char c = Peek(i);
      if (c == ':' && (Peek(i + 1) == ' ' || Peek(i + 1) == '\n')) return i;
      if (c == '\n' || c == ' ' || c == '#' || c == ':') return 0;
    }
    return 0;
  }

  Tree List(int indent, int depth) {
    if (depth + 2 >= kMostNested) return nullptr;
    Tree list = Make(YamlTree::Kind::kSequence);
    while (indent_ == indent && AtListEntry()) {
      ++at_;
      SkipSpaces();
      Tree element = KeyLength() > 0 ? MapInList(indent, depth + 1) : Value(indent, depth);
      if (!element) return nullptr;
      list->elements.push_back(std::move(element));
    }
    return list;
  }

  Tree MapInList(int indent, int depth) {
    const int inner = indent_ = Column();
    Tree map = Map(inner, depth);
    return indent_ <= indent ? map : nullptr;
  }

  Tree Map(int indent, int depth) {
    if (depth + 2 >= kMostNested) return nullptr;
    Tree map = Make(YamlTree::Kind::kMap);
    while (indent_ == indent) {
      const std::size_t length = KeyLength();
      if (length == 0 || !AddKey(map.get(), text_.substr(at_, length))) return nullptr;
      at_ += length + 1;
      SkipSpaces();
      Tree value = AtLineEnd() || Peek() == '#' ? Below(indent, depth) : Value(indent, depth);
      if (!value) return nullptr;
      map->members.back().value = std::move(value);
    }
    return indent_ < indent ? map : nullptr;
  }

  // A key that stands twice is an error, and is looked for in few keys only.
  static bool IsNew(const YamlTree& map, std::string_view key) {
    return map.members.size() < kMostKeys &&
           std::ranges::none_of(map.members,
                                [&](const YamlTree::Member& known) { return known.key == key; });
  }

  bool AddKey(YamlTree* map, std::string_view key) const {
    if (IsNullWord(key) || !IsNew(*map, key)) return false;
    map->members.push_back({std::string(key), Here(), nullptr});
    return true;
  }

  // The value of a key on the lines below it: a list may stand as far left as its key.
  Tree Below(int indent, int depth) {
    NextLine();
    if (!NextContent()) return nullptr;
    const bool list = AtListEntry();
    if (indent_ < indent || (indent_ == indent && !list)) return nullptr;
    const int inner = indent_;
    Tree value = list ? List(inner, depth + 1) : Map(inner, depth + 1);
    return indent_ <= indent && !(list && AtListEntry()) ? value : nullptr;
  }

  // On one line, or in brackets.
  Tree Value(int indent, int depth) {
    const char c = Peek();
    if (c == '{' || c == '[') {
      Tree tree = Flow(depth + 1);
      return tree && EndValue(indent) ? tree : nullptr;
    }
    Tree scalar = c == '"' || c == '\'' ? Quoted() : PlainInBlock();
    return scalar && EndValue(indent) ? scalar : nullptr;
  }

  Tree Quoted() {
    const char quote = Peek();
    Tree scalar = Make(YamlTree::Kind::kScalar);
    const std::size_t end = text_.find_first_of(quote == '"' ? "\"\n" : "'\n", at_ + 1);
    if (end == text_.npos || text_[end] == '\n') return nullptr;
    scalar->text = text_.substr(at_ + 1, end - at_ - 1);
    scalar->quoted = true;
    at_ = end + 1;
    return quote == '\'' && Peek() == '\'' ? nullptr : scalar;  // '' is a quote in single quotes
  }

  bool BeginsScalar() const {
    return BeginsPlain(Peek()) || (Peek() == '-' && BeginsPlain(Peek(1)));
  }

  Tree Scalar(std::size_t end) {
    while (end > at_ && text_[end - 1] == ' ') --end;
    const std::string_view text = text_.substr(at_, end - at_);
    if (IsNullWord(text)) return nullptr;
    Tree scalar = Make(YamlTree::Kind::kScalar);
    scalar->text = text;
    at_ = end;
    return scalar;
  }

  Tree PlainInBlock() {
    if (!BeginsScalar()) return nullptr;
    std::size_t end = at_;
    for (; end < text_.size() && text_[end] != '\n'; ++end) {
      if (text_[end] == '#' && text_[end - 1] == ' ') break;
      if (text_[end] == ':' &&
          (end + 1 == text_.size() || text_[end + 1] == ' ' || text_[end + 1] == '\n'))
        return nullptr;
    }
    return Scalar(end);
  }

  Tree PlainInFlow() {
    if (!BeginsScalar()) return nullptr;
    const std::size_t end =
        std::min(text_.find_first_of(",[]{}?:#\"'&*!|>%@`\n", at_ + 1), text_.size());
    if (end == text_.size()) return nullptr;
    const char c = text_[end];
    return c == ',' || c == ']' || c == '}' || c == ':' || c == '\n' ? Scalar(end) : nullptr;
  }

  // To the next text inside of brackets.
  bool SkipInFlow() {
    for (;;) {
      const bool spaced = Column() == 0 || text_[at_ - 1] == ' ' || Peek() == ' ';
      SkipSpaces();
      if (at_ >= text_.size()) return false;
      if (AtLineEnd() || (spaced && Peek() == '#')) {
        NextLine();
        continue;
      }
      return Peek() != '#' && !(Column() == 0 && (Peek() == '-' || Peek() == '.' || Peek() == '%'));
    }
  }

  Tree Flow(int depth) {
    if (depth + 1 >= kMostNested) return nullptr;
    const bool map = Peek() == '{';
    Tree tree = Make(map ? YamlTree::Kind::kMap : YamlTree::Kind::kSequence);
    const char close = map ? '}' : ']';
    ++at_;
    if (!SkipInFlow()) return nullptr;
    while (Peek() != close) {
      if (!(map ? FlowMember(tree.get(), depth) : FlowElement(tree.get(), depth)) || !SkipInFlow())
        return nullptr;
      if (Peek() == close) break;
      if (Peek() != ',') return nullptr;
      ++at_;
      // A comma in front of the end is right in YAML, wrong in JSON.
      if (!SkipInFlow() || Peek() == close) return nullptr;
    }
    ++at_;
    return tree;
  }

  Tree FlowValue(int depth) {
    const char c = Peek();
    if (c == '{' || c == '[') return Flow(depth + 1);
    return c == '"' || c == '\'' ? Quoted() : PlainInFlow();
  }

  bool FlowElement(YamlTree* list, int depth) {
    Tree element = FlowValue(depth);
    if (!element || Peek() == ':') return false;
    list->elements.push_back(std::move(element));
    return true;
  }

  bool FlowMember(YamlTree* map, int depth) {
    const Location where = Here();
    const bool quoted = Peek() == '"' || Peek() == '\'';
    const Tree key = quoted ? Quoted() : PlainInFlow();
    if (!key || Peek() != ':' || key->text.size() > kLongestKey) return false;
    ++at_;
    if ((!quoted && Peek() != ' ') || !IsNew(*map, key->text) || !SkipInFlow()) return false;
    Tree value = FlowValue(depth);
    if (!value || Peek() == ':') return false;
    map->members.push_back({std::move(key->text), where, std::move(value)});
    return true;
  }

  const SourcePtr& source_;
  const std::string_view text_;
  std::size_t at_ = 0;
  std::size_t line_start_ = 0;
  int line_ = 1;
  int indent_ = -1;   // of the content at at_, in a block; -1: there is no more
  bool odd_ = false;  // a line begins a document or a directive
};

}  // namespace

std::shared_ptr<YamlTree> ReadPlainYaml(const SourcePtr& source) {
  return PlainReader(source).Read();
}

}  // namespace orrery
