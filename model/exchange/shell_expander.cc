// SPDX-License-Identifier: Apache-2.0
// Expands what stands behind "$", piece by piece.
#include "model/exchange/shell_expander.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "model/base/plain_text.h"
#include "model/exchange/shell_arithmetic.h"
#include "model/exchange/shell_commands.h"
#include "model/exchange/shell_effects.h"
#include "model/exchange/shell_words.h"

namespace orrery::exchange {
namespace {

constexpr std::size_t kMostWords = 1'000'000;  // after expansion: arrays in arrays grow fast
constexpr int kDeepest = 32;

std::size_t Closed(std::string_view text, std::size_t at) {
  return std::min(EndOfExpansion(text, at), text.size());
}

// Behind "[...]" at the front, whose expansions may hold brackets of their own; 0: there is none.
std::size_t EndOfSubscript(std::string_view text) {
  if (!text.starts_with('[')) return 0;
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (text[at] == ']') return at + 1;
    if (text[at] == '$' && at + 1 < text.size() && (text[at + 1] == '{' || text[at + 1] == '('))
      at = Closed(text, at + 1) - 1;
  }
  return 0;
}

}  // namespace

void ShellExpander::Store(const std::string& name, ShellVariable value, bool more,
                          const Location& where) {
  StoreVariable(branches_, name, std::move(value), more, where, &script_);
}

std::optional<int64_t> ShellExpander::Evaluate(std::string_view text, const Location& where) {
  const LookUp value_of = [this](const std::string& name) { return WholeOf(name); };
  const Assign assign = [&](const std::string& name, int64_t value) {
    Store(name, {{{std::to_string(value), where, ""}}, false}, false, where);
  };
  if (++nested_ > kDeepest) throw InputError({{where, "expansions are nested too deeply", ""}});
  auto value = Calculate(text, value_of, assign);
  if (!value && text.find_first_of("$`") != std::string_view::npos) {  // $((${#HOSTS[@]} * 8))
    const Word plain = Joined({{{std::string(text), Piece::kDouble}}, "", where, -1});
    if (plain.unresolved.empty()) value = Calculate(plain.text, value_of, assign);
  }
  --nested_;
  for (const std::string& name : value ? std::vector<std::string>() : AssignedIn(text)) {
    const Word lost{"", where, fmt::format("{} is set by arithmetic that needs a shell", name)};
    Store(name, {{lost}, false}, false, where);
  }
  return value;
}

// The word as one, as an assignment takes it.
Word ShellExpander::Joined(const Token& token) {
  Word word{"", token.where, ""};
  for (const Piece& piece : token.pieces) {
    Token one = token;
    one.pieces = {piece};
    if (piece.quote == Piece::kNone) one.pieces[0].quote = Piece::kDouble;
    const Words words = Expand(one, true);
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (i > 0) word.text += ' ';
      const std::size_t begin = word.text.size();
      word.text += words[i].text;
      const Location& last = word.parts.empty() ? word.where : word.parts.back().second;
      const Location& where = words[i].where;
      if (where.source && (where.source != last.source || where.line != last.line))
        word.parts.emplace_back(begin, where);
      for (const auto& [letter, place] : words[i].parts)
        word.parts.emplace_back(begin + letter, place);
      if (word.unresolved.empty()) word.unresolved = words[i].unresolved;
    }
  }
  return word;
}

// A word of the script as the words that it stands for.
Words ShellExpander::Expand(const Token& token, bool keep_holes) {
  WordBuilder builder(token, keep_holes, &script_);
  for (const Piece& piece : token.pieces) {
    if (piece.quote != Piece::kNone) builder.begun = true;
    if (piece.quote == Piece::kSingle) {
      PieceLines lines(piece);
      for (std::size_t at = 0; at < piece.text.size(); ++at) {
        builder.Own(&lines, at);
        builder.Add(std::string_view(piece.text).substr(at, 1), false);
      }
    } else {
      ExpandPiece(piece, &builder);
    }
  }
  builder.End();
  total_ += builder.words.size();
  if (total_ > kMostWords) throw InputError({{token.where, "too many words", ""}});
  return std::move(builder.words);
}

// What stands between words that are joined: the first letter of IFS.
Word ShellExpander::Separator() const {
  const auto at = script_.variables.find("IFS");
  if (at == script_.variables.end() || at->second.words.empty()) return {" ", {}, ""};
  Word separator = at->second.words[0];
  separator.text.resize(std::min<std::size_t>(separator.text.size(), 1));
  return separator;
}

void ShellExpander::ExpandPiece(const Piece& piece, WordBuilder* builder) {
  const bool quoted = piece.quote != Piece::kNone;
  const std::string_view text = piece.text;
  bool empty_list = false;
  PieceLines lines(piece);
  for (std::size_t at = 0; at < text.size();) {
    builder->Own(&lines, at);
    if (text[at] == '\1') {
      builder->Add(text.substr(at + 1, 1), false);
      at += 2;
      continue;
    }
    if (text[at] != '$' && text[at] != '`') {
      builder->Add(text.substr(at++, 1), false);
      continue;
    }
    std::size_t length = 0;
    const Part part = ExpandAt(text.substr(at), builder->token.where, &length);
    at += std::max<std::size_t>(1, length);
    const bool one = part.joined && quoted;
    for (std::size_t i = 0; i < part.words.size(); ++i) {
      if (i > 0 && one) builder->AddWord(Separator(), false);
      if (i > 0 && !one) builder->End();
      builder->AddWord(part.words[i], !quoted);
      if (part.several && quoted) builder->begun = true;
    }
    empty_list = part.several && part.words.empty() && !one;
  }
  if (empty_list && builder->current.text.empty()) builder->begun = false;
}

ShellExpander::Part ShellExpander::Unknown(const Location& where, std::string why) {
  return {{{"", where, std::move(why)}}, false};
}

// "$...": the words and how much of the text they took.
ShellExpander::Part ShellExpander::ExpandAt(std::string_view text, const Location& where,
                                            std::size_t* length) {
  if (text[0] == '`') {
    *length = std::min(text.find('`', 1), text.size() - 1) + 1;
    return Printed(text.substr(1, *length > 2 ? *length - 2 : 0), where);
  }
  if (text.starts_with("$((")) {
    *length = Closed(text, 1);
    if (text.substr(0, *length).ends_with("))")) {
      const std::string_view inside = text.substr(3, *length > 5 ? *length - 5 : 0);
      const auto value = Evaluate(inside, where);
      if (!value) return Unknown(where, fmt::format("$(({})) needs a shell", inside));
      return {{{std::to_string(*value), where, ""}}, false};
    }
  }
  if (text.starts_with("$(")) {
    *length = Closed(text, 1);
    return Printed(text.substr(2, *length > 3 ? *length - 3 : 0), where);
  }
  if (text.starts_with("${")) {
    *length = Closed(text, 1);
    return Braced(text.substr(2, *length - 3), where);
  }
  const std::size_t name = NameLength(text.substr(1));
  if (name == 0) {
    const bool special = text.size() > 1 && std::string_view("@*0123456789?#!$").find(text[1]) !=
                                                std::string_view::npos;
    *length = special ? 2 : 1;
    if (!special) return {{{"$", where, ""}}, false};
    if (text[1] == '@' || text[1] == '*')  // nobody gives arguments to a script here
      return {arguments_.value_or(Words()), true, text[1] == '*'};
    if (arguments_ && ((text[1] >= '1' && text[1] <= '9') || text[1] == '#'))
      return Argument(text[1], where);
    if (text[1] == '0' && !path_.empty()) return {{{path_, where, ""}}, false};
    return Unknown(where, fmt::format("${} comes from the command line", text[1]));
  }
  *length = 1 + name;
  return ValueOf(std::string(text.substr(1, name)), false, where);
}

ShellExpander::Part ShellExpander::Braced(std::string_view inside, const Location& where) {
  if (arguments_ && inside.size() == 1 && ((inside[0] >= '1' && inside[0] <= '9') || inside == "#"))
    return Argument(inside[0], where);
  std::size_t name = NameLength(inside);
  if (name == 0 && !inside.empty() && inside[0] >= '1' && inside[0] <= '9') name = 1;
  if (name == 0 && inside.starts_with('0') && !path_.empty()) {
    const Part own = {{{path_, where, ""}}, false};
    if (inside == "0") return own;
    if (inside == "0%/*" || inside == "0##*/")
      return Part{{PartOfPath(own.words, inside.substr(1), where)}, false};
  }
  if (inside.starts_with('#') && inside.size() > 1) return Counted(inside, where);
  if (inside.starts_with('!') && (inside.ends_with("[@]") || inside.ends_with("[*]")))
    return KeysOf(inside, where);
  if (name == 0)
    return inside == "@" || inside == "*"
               ? Part{arguments_.value_or(Words()), true, inside == "*"}
               : Unknown(where, fmt::format("${{{}}} needs a shell", inside));
  const std::string key(inside.substr(0, name));
  std::string_view rest = inside.substr(name);
  const bool joined = rest.starts_with("[*]"), list = joined || rest.starts_with("[@]");
  std::optional<Part> element;
  if (const std::size_t end = list ? 0 : EndOfSubscript(rest); end > 0) {
    element = ElementOf(key, rest.substr(1, end - 2), where);
    rest.remove_prefix(end);
  }
  if (list) rest.remove_prefix(3);
  const auto value = [&] {
    Part part = element ? *element : ValueOf(key, list, where);
    part.joined = joined;
    return part;
  };
  if (rest.empty()) return value();
  const bool colon = rest[0] == ':';
  const char op = rest.size() > (colon ? 1u : 0u) ? rest[colon ? 1 : 0] : ' ';
  if (op == '-' || op == '=') {
    if (arguments_ && key.size() == 1 && key[0] >= '1' && key[0] <= '9') {  // ${1:-4}
      Part argument = Argument(key[0], where);
      if (!argument.words.empty() &&
          (!argument.words[0].text.empty() || !argument.words[0].unresolved.empty()))
        return argument;
    }
    if (script_.variables.contains(key)) {
      Part known = value();
      if (!known.words.empty() &&
          (!known.words[0].text.empty() || !known.words[0].unresolved.empty()))
        return known;
    }
    Part part = Default(std::string(rest.substr(colon ? 2 : 1)), where);
    if (op == '=' && !element) Store(key, {part.words, false}, false, where);  // : "${TP:=2}"
    return part;
  }
  if (op == '+') return {{}, true};  // the environment is empty
  if (rest == "%/*" || rest == "##*/") return {{PartOfPath(value().words, rest, where)}, false};
  return Unknown(where, fmt::format("${{{}}} needs a shell", inside));
}

// $(...) of commands that name files.
ShellExpander::Part ShellExpander::Printed(std::string_view inside, const Location& where) {
  substitutes_ = true;
  const Part unknown = Unknown(where, "a command prints it");
  if (++nested_ > kDeepest) throw InputError({{where, "expansions are nested too deeply", ""}});
  if (auto document = PrintedDocument(inside)) {
    Part part{{Joined({{std::move(*document)}, "", where, -1})}, false};
    --nested_;
    return part;
  }
  std::vector<Command> commands(1);
  const auto source =
      std::make_shared<const Source>(Source{where.source->name, std::string(inside)});
  std::vector<Token> tokens = LexShell(source).tokens;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Token& token = tokens[i];
    token.where = where;
    if (token.word()) {
      const Word word = Joined(token);
      if (!word.unresolved.empty()) return --nested_, unknown;
      commands.back().push_back(word.text);
    } else if (token.op[0] == '>' || token.op[0] == '<') {
      ++i;  // the file behind it
    } else if (token.op == "&&" || token.op == ";" || token.op == "\n") {
      if (!commands.back().empty()) commands.emplace_back();
    } else if (token.op != "&" || i + 1 == tokens.size() || tokens[i + 1].op != ">") {
      return --nested_, unknown;
    }
  }
  --nested_;
  if (commands.back().empty()) commands.pop_back();
  const std::optional<std::string> text = PrintedBy(commands);
  return text ? Part{{{*text, where, ""}}, false} : unknown;
}

// What stands behind :-, quotes and expansions in it.
ShellExpander::Part ShellExpander::Default(const std::string& text, const Location& where) {
  if (++nested_ > kDeepest) throw InputError({{where, "expansions are nested too deeply", ""}});
  const auto source = std::make_shared<const Source>(Source{where.source->name, text});
  Part part;
  for (Token& token : LexShell(source).tokens) {
    token.where = where;
    if (token.word()) part.words.push_back(Joined(token));
  }
  --nested_;
  return part;
}

ShellExpander::Part ShellExpander::ValueOf(const std::string& name, bool list,
                                           const Location& where) const {
  const auto at = script_.variables.find(name);
  if (at == script_.variables.end()) return Unknown(where, fmt::format("${} {}", name, kUnset));
  const ShellVariable& variable = at->second;
  // Which of its elements stands first, the shell alone knows.
  if (list && variable.map && variable.words.size() > 1)
    return Unknown(where, fmt::format("the order of the elements of {} needs a shell", name));
  if (list) return {variable.words, true};
  if (variable.words.empty()) return {};
  if (variable.map) return Unknown(where, fmt::format("${} is an associative array", name));
  return {{variable.words.front()}, false};
}

// ${NAME[KEY]}
ShellExpander::Part ShellExpander::ElementOf(const std::string& name, std::string_view key,
                                             const Location& where) {
  const auto at = script_.variables.find(name);
  if (at == script_.variables.end()) return Unknown(where, fmt::format("${} {}", name, kUnset));
  const Part none = {{{"", where, ""}}, false};
  if (!at->second.map) {
    const auto index = Evaluate(key, where);
    const Words& words = script_.variables[name].words;
    const auto count = static_cast<int64_t>(words.size());
    if (!index) return Unknown(where, fmt::format("${{{}[{}]}} needs a shell", name, key));
    const int64_t place = *index < 0 ? count + *index : *index;
    for (int64_t i = 0; i < count && (i < place || *index < 0); ++i) {
      const Word& word = words[static_cast<std::size_t>(i)];
      if (!word.unresolved.empty()) return Unknown(where, word.unresolved);  // it may be several
    }
    return place < 0 || place >= count ? none
                                       : Part{{words[static_cast<std::size_t>(place)]}, false};
  }
  const bool quoted = key.size() > 1 && (key[0] == '"' || key[0] == '\'') && key.back() == key[0];
  Piece piece{std::string(quoted ? key.substr(1, key.size() - 2) : key),
              quoted && key[0] == '\'' ? Piece::kSingle : Piece::kDouble};
  if (++nested_ > kDeepest) throw InputError({{where, "expansions are nested too deeply", ""}});
  const Word wanted = Joined({{std::move(piece)}, "", where, -1});
  --nested_;
  if (!wanted.unresolved.empty()) return Unknown(where, wanted.unresolved);
  const ShellVariable& map = script_.variables[name];
  if (map.keys.size() != map.words.size()) {
    const std::string& why = map.words.back().unresolved;
    return Unknown(where, why.empty() ? fmt::format("{} needs a shell", name) : why);
  }
  const auto found = std::ranges::find(map.keys, wanted.text);
  return found == map.keys.end()
             ? none
             : Part{{map.words[static_cast<std::size_t>(found - map.keys.begin())]}, false};
}

// ${!NAME[@]}: keys of an associative array, numbers of another.
ShellExpander::Part ShellExpander::KeysOf(std::string_view inside, const Location& where) const {
  const std::string name(inside.substr(1, inside.size() - 4));
  const auto at = script_.variables.find(name);
  if (at == script_.variables.end()) return {{}, true};
  const ShellVariable& variable = at->second;
  Part part{{}, true, inside.ends_with("[*]")};
  for (std::size_t i = 0; i < variable.words.size(); ++i) {
    const bool known = variable.map ? variable.keys.size() == 1 && variable.words.size() == 1
                                    : variable.words[i].unresolved.empty();
    if (!known) return Unknown(where, fmt::format("${{{}}} needs a shell", inside));
    part.words.push_back({variable.map ? variable.keys[i] : std::to_string(i), where, ""});
  }
  return part;
}

std::optional<int64_t> ShellExpander::WholeOf(const std::string& name) const {
  const auto at = script_.variables.find(name);
  int64_t number = 0;
  if (at == script_.variables.end() || at->second.words.empty() ||
      !at->second.words[0].unresolved.empty() ||
      ParseInteger(at->second.words[0].text, &number) != NumberFault::kNone)
    return std::nullopt;
  return number;
}

// $1 to $9 and $# of a function's call.
ShellExpander::Part ShellExpander::Argument(char which, const Location& where) const {
  if (which == '#') return {{{std::to_string(arguments_->size()), where, ""}}, false};
  const auto at = static_cast<std::size_t>(which - '1');
  return at < arguments_->size() ? Part{{(*arguments_)[at]}, false} : Part{};
}

// ${#NAME[@]}
ShellExpander::Part ShellExpander::Counted(std::string_view inside, const Location& where) const {
  const std::string name(inside.substr(1, NameLength(inside.substr(1))));
  const std::string_view rest = inside.substr(1 + name.size());
  const auto at = script_.variables.find(name);
  if (at == script_.variables.end() || (rest != "[@]" && rest != "[*]"))
    return Unknown(where, fmt::format("${{{}}} needs a shell", inside));
  for (const Word& word : at->second.words) {
    if (!word.unresolved.empty()) return Unknown(where, word.unresolved);
  }
  return {{{std::to_string(at->second.words.size()), where, ""}}, false};
}

}  // namespace orrery::exchange
