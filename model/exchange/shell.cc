// SPDX-License-Identifier: Apache-2.0
// Follows the assignments of a script and expands its commands.
#include "model/exchange/shell.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "model/base/plain_text.h"
#include "model/exchange/shell_arithmetic.h"
#include "model/exchange/shell_branches.h"
#include "model/exchange/shell_commands.h"
#include "model/exchange/shell_effects.h"
#include "model/exchange/shell_lexer.h"
#include "model/exchange/shell_words.h"

namespace orrery::exchange {
namespace {

constexpr std::size_t kMostWords = 1'000'000;  // after expansion: arrays in arrays grow fast
constexpr int kDeepest = 32;
constexpr int kMostInner = 64;  // scripts in bash -c

const std::set<std::string, std::less<>> kDeclarers = {"export", "declare", "local", "readonly",
                                                       "typeset"};

class Follower {
 public:
  // `path`: of the script itself; "": nobody knows.
  Follower(const Lexed& lexed, std::string path)
      : tokens_(lexed.tokens), documents_(lexed.documents), path_(std::move(path)) {}

  ShellScript Run() {
    if (!path_.empty()) SetOwnPaths(path_, &script_);
    while (at_ < tokens_.size()) Command();
    return std::move(script_);
  }

 private:
  struct Part {  // of an expansion
    Words words;
    bool several = false;  // an array: each word stands for itself
  };

  void Command() {
    Words words;
    bool first = true;
    while (at_ < tokens_.size() && tokens_[at_].word()) {
      const Token& token = tokens_[at_];
      const std::string plain = token.Plain();
      const bool bare = token.pieces.size() == 1 && token.pieces[0].quote == Piece::kNone;
      if (first && bare && branches_.Keyword(plain)) {
        ++at_;
        if (plain == "for") LoopVariable();
        continue;
      }
      if (first && bare && kDeclarers.contains(plain)) {
        ++at_;
        continue;
      }
      if (first && Assignment()) continue;
      first = false;
      if (branches_.Skips()) {
        ++at_;
        continue;
      }
      if (RunsShell(words)) {
        const Words front(words.begin(), words.end() - 2);
        for (const Word& script : Expand(token, true)) Inner(script, front);
      }
      for (Word& word : Expand(token)) words.push_back(std::move(word));
      ++at_;
    }
    branches_.Ran(words);
    if (!words.empty()) {
      of_command_ = words;
      script_.commands.push_back(std::move(words));
    }
    Operator();
  }

  // NAME in WORDS behind "for": of several words nobody knows which is meant.
  void LoopVariable() {
    const auto plain = [this](std::size_t at) {
      return at < tokens_.size() && tokens_[at].word() ? tokens_[at].Plain() : std::string();
    };
    const std::string name = plain(at_);
    if (name.empty() || NameLength(name) != name.size() || plain(at_ + 1) != "in") return;
    const Location where = tokens_[at_].where;
    Words values;
    for (at_ += 2; at_ < tokens_.size() && tokens_[at_].word(); ++at_)
      for (Word& word : Expand(tokens_[at_])) values.push_back(std::move(word));
    if (branches_.Skips() || FollowLoop(name, values)) return;
    script_.variables[name] = {{OneOf(name, values, where)}, false};
  }

  // A loop over known words in which nothing stands but assignments: as often as there are words.
  bool FollowLoop(const std::string& name, const Words& values) {
    constexpr std::size_t kMostTurns = 1024;
    const bool known =
        std::ranges::all_of(values, [](const Word& word) { return word.unresolved.empty(); });
    const std::size_t begin = at_, end = EndOfAssignments(tokens_, at_);
    if (end == 0 || !known || values.empty() || values.size() > kMostTurns) return false;
    branches_.Keyword("done");  // the assignments are those of the block around the loop
    for (const Word& value : values) {
      Store(name, {{value}, false}, false, value.where);
      for (at_ = begin; at_ < end;) {
        if (!tokens_[at_].word() || !Assignment()) ++at_;
      }
    }
    at_ = end + 1;
    return true;
  }

  // bash -c '...': a script of its own with the variables of this one. What is not known of its text stays a hole in the
  // words there. `front`: the launcher that starts it.
  void Inner(const Word& text, const Words& front) {
    if (text.text.empty() || inner_ >= kMostInner) return;
    ++inner_;
    Lexed lexed;
    try {
      lexed = LexShell(std::make_shared<const Source>(Source{text.where.source->name, text.text}));
    } catch (const InputError&) {
      return;  // a quote in what a variable holds: the words outside may say enough
    }
    for (Token& token : lexed.tokens) token.where = text.where;
    for (HereDocument& document : lexed.documents) document.where = text.where;
    Follower follower(lexed, "");
    follower.inner_ = inner_;
    follower.hole_ = text.unresolved;
    follower.script_.variables = script_.variables;
    ShellScript script = follower.Run();
    inner_ = follower.inner_;
    Append(std::move(script), front, &script_);
  }

  void Operator() {
    if (at_ >= tokens_.size()) return Effects("");
    const Token& token = tokens_[at_];
    const std::string& op = token.op;
    const bool redirects = op.starts_with('<') || op.starts_with('>');
    if (!redirects) Effects(op);
    branches_.Operator(op);
    ++at_;
    if (!redirects) return;
    if (token.document >= 0) {
      const HereDocument& document = documents_[static_cast<std::size_t>(token.document)];
      redirects_.document = true;
      if (!branches_.Skips()) redirects_.text = Joined({{document.text}, "", document.where, -1});
    } else if (at_ < tokens_.size() && tokens_[at_].word()) {  // the file behind it
      if (op[0] == '>' && op != ">&" && !branches_.Skips()) {
        redirects_.to.push_back(Joined(tokens_[at_]));
        redirects_.append |= op == ">>";
      }
      ++at_;
    }
  }

  // Behind the last word of a command and all its redirections.
  void Effects(const std::string& op) {
    Redirects redirects = std::exchange(redirects_, {});
    const Words words = std::exchange(of_command_, {});
    ReadVariables(words, redirects, branches_, &script_);
    WriteFiles(words, redirects, branches_, &script_);
    EditFiles(words, branches_, &script_);
    // cat <<WORD | tee FILE, echo TEXT | tee FILE
    if (op != "|") return;
    if (const auto printed = PrintedBy(words); printed && redirects.to.empty()) {
      redirects_.document = true;
      redirects_.text = *printed;
    } else if (redirects.document && words.size() == 1 && words[0].text == "cat") {
      redirects.to.clear();
      redirects_ = std::move(redirects);
    }
  }

  // NAME=..., NAME+=... or NAME=( ... ) at the front of a command.
  bool Assignment() {
    const Token& token = tokens_[at_];
    if (token.pieces.empty() || token.pieces[0].quote != Piece::kNone) return false;
    const std::string_view text = token.pieces[0].text;
    const std::size_t name = NameLength(text);
    if (name == 0 || name >= text.size()) return false;
    const bool more = text.substr(name).starts_with("+=");
    if (!more && text[name] != '=') return false;
    const std::size_t behind = name + (more ? 2 : 1);
    ShellVariable value;
    const bool list = token.pieces.size() == 1 && behind == text.size() &&
                      at_ + 1 < tokens_.size() && tokens_[at_ + 1].op == "(";
    if (list) {
      value.array = true;
      value.words = List();
    } else {
      Token rest = token;
      rest.pieces[0].text = std::string(text.substr(behind));
      value.words = {Joined(rest)};
      ++at_;
    }
    Store(std::string(text.substr(0, name)), std::move(value), more, token.where);
    return true;
  }

  Words List() {
    Words words;
    int depth = 1;
    for (at_ += 2; at_ < tokens_.size() && depth > 0; ++at_) {
      if (tokens_[at_].op == "(") ++depth;
      if (tokens_[at_].op == ")") --depth;
      if (!tokens_[at_].word()) continue;
      for (Word& word : Expand(tokens_[at_])) words.push_back(std::move(word));
    }
    if (depth > 0)
      throw InputError({{tokens_.back().where, "a list of words is never closed", ""}});
    return words;
  }

  void Store(const std::string& name, ShellVariable value, bool more, const Location& where) {
    StoreVariable(branches_, name, std::move(value), more, where, &script_);
  }

  // The word as one, as an assignment takes it.
  Word Joined(const Token& token) {
    Word word{"", token.where, ""};
    for (const Piece& piece : token.pieces) {
      Token one = token;
      one.pieces = {piece};
      if (piece.quote == Piece::kNone) one.pieces[0].quote = Piece::kDouble;
      const Words words = Expand(one, true);
      for (std::size_t i = 0; i < words.size(); ++i) {
        word.text += (i > 0 ? " " : "") + words[i].text;
        if (word.unresolved.empty()) word.unresolved = words[i].unresolved;
      }
    }
    return word;
  }

  // A word of the script as the words that it stands for.
  Words Expand(const Token& token, bool keep_holes = false) {
    WordBuilder builder(token, keep_holes);
    builder.reason = hole_;
    for (const Piece& piece : token.pieces) {
      if (piece.quote != Piece::kNone) builder.begun = true;
      if (piece.quote == Piece::kSingle) {
        builder.Add(piece.text, false);
      } else {
        ExpandPiece(piece, &builder);
      }
    }
    builder.End();
    total_ += builder.words.size();
    if (total_ > kMostWords) throw InputError({{token.where, "too many words", ""}});
    return std::move(builder.words);
  }

  void ExpandPiece(const Piece& piece, WordBuilder* builder) {
    const bool quoted = piece.quote != Piece::kNone;
    const std::string_view text = piece.text;
    bool empty_list = false;
    for (std::size_t at = 0; at < text.size();) {
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
      for (std::size_t i = 0; i < part.words.size(); ++i) {
        if (i > 0) builder->End();
        builder->AddWord(part.words[i], !quoted);
        if (part.several && quoted) builder->begun = true;
      }
      empty_list = part.several && part.words.empty();
    }
    if (empty_list && builder->current.text.empty()) builder->begun = false;
  }

  static Part Unknown(const Location& where, std::string why) {
    return {{{"", where, std::move(why)}}, false};
  }

  // "$...": the words and how much of the text they took.
  Part ExpandAt(std::string_view text, const Location& where, std::size_t* length) {
    if (text[0] == '`') {
      *length = std::min(text.find('`', 1), text.size() - 1) + 1;
      return Printed(text.substr(1, *length > 2 ? *length - 2 : 0), where);
    }
    if (text.starts_with("$((")) {
      *length = std::min(text.find("))"), text.size() - 2) + 2;
      const std::string_view inside = text.substr(3, *length > 5 ? *length - 5 : 0);
      const auto value =
          Calculate(inside, [this](const std::string& name) { return WholeOf(name); });
      if (!value) return Unknown(where, fmt::format("$(({})) needs a shell", inside));
      return {{{std::to_string(*value), where, ""}}, false};
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
      if (text[1] == '@' || text[1] == '*') return {{}, true};  // nobody gives arguments here
      if (text[1] == '0' && !path_.empty()) return {{{path_, where, ""}}, false};
      return Unknown(where, fmt::format("${} comes from the command line", text[1]));
    }
    *length = 1 + name;
    return ValueOf(std::string(text.substr(1, name)), false, where);
  }

  static std::size_t Closed(std::string_view text, std::size_t at) {
    return std::min(EndOfExpansion(text, at), text.size());
  }

  Part Braced(std::string_view inside, const Location& where) {
    std::size_t name = NameLength(inside);
    if (name == 0 && !inside.empty() && inside[0] >= '1' && inside[0] <= '9') name = 1;
    if (name == 0 && inside.starts_with('0') && !path_.empty()) {
      const Part own = {{{path_, where, ""}}, false};
      if (inside == "0") return own;
      if (inside == "0%/*" || inside == "0##*/")
        return Part{{PartOfPath(own.words, inside.substr(1), where)}, false};
    }
    if (name == 0)
      return inside == "@" || inside == "*"
                 ? Part{{}, true}
                 : Unknown(where, fmt::format("${{{}}} needs a shell", inside));
    const std::string key(inside.substr(0, name));
    std::string_view rest = inside.substr(name);
    if (rest.starts_with("[0]")) rest.remove_prefix(3);  // as without it
    const bool list = rest.starts_with("[@]") || rest.starts_with("[*]");
    if (list) rest.remove_prefix(3);
    if (rest.empty()) return ValueOf(key, list, where);
    const bool colon = rest[0] == ':';
    const char op = rest.size() > (colon ? 1u : 0u) ? rest[colon ? 1 : 0] : ' ';
    if (op == '-' || op == '=') {
      const auto known = script_.variables.find(key);
      if (known != script_.variables.end() && !known->second.words.empty() &&
          (!known->second.words[0].text.empty() || !known->second.words[0].unresolved.empty()))
        return ValueOf(key, list, where);
      Part part = Default(std::string(rest.substr(colon ? 2 : 1)), where);
      if (op == '=') Store(key, {part.words, false}, false, where);  // : "${TP:=2}"
      return part;
    }
    if (op == '+') return {{}, true};  // the environment is empty
    if (rest == "%/*" || rest == "##*/")
      return {{PartOfPath(ValueOf(key, list, where).words, rest, where)}, false};
    return Unknown(where, fmt::format("${{{}}} needs a shell", inside));
  }

  // $(...) of commands that name files.
  Part Printed(std::string_view inside, const Location& where) {
    const Part unknown = Unknown(where, "a command prints it");
    if (++nested_ > kDeepest) throw InputError({{where, "expansions are nested too deeply", ""}});
    if (auto document = PrintedDocument(inside)) {
      Part part{{Joined({{std::move(*document)}, "", where, -1})}, false};
      --nested_;
      return part;
    }
    std::vector<exchange::Command> commands(1);
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
  Part Default(const std::string& text, const Location& where) {
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

  Part ValueOf(const std::string& name, bool list, const Location& where) const {
    const auto at = script_.variables.find(name);
    if (at == script_.variables.end())
      return Unknown(where, fmt::format("${} is not set in this file", name));
    if (list) return {at->second.words, true};
    if (at->second.words.empty()) return {};
    return {{at->second.words.front()}, false};
  }

  std::optional<int64_t> WholeOf(const std::string& name) const {
    const auto at = script_.variables.find(name);
    int64_t number = 0;
    if (at == script_.variables.end() || at->second.words.empty() ||
        !at->second.words[0].unresolved.empty() ||
        ParseInteger(at->second.words[0].text, &number) != NumberFault::kNone)
      return std::nullopt;
    return number;
  }

  const std::vector<Token>& tokens_;
  const std::vector<HereDocument>& documents_;
  std::size_t at_ = 0, total_ = 0;
  int nested_ = 0, inner_ = 0;
  std::string path_;
  ShellBranches branches_;
  std::string hole_;  // why parts of this script's text are not known
  ShellScript script_;
  Words of_command_;  // that is read, and where it reads and writes
  Redirects redirects_;
};

}  // namespace

ShellScript ReadShell(const SourcePtr& source) {
  const Lexed lexed = LexShell(source);
  ShellScript script = Follower(lexed, source->name).Run();
  for (const Token& comment : lexed.comments)
    script.comments.push_back({comment.Plain(), comment.where, ""});
  return script;
}

}  // namespace orrery::exchange
