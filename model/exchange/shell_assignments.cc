// SPDX-License-Identifier: Apache-2.0
// What assignments leave behind.
#include "model/exchange/shell_assignments.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "model/exchange/shell_arithmetic.h"
#include "model/exchange/shell_effects.h"

namespace orrery::exchange {
namespace {

Token TokenOf(const Token& of, std::vector<Piece> pieces) {
  return {std::move(pieces), "", of.where, -1};
}

constexpr std::string_view kDeclarers[] = {"export", "declare", "local", "readonly", "typeset"};

}  // namespace

bool ShellAssigner::Declares(const std::string& name, bool in_function) {
  if (std::ranges::find(kDeclarers, name) == std::end(kDeclarers)) return false;
  declares_ = true;
  local_ = in_function && name != "export" && name != "readonly";
  for (++at_; at_ < tokens().size() && tokens()[at_].word(); ++at_) {
    const std::string option = tokens()[at_].Plain();
    if (!option.starts_with('-') && !option.starts_with('+')) break;
    const auto has = [&](char letter) {
      return option.starts_with('-') && option.find(letter) != std::string::npos;
    };
    integer_ |= has('i');
    map_ |= has('A');
    reference_ |= has('n') && name != "export";
    local_ = local_ && !has('g');
  }
  return true;
}

std::string ShellAssigner::Declared() {
  const Token& token = tokens()[at_++];
  if (branches_.Skips()) return "";
  const Word word = Joined(token);
  const std::size_t length = NameLength(word.text);
  const std::string name = word.text.substr(0, length);
  const std::string_view rest = std::string_view(word.text).substr(length);
  if (length == 0 || (!rest.empty() && rest[0] != '=' && !rest.starts_with("+=")))
    return word.unresolved;  // export $(cat .env)
  KeepLocal(name);
  if (!rest.empty()) {  // "NAME=..."
    const bool more = rest[0] == '+';
    Word value = word;
    value.text = rest.substr(more ? 2 : 1);
    for (auto& [letter, place] : value.parts)
      letter -= std::min(letter, word.text.size() - value.text.size());
    Store(name, {{std::move(value)}, false}, more, token.where);
  } else if (map_) {
    ShellVariable& variable = script_.variables[name];
    variable.map = variable.array = true;
  } else if (integer_) {
    integers_.insert(name);
  } else if (local_) {
    script_.variables.erase(name);
  }
  return "";
}

void ShellAssigner::EndAssignments() { declares_ = local_ = map_ = integer_ = reference_ = false; }

void ShellAssigner::KeepLocal(const std::string& name) {
  if (!local_ || branches_.Skips() || locals_.contains(name)) return;
  if (branches_.Unknown()) {  // the function may set that of the script
    locals_[name] = ShellVariable{{{"", Location(), name + " is local in a branch"}}, false};
    return;
  }
  const auto before = script_.variables.find(name);
  locals_[name] = before == script_.variables.end() ? std::optional<ShellVariable>()
                                                    : std::optional(before->second);
}

bool ShellAssigner::Assignment() {
  const Token& token = tokens()[at_];
  if (token.pieces.empty() || token.pieces[0].quote != Piece::kNone) return false;
  const std::string_view text = token.pieces[0].text;
  const std::size_t name = NameLength(text);
  if (name == 0 || name >= text.size()) return false;
  const std::string variable(text.substr(0, name));
  if (text[name] == '[') return AssignElement(variable, token);
  const bool more = text.substr(name).starts_with("+=");
  if (!more && text[name] != '=') return false;
  const std::size_t behind = name + (more ? 2 : 1);
  const bool list = token.pieces.size() == 1 && behind == text.size() &&
                    at_ + 1 < tokens().size() && tokens()[at_ + 1].op == "(";
  const Location where = token.where;
  const auto known = script_.variables.find(variable);
  KeepLocal(variable);
  if (list && (map_ || (known != script_.variables.end() && known->second.map))) {
    AssignMap(variable, more, where);
    return true;
  }
  ShellVariable value;
  if (list) {
    value.array = true;
    value.words = List();
  } else {
    Token rest = token;
    rest.pieces[0].text = std::string(text.substr(behind));
    value.words = {Joined(rest)};
    ++at_;
  }
  if (integer_ && !branches_.Skips()) integers_.insert(variable);
  if (reference_) return StoreReference(variable, value.words, where), true;
  if (!list && integers_.contains(variable)) {
    const std::string sum = more ? variable + "+(" + value.words[0].text + ")" : "";
    Evaluate(variable + "=" + (more ? sum : value.words[0].text), where);
  } else {
    Store(variable, std::move(value), more, where);
  }
  return true;
}

// declare -n NAME=TARGET: what is given to NAME later is TARGET's.
void ShellAssigner::StoreReference(const std::string& name, const Words& target,
                                   const Location& where) {
  Words names = target;
  names.push_back({name, where, ""});
  for (const Word& one : names) {
    if (one.unresolved.empty() && !one.text.empty())
      Store(one.text, {{{"", where, fmt::format("{} is set through {}", one.text, name)}}, false},
            false, where);
  }
}

std::optional<ShellAssigner::Element> ShellAssigner::ElementIn(const Token& token,
                                                               std::size_t front) {
  std::vector<Piece> key, value;
  for (std::size_t i = 0; i < token.pieces.size(); ++i) {
    const Piece& piece = token.pieces[i];
    const std::size_t begin = i == 0 ? front + 1 : 0;  // behind "["
    const std::size_t end = piece.quote != Piece::kNone ? std::string::npos
                                                        : std::min(piece.text.find("]=", begin),
                                                                   piece.text.find("]+=", begin));
    if (end == std::string::npos) {
      key.push_back({piece.text.substr(std::min(begin, piece.text.size())), piece.quote});
      continue;
    }
    key.push_back({piece.text.substr(begin, end - begin), Piece::kNone});
    const bool more = piece.text[end + 1] == '+';
    value.push_back({piece.text.substr(end + (more ? 3 : 2)), Piece::kNone});
    value.insert(value.end(), token.pieces.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                 token.pieces.end());
    return Element{Joined(TokenOf(token, key)), Joined(TokenOf(token, value)), more};
  }
  return std::nullopt;
}

// NAME[KEY]=VALUE
bool ShellAssigner::AssignElement(const std::string& name, const Token& token) {
  const Location where = token.where;
  const std::optional<Element> element = ElementIn(token, name.size());
  if (!element) return false;
  ++at_;
  if (branches_.Skips()) return true;
  KeepLocal(name);
  StoreElement(name, *element, where);
  return true;
}

// Where a branch or loop sets it, the element alone is not known.
void ShellAssigner::StoreElement(const std::string& name, const Element& element,
                                 const Location& where) {
  ShellVariable& variable = script_.variables[name];
  const auto lose = [&](std::string why) {  // which element it is
    variable.words.push_back({"", where, std::move(why)});
  };
  Word value = element.value;
  if (branches_.Unknown())
    value = {"", where,
             fmt::format("{}[{}] is set in a {}", name, element.key.text,
                         branches_.InLoop() ? "loop" : "branch")};
  if (!element.key.unresolved.empty()) return lose(element.key.unresolved);
  std::size_t at = 0;
  if (variable.map) {
    if (variable.keys.size() != variable.words.size()) return;  // nobody knows which there are
    at = static_cast<std::size_t>(std::ranges::find(variable.keys, element.key.text) -
                                  variable.keys.begin());
    if (at == variable.keys.size()) variable.keys.push_back(element.key.text);
  } else {
    const auto index = Evaluate(element.key.text, where);
    variable.array = true;
    if (!index || *index < 0 || *index > static_cast<int64_t>(variable.words.size()))
      return lose(fmt::format("{} has an index that needs a shell", name));
    at = static_cast<std::size_t>(*index);
  }
  Words& words = variable.words;
  if (at == words.size()) {
    words.push_back(std::move(value));
  } else if (element.more && value.unresolved.empty()) {
    words[at].text += value.text;
  } else {
    words[at] = std::move(value);
  }
}

// NAME=([KEY]=VALUE ...)
void ShellAssigner::AssignMap(const std::string& name, bool more, const Location& where) {
  std::vector<Element> elements;
  bool whole = true;
  for (at_ += 2; at_ < tokens().size() && tokens()[at_].op != ")"; ++at_) {
    const Token& token = tokens()[at_];
    if (!token.word()) continue;
    const bool bracket = !token.pieces.empty() && token.pieces[0].quote == Piece::kNone &&
                         token.pieces[0].text.starts_with('[');
    std::optional<Element> element;
    if (bracket) element = ElementIn(token, 0);
    whole = whole && element;
    if (element) elements.push_back(std::move(*element));
  }
  if (at_ >= tokens().size())
    throw InputError({{tokens().back().where, "a list of words is never closed", ""}});
  ++at_;
  if (branches_.Skips()) return;
  ShellVariable value{{}, true, true, {}};
  if (!whole) value.words = {{"", where, fmt::format("{} is no list of [KEY]=VALUE", name)}};
  if (branches_.Unknown() && !more) {
    Store(name, {{{"", where, ""}}, true}, false, where);  // as of other arrays there
    script_.variables[name].map = true;
    script_.variables[name].keys.clear();
    return;
  }
  ShellVariable& variable = script_.variables[name];
  if (!more || !whole) variable = std::move(value);
  variable.map = variable.array = true;
  for (const Element& element : elements) {
    if (whole) StoreElement(name, element, where);
  }
}

Words ShellAssigner::List() {
  Words words;
  int depth = 1;
  for (at_ += 2; at_ < tokens().size() && depth > 0; ++at_) {
    if (tokens()[at_].op == "(") ++depth;
    if (tokens()[at_].op == ")") --depth;
    if (!tokens()[at_].word()) continue;
    for (Word& word : Expand(tokens()[at_])) words.push_back(std::move(word));
  }
  if (depth > 0) throw InputError({{tokens().back().where, "a list of words is never closed", ""}});
  return words;
}

}  // namespace orrery::exchange
