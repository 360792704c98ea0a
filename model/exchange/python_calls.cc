// SPDX-License-Identifier: Apache-2.0
// Finds calls in the text of a program, whose comments and quoted texts are blanked out for that.
#include "model/exchange/python_calls.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "model/base/plain_text.h"
#include "model/base/text.h"
#include "model/exchange/document.h"
#include "model/exchange/shell_arithmetic.h"

namespace orrery::exchange {
namespace {

constexpr std::size_t kMostPythonCalls = 512;
constexpr int kMostDictionaries = 8;  // that one call is handed

// Without blanks and ends of lines around it.
std::string_view Bare(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

bool OfName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// A program's text, place by place: `code` without comments and without what stands in quotes, `plain` without comments.
struct Blanked {
  std::string code, plain;
};
Blanked Blank(const std::string& text) {
  Blanked out{text, text};
  const auto blank = [&](std::string* in, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      if (text[i] != '\n') (*in)[i] = ' ';
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '#') {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      blank(&out.code, at, end);
      blank(&out.plain, at, end);
      at = end;
    } else if (c == '"' || c == '\'') {
      const std::string three(3, c);
      const bool block = text.compare(at, 3, three) == 0;
      std::size_t end = at + (block ? 3 : 1);
      for (; end < text.size(); ++end) {
        if (text[end] == '\\') {
          ++end;
        } else if (block ? text.compare(end, 3, three) == 0 : text[end] == c || text[end] == '\n') {
          break;
        }
      }
      blank(&out.code, at + 1, std::min(end, text.size()));
      at = end + (block ? 2 : 0);
    }
  }
  return out;
}

// NAME = LITERAL at the beginning of a line, of names that no other line sets.
std::map<std::string, std::string> ConstantsOf(std::string_view text,
                                               const std::vector<std::size_t>& ends) {
  std::map<std::string, int> set;
  std::map<std::string, std::string> values;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin), code = Trim(line);
    begin = end + 1;
    const std::string name(code.substr(0, NameLength(code)));
    const std::string_view rest = Trim(code.substr(name.size()));
    const std::size_t equals = rest.find('=');
    if (name.empty() || equals == std::string_view::npos || equals > 3 ||
        rest.substr(equals).starts_with("==") ||
        rest.substr(0, equals).find_first_not_of("+-*/%|&^<>") != std::string_view::npos)
      continue;
    ++set[name];
    if (equals != 0 || !line.starts_with(name)) continue;
    std::string_view value = Trim(rest.substr(1));
    const auto at = static_cast<std::size_t>(value.data() - text.data());
    if (!value.empty() && ends[at] > end)  // a list goes on in the next lines
      value = text.substr(at, ends[at] + 1 - at);
    values[name] = value;
  }
  std::erase_if(values, [&](const auto& row) { return set[row.first] > 1; });
  return values;
}

// Whole numbers of constants: "128 // (BS * 8)"; "": something else.
std::string Calculated(std::string text, const std::map<std::string, std::string>& constants) {
  for (std::size_t at = 0; (at = text.find('/', at)) != std::string::npos; ++at) {
    if (!text.substr(at).starts_with("//")) return "";  // no whole number
    text.erase(at, 1);
  }
  const auto value = Calculate(text, [&](const std::string& name) -> std::optional<int64_t> {
    const auto known = constants.find(name);
    int64_t number = 0;
    if (known == constants.end() ||
        ParseInteger(PythonLiteral(known->second), &number) != NumberFault::kNone)
      return std::nullopt;
    return number;
  });
  return value && *value >= 0 ? std::to_string(*value) : "";
}

// Parts of a text between the `separator`s that stand in no brackets and quotes.
std::vector<std::string_view> PartsOf(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      for (++at; at < text.size() && text[at] != c; ++at) at += text[at] == '\\' ? 1 : 0;
    } else if (c == '(' || c == '[' || c == '{') {
      ++depth;
    } else if (c == ')' || c == ']' || c == '}') {
      --depth;
    } else if (c == separator && depth == 0) {
      parts.push_back(text.substr(begin, at - begin));
      begin = at + 1;
    }
  }
  parts.push_back(text.substr(std::min(begin, text.size())));
  return parts;
}

class ProgramCalls {
 public:
  explicit ProgramCalls(const SourcePtr& source)
      : source_(source), text_(Blank(source->text)), ends_(text_.code.size(), 0) {
    std::vector<std::size_t> open;
    for (std::size_t at = 0; at < text_.code.size(); ++at) {
      const char c = text_.code[at];
      if (c == '(' || c == '[' || c == '{') open.push_back(at);
      if ((c != ')' && c != ']' && c != '}') || open.empty()) continue;
      ends_[open.back()] = at;
      open.pop_back();
    }
    constants_ = ConstantsOf(text_.plain, ends_);
  }

  std::vector<PythonCall> Find(const std::function<bool(std::string_view)>& asked) {
    std::vector<PythonCall> calls;
    const std::string_view code = text_.code;
    int line = 1;
    for (std::size_t at = 0; at < code.size() && calls.size() < kMostPythonCalls; ++at) {
      if (code[at] == '\n') ++line;
      if (code[at] != '(' || at == 0 || !OfName(code[at - 1])) continue;
      std::size_t name = at, path = at;
      while (name > 0 && OfName(code[name - 1])) --name;
      const std::string_view function = code.substr(name, at - name);
      if (!asked(function)) continue;
      path = name;
      while (path > 0 && (OfName(code[path - 1]) || code[path - 1] == '.')) --path;
      const std::size_t begun = code.rfind('\n', path) + 1;
      const std::string_view front = Trim(code.substr(begun, path - begun));
      if (front == "class" || front == "def" || front == "async def") continue;
      if (ends_[at] == 0) throw InputError({{{source_, line, 1}, "the call is never closed", ""}});
      PythonCall call;
      call.function = function;
      if (name > path) call.object = code.substr(path, name - path - 1);
      call.where = {source_, line, 1};
      call.begin = path;
      call.end = ends_[at] + 1;
      if (front.ends_with('=')) {
        const std::string_view target = Trim(front.substr(0, front.size() - 1));
        const std::string_view variable = Trim(target.substr(0, target.find(':')));  // "a: A = A("
        if (NameLength(variable) == variable.size()) call.variable = variable;
      }
      call.branch = BranchOf(begun);
      call.arguments = ArgumentsOf(at + 1, ends_[at], line, kMostDictionaries);
      calls.push_back(std::move(call));
    }
    return calls;
  }

  std::vector<PythonAssignment> AttributesSet() const {
    std::vector<PythonAssignment> all;
    const std::string_view code = text_.code;
    int line = 0;
    for (std::size_t begin = 0; begin < code.size() && all.size() < kMostPythonCalls;) {
      const std::size_t newline = std::min(code.find('\n', begin), code.size());
      const std::size_t equals = EqualsIn(begin, newline);
      const std::size_t line_begin = begin;
      begin = newline + 1;
      ++line;
      if (equals == std::string::npos) continue;
      const std::string_view left = Trim(code.substr(line_begin, equals - line_begin));
      std::string_view target = left;
      while (!target.empty() &&
             std::string_view("+-*/%|&^<>@ ").find(target.back()) != std::string_view::npos)
        target.remove_suffix(1);
      const std::size_t dot = target.rfind('.');
      if (dot == std::string_view::npos ||
          NameLength(target.substr(dot + 1)) + dot + 1 != target.size() || dot + 1 == target.size())
        continue;
      std::size_t object = dot;  // behind "for p in model.parameters(): " as well
      while (object > 0 && (OfName(target[object - 1]) || target[object - 1] == '.')) --object;
      PythonAssignment one;
      one.object = target.substr(object, dot - object);
      one.begin = line_begin;
      const std::string_view front = Trim(target.substr(0, object));
      one.branch = front.ends_with(':') && !front.starts_with("for ") ? std::string(front)
                                                                      : BranchOf(line_begin);
      one.set.name = target.substr(dot + 1);
      one.set.where = {source_, line, 1};
      one.set.code =
          Bare(std::string_view(text_.plain).substr(equals + 1, StatementEnd(equals) - equals - 1));
      if (target.size() == left.size()) one.set.value = ValueOf(one.set.code, one.set.where, 0);
      all.push_back(std::move(one));
    }
    return all;
  }

 private:
  // The "=" of an assignment between two places that stands in no brackets; npos: there is none.
  std::size_t EqualsIn(std::size_t begin, std::size_t end) const {
    for (std::size_t at = begin; at < end; ++at) {
      if (ends_[at] != 0) {
        at = ends_[at];
      } else if (text_.code[at] == '=') {
        const char before = at > begin ? text_.code[at - 1] : ' ';
        const bool twice = text_.code.compare(at, 2, "==") == 0;
        const bool shifts = at > begin + 1 && text_.code[at - 2] == before;  // "<<="
        if (!twice && (shifts || (before != '!' && before != '<' && before != '>'))) return at;
        at += twice ? 1 : 0;
      }
    }
    return std::string::npos;
  }

  // Of the statement that `at` stands in: an end of a line that no bracket holds open.
  std::size_t StatementEnd(std::size_t at) const {
    for (; at < text_.code.size() && text_.code[at] != '\n' && text_.code[at] != ';'; ++at)
      if (ends_[at] != 0) at = ends_[at];
    return std::min(at, text_.code.size());
  }

  int LineOf(std::size_t at) const {
    return 1 + static_cast<int>(std::count(
                   text_.code.begin(), text_.code.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  }

  // Where the value of a name begins that is set once, and to which nothing else is done; npos: there is none.
  std::size_t OnlyValueOf(std::string_view name) const {
    const std::string_view code = text_.code;
    std::size_t value = std::string_view::npos;
    for (std::size_t at = 0; (at = code.find(name, at)) != std::string_view::npos;
         at += name.size()) {
      const std::size_t after = code.find_first_not_of(' ', at + name.size());
      if (after == std::string_view::npos) break;
      if (OfName(code[at + name.size()]) ||
          (at > 0 && (OfName(code[at - 1]) || code[at - 1] == '.')))
        continue;
      const std::size_t begun = code.rfind('\n', at) + 1;
      const bool sets = Trim(code.substr(begun, at - begun)).empty() && code[after] == '=' &&
                        code.compare(after, 2, "==") != 0;
      const bool changes =
          code[after] == '[' || code[after] == '.' || code.compare(after, 2, "|=") == 0;
      if (changes || (sets && value != std::string_view::npos)) return std::string_view::npos;
      if (sets) value = code.find_first_not_of(' ', after + 1);
    }
    return value;
  }

  // What "**CODE" hands over: {...} or dict(...), or a name of one. nullopt: it is not known.
  std::optional<std::vector<PythonArgument>> Dictionary(std::size_t at) const {
    const std::string_view code = text_.code;
    const std::size_t name = NameLength(code.substr(at));
    if (name > 0 && code.compare(at, 5, "dict(") == 0 && ends_[at + 4] != 0)
      return ArgumentsOf(at + 5, ends_[at + 4], LineOf(at), 0);
    if (name > 0) {
      const std::size_t value = OnlyValueOf(code.substr(at, name));
      const std::size_t next = code.find_first_not_of(" \n", at + name);
      const bool alone = next != std::string_view::npos && (code[next] == ',' || code[next] == ')');
      if (!alone || value == std::string_view::npos) return std::nullopt;
      const std::size_t opens = code.compare(value, 5, "dict(") == 0 ? value + 4 : value;
      const bool above = ends_[opens] != 0 && ends_[opens] < at;
      return above && (opens > value || code[value] == '{') ? Dictionary(value) : std::nullopt;
    }
    if (code[at] != '{' || ends_[at] == 0) return std::nullopt;
    std::vector<PythonArgument> members;
    for (const std::string_view part :
         PartsOf(std::string_view(text_.plain).substr(at + 1, ends_[at] - at - 1), ',')) {
      if (Bare(part).empty()) continue;
      const std::size_t colon = PartsOf(part, ':').front().size();
      PythonArgument member;
      member.where = {source_,
                      LineOf(static_cast<std::size_t>(Bare(part).data() - text_.plain.data())), 1};
      member.name = PythonLiteral(Bare(part.substr(0, colon)));
      if (member.name.empty() || colon == part.size()) return std::nullopt;
      member.code = Bare(part.substr(colon + 1));
      member.value = ValueOf(member.code, member.where, 0);
      members.push_back(std::move(member));
    }
    return members;
  }

  std::string LineAt(std::size_t begin) const {
    return text_.plain.substr(begin, text_.plain.find('\n', begin) - begin);
  }

  // Lines above with less indentation, up to one that begins a function or the file.
  std::string BranchOf(std::size_t line) const {
    const auto indent = [&](std::size_t begin) {
      const std::size_t first = text_.code.find_first_not_of(" \t", begin);
      return first == std::string::npos ? 0 : first - begin;
    };
    std::size_t depth = indent(line);
    for (std::size_t steps = 0; line > 0 && depth > 0 && steps < 4096; ++steps) {
      line = line < 2 ? 0 : text_.code.rfind('\n', line - 2) + 1;
      const std::string text(Trim(LineAt(line)));
      if (text.empty() || indent(line) >= depth || text[0] == ')') continue;
      depth = indent(line);
      const bool branches = text.starts_with("if ") || text.starts_with("elif ") ||
                            text.starts_with("else:") || text.starts_with("except");
      if (branches && text.find("__name__") == std::string::npos) return text;
    }
    return "";
  }

  // `dictionaries`: how many "**" are followed.
  std::vector<PythonArgument> ArgumentsOf(std::size_t begin, std::size_t end, int line,
                                          int dictionaries) const {
    std::vector<PythonArgument> arguments;
    const std::string_view inside = std::string_view(text_.plain).substr(begin, end - begin);
    for (const std::string_view part : PartsOf(inside, ',')) {
      const std::size_t first = part.find_first_not_of(" \t\r\n");
      const int begun =
          line +
          static_cast<int>(std::count(
              part.begin(),
              part.begin() + static_cast<std::ptrdiff_t>(std::min(first, part.size())), '\n'));
      line += static_cast<int>(std::count(part.begin(), part.end(), '\n'));
      std::string_view code = Bare(part);
      if (code.empty()) continue;
      PythonArgument argument;
      argument.where = {source_, begun, 1};
      if (code.starts_with("**")) {
        argument.name = "**";
        code = Bare(code.substr(2));
        const auto at = static_cast<std::size_t>(part.data() - text_.plain.data()) + first;
        const auto handed = code.empty() || dictionaries-- <= 0
                                ? std::nullopt
                                : Dictionary(text_.code.find_first_not_of(" \n", at + 2));
        if (handed) {
          arguments.insert(arguments.end(), handed->begin(), handed->end());
          continue;
        }
      } else if (const std::size_t name = NameLength(code);
                 name > 0 && Bare(code.substr(name)).starts_with('=') &&
                 !Bare(code.substr(name)).starts_with("==")) {
        argument.name = code.substr(0, name);
        code = Bare(code.substr(code.find('=') + 1));
      }
      argument.code = code;
      argument.value = ValueOf(code, argument.where, 0);
      arguments.push_back(std::move(argument));
    }
    return arguments;
  }

  // Null: it is no literal, and no constant.
  std::shared_ptr<YamlTree> ValueOf(std::string_view code, const Location& where, int depth) const {
    code = Bare(code);
    if (depth > kMostNested || code.empty()) return nullptr;
    const char open = code[0];
    const char close = open == '[' ? ']' : open == '(' ? ')' : open == '{' ? '}' : 0;
    if (close != 0 && code.back() == close && Closes(code))
      return Collected(code.substr(1, code.size() - 2), open, where, depth);
    auto value = std::make_shared<YamlTree>();
    value->where = where;
    value->kind = YamlTree::Kind::kScalar;
    if (code.starts_with("torch.") && NameLength(code.substr(6)) + 6 == code.size()) {
      value->text = code.substr(6);  // a type of numbers
      return value;
    }
    value->quoted = open == '"' || open == '\'';
    value->text = PythonLiteral(code);
    if (value->text == "None") value->kind = YamlTree::Kind::kNull;
    if (!value->text.empty() || code == "\"\"" || code == "''") return value;
    if (const auto known = constants_.find(std::string(code)); known != constants_.end())
      return ValueOf(known->second, where, depth + 1);
    value->text = Calculated(std::string(code), constants_);
    return value->text.empty() ? nullptr : value;
  }

  // Whether its first bracket and its last are one pair.
  static bool Closes(std::string_view code) {
    int depth = 0;
    for (std::size_t at = 0; at < code.size(); ++at) {
      const char c = code[at];
      if (c == '"' || c == '\'') {
        for (++at; at < code.size() && code[at] != c; ++at) at += code[at] == '\\' ? 1 : 0;
      } else if (c == '(' || c == '[' || c == '{') {
        ++depth;
      } else if ((c == ')' || c == ']' || c == '}') && --depth == 0) {
        return at + 1 == code.size();
      }
    }
    return false;
  }

  std::shared_ptr<YamlTree> Collected(std::string_view inside, char open, const Location& where,
                                      int depth) const {
    auto value = std::make_shared<YamlTree>();
    value->where = where;
    std::vector<std::string_view> parts = PartsOf(inside, ',');
    if (open == '(' && parts.size() == 1) return ValueOf(inside, where, depth + 1);
    if (Bare(parts.back()).empty()) parts.pop_back();  // behind the last comma
    const bool map = open == '{' && (parts.empty() || PartsOf(parts.front(), ':').size() > 1);
    value->kind = map ? YamlTree::Kind::kMap : YamlTree::Kind::kSequence;
    for (const std::string_view part : parts) {
      if (!map) {
        value->elements.push_back(ValueOf(part, where, depth + 1));
        if (value->elements.back() == nullptr) return nullptr;
        continue;
      }
      const std::size_t colon = PartsOf(part, ':').front().size();
      const std::string key = PythonLiteral(part.substr(0, colon));
      if (key.empty() || colon == part.size()) return nullptr;
      auto member = ValueOf(part.substr(colon + 1), where, depth + 1);
      value->members.push_back({key, where, std::move(member)});  // null: it is computed
    }
    return value;
  }

  const SourcePtr& source_;
  const Blanked text_;
  std::vector<std::size_t> ends_;                 // of brackets, by their places; 0: none
  std::map<std::string, std::string> constants_;  // of the program, by name
};

}  // namespace

const PythonArgument* PythonCall::Find(std::string_view name) const {
  const auto at = std::ranges::find(arguments, name, &PythonArgument::name);
  return at == arguments.end() ? nullptr : &*at;
}

std::vector<PythonCall> CallsIn(const SourcePtr& source,
                                const std::function<bool(std::string_view function)>& asked) {
  return ProgramCalls(source).Find(asked);
}

std::vector<PythonAssignment> AttributesSetIn(const SourcePtr& source) {
  return ProgramCalls(source).AttributesSet();
}

}  // namespace orrery::exchange
