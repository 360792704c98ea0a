// SPDX-License-Identifier: Apache-2.0
// Follows the commands of a script and what they assign.
#include "model/exchange/shell.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "model/base/plain_text.h"
#include "model/exchange/shell_arithmetic.h"
#include "model/exchange/shell_assignments.h"
#include "model/exchange/shell_branches.h"
#include "model/exchange/shell_effects.h"
#include "model/exchange/shell_lexer.h"
#include "model/exchange/shell_words.h"

namespace orrery::exchange {
namespace {

constexpr int kMostInner = 64;  // scripts in bash -c
constexpr std::size_t kMostNested = 16;
constexpr int kMostCalls = 4096;  // of functions
constexpr std::size_t kMostSourced = 32;

const std::set<std::string, std::less<>> kDeclarers = {"export", "declare", "local", "readonly",
                                                       "typeset"};

class Follower : private ShellAssigner {
 public:
  // `path`: of the script itself; "": nobody knows.
  Follower(const Lexed& lexed, std::string path, const OpenSourced& open)
      : ShellAssigner(lexed, std::move(path)), comments_(lexed.comments), open_(open) {}

  ShellScript Run() {
    SetJobVariables(tokens_, comments_, &script_);
    if (!path_.empty()) SetOwnPaths(path_, &script_);
    while (at_ < tokens_.size() && !script_.end) Command();
    if (!CommandsFollow(tokens_, at_)) script_.end.reset();
    // What nobody calls here may be called elsewhere: with which words is not known.
    for (std::size_t i = 0; i < bodies_.size(); ++i) {
      if (!bodies_[i].called) RunBody(i, std::nullopt, {});
    }
    return std::move(script_);
  }

 private:
  void Command() {
    LeaveSourced();
    if (Pattern() || Defines()) return;
    Words words;
    bool first = true, integer = false, assigns = false;
    substitutes_ = false;
    while (at_ < tokens_.size() && (tokens_[at_].word() || tokens_[at_].redirect())) {
      const Token& token = tokens_[at_];
      if (!token.word()) {  // words may stand behind it
        TakeRedirect();
        continue;
      }
      const std::string plain = token.Plain();
      const bool bare = token.pieces.size() == 1 && token.pieces[0].quote == Piece::kNone;
      if (first && bare && branches_.Keyword(plain)) {
        ++at_;
        if (plain == "for") LoopVariable();
        if (plain == "case") return Choice();
        continue;
      }
      if (first && bare && kDeclarers.contains(plain)) {
        local_ = plain == "local" && arguments_;
        integer = Declares();
        continue;
      }
      if (first && bare && DeclaresMap(plain)) continue;
      if (first && integer && bare && NameLength(plain) == plain.size()) {  // declare -i NAME
        integers_.insert(plain);
        ++at_;
        continue;
      }
      if (first && Assignment(integer)) {
        assigns = true;
        continue;
      }
      first = false;
      if (branches_.Skips()) {
        ++at_;
        continue;
      }
      if (words.empty() && bare && (plain == kArithmetic || plain == "let")) {
        Calculations(&words);
        continue;
      }
      if (const std::size_t shell = RunsOnHost(words, token) ? 0 : ShellBefore(words);
          shell < words.size()) {
        const Words front(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(shell));
        // Lines of '...' are those of the file.
        const bool raw = token.pieces.size() == 1 && token.pieces[0].quote == Piece::kSingle;
        for (const Word& script : Expand(token, true)) Inner(script, front, raw);
      }
      for (Word& word : Expand(token)) words.push_back(std::move(word));
      ++at_;
    }
    EndAssignments();
    branches_.Ran(words, assigns && !substitutes_);
    if (!words.empty() && (Sources(words) || Call(words))) return;
    if (!words.empty()) {
      of_command_ = words;
      script_.commands.push_back(std::move(words));
    }
    Operator();
  }

  // NAME () { ... } and function NAME { ... }: kept until it is called.
  bool Defines() {
    std::size_t at = at_;
    const auto is = [&](std::string_view op) {
      return at < tokens_.size() && tokens_[at].op == op;
    };
    const auto word = [&] { return at < tokens_.size() ? tokens_[at].Plain() : std::string(); };
    const bool keyword = word() == "function";
    if (keyword) ++at;
    const std::string name = word();
    if (name.empty() || name.find_first_of("{}=$") != std::string::npos) return false;
    ++at;
    if (is("(")) {
      ++at;
      if (!is(")")) return false;
      ++at;
    } else if (!keyword) {
      return false;
    }
    while (is("\n")) ++at;
    if (word() != "{") return false;
    const std::size_t end = EndOfBlock(tokens_, at + 1);
    if (end == 0) return false;
    at_ = end + 1;
    if (branches_.Skips()) return true;
    functions_[name] = bodies_.size();
    bodies_.push_back({at + 1, end, false});
    return true;
  }

  // What the command's function does with its words. False: it is none.
  bool Call(const Words& words) {
    if (arguments_ && words[0].text == "shift" && words.size() < 3) {
      Shift(words);
      return false;
    }
    if (calls_.empty() && !sourced_.empty() && words[0].text == "return") return LeavesSourced();
    if (!calls_.empty() && words[0].text == "return") {
      if (branches_.Unknown())
        branches_.Doubt();
      else
        at_ = bodies_[calls_.back()].end;
      return at_ == bodies_[calls_.back()].end;
    }
    if (words[0].text == "exit" && subshells_ == 0 && !branches_.Unknown() && !branches_.ForWant())
      script_.end = words[0].where;
    const auto found = functions_.find(words[0].text);
    if (found == functions_.end() || calls_.size() >= kMostNested || ++called_ > kMostCalls ||
        std::ranges::find(calls_, found->second) != calls_.end())
      return false;
    bodies_[found->second].called = true;
    // Where it hands its words on, they are no command of their own.
    RunBody(found->second, Words(words.begin() + 1, words.end()), branches_);
    Operator();
    return true;
  }

  // source FILE, and . FILE: its words in the place of the command, as a block. False: it is not followed.
  bool Sources(const Words& words) {
    if (!open_ || words.size() < 2 || (words[0].text != "source" && words[0].text != "."))
      return false;
    const Word& file = words[1];
    std::string why = file.unresolved;
    if (why.empty() && !calls_.empty()) why = "a function takes it in";
    if (why.empty() && script_.sourced.size() >= kMostSourced) why = "too many files";
    SourcePtr found;
    try {
      if (why.empty()) found = open_(file);
      if (why.empty() && found == nullptr) why = "not found";
      if (found != nullptr) {
        const std::size_t added = Insert(LexShell(found), file.where);
        for (Sourced& around : sourced_) around.end += added;
        sourced_.push_back({at_ + added, script_.variables["BASH_SOURCE"], branches_});
        script_.variables["BASH_SOURCE"] = {{{found->name, file.where, ""}}, true};
        script_.sourced.push_back({found->name, file.where, ""});
        redirects_ = {};
        return true;
      }
    } catch (const InputError& error) {
      why = error.diagnostics().front().message;
    }
    script_.unsourced.push_back({file.text, file.where, std::move(why)});
    return false;
  }
  void LeaveSourced() {
    while (!sourced_.empty() && calls_.empty() && at_ >= sourced_.back().end) {
      script_.variables["BASH_SOURCE"] = std::move(sourced_.back().own);
      sourced_.pop_back();
    }
  }
  // "return" in such a file; false: it may go on.
  bool LeavesSourced() {
    if (branches_.Unknown()) {
      branches_.Doubt();
      return false;
    }
    at_ = sourced_.back().end;
    branches_ = sourced_.back().around;
    return true;
  }

  void Shift(const Words& words) {
    int64_t count = 1;
    if (words.size() == 2 && ParseInteger(words[1].text, &count) != NumberFault::kNone) count = -1;
    if (branches_.Unknown() || count < 0 || count > static_cast<int64_t>(arguments_->size())) {
      for (Word& word : *arguments_) word = {"", words[0].where, "arguments are shifted"};
    } else {
      arguments_->erase(arguments_->begin(), arguments_->begin() + count);
    }
  }

  // No arguments: nobody knows whether it is called.
  void RunBody(std::size_t which, std::optional<Words> arguments, ShellBranches around) {
    const Body body = bodies_[which];
    const std::size_t behind = at_;
    const bool unsure = !arguments;
    calls_.push_back(which);
    std::swap(arguments_, arguments);
    auto locals = std::exchange(locals_, {});
    branches_ = around;
    branches_.Enter(unsure);
    for (at_ = body.begin; at_ < body.end && !script_.end;) Command();
    for (auto& [name, value] : locals_) {
      if (value)
        script_.variables[name] = std::move(*value);
      else
        script_.variables.erase(name);
    }
    locals_ = std::move(locals);
    std::swap(arguments_, arguments);
    branches_ = std::move(around);
    calls_.pop_back();
    at_ = behind;
  }

  // ((TEXT)) and let TEXT ...: the variables that they assign, and the value as a word of the command.
  void Calculations(Words* words) {
    words->push_back({tokens_[at_].Plain(), tokens_[at_].where, ""});
    for (++at_; at_ < tokens_.size() && tokens_[at_].word(); ++at_) {
      const Token& token = tokens_[at_];
      const bool raw = words->front().text == kArithmetic;
      const auto value = Evaluate(raw ? token.Plain() : Joined(token).text, token.where);
      Word word{"", token.where, value ? "" : "it needs a shell"};
      if (value) word.text = std::to_string(*value);
      words->push_back(std::move(word));
    }
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

  // WORD in behind "case".
  void Choice() {
    Word chosen{"", Location(), "nobody knows it"};
    if (at_ < tokens_.size() && tokens_[at_].word()) chosen = Joined(tokens_[at_++]);
    while (at_ < tokens_.size() && tokens_[at_].op == "\n") ++at_;
    if (at_ < tokens_.size() && tokens_[at_].Plain() == "in") ++at_;
    branches_.Choose(chosen);
  }

  // PATTERN | PATTERN ) in front of what runs for it; false: no pattern stands here.
  bool Pattern() {
    const Word* const chosen = branches_.Chosen();
    if (chosen == nullptr) return false;
    while (at_ < tokens_.size() && !tokens_[at_].word() && tokens_[at_].op != ")") ++at_;
    if (at_ < tokens_.size() && tokens_[at_].Plain() == "esac") return false;
    const std::size_t begin = at_;
    while (at_ < tokens_.size() && tokens_[at_].op != ")") ++at_;
    branches_.Arm(MatchesPattern(std::span(tokens_).subspan(begin, at_ - begin), *chosen));
    if (at_ < tokens_.size()) ++at_;
    return true;
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
  // words there. `front`: the launcher that starts it. `lines`: they are those of the file, too.
  void Inner(const Word& text, const Words& front, bool lines) {
    if (text.text.empty() || inner_ >= kMostInner) return;
    ++inner_;
    Lexed lexed;
    try {
      lexed = LexShell(std::make_shared<const Source>(Source{text.where.source->name, text.text}));
    } catch (const InputError&) {
      return;  // a quote in what a variable holds: the words outside may say enough
    }
    const auto place = [&](const Location& inner) {
      Location where = text.where;
      if (lines) where.line += inner.line - 1;
      if (lines) where.column = inner.line == 1 ? where.column + inner.column : inner.column;
      return where;
    };
    for (Token& token : lexed.tokens) token.where = place(token.where);
    for (Token& comment : lexed.comments) comment.where = place(comment.where);
    for (HereDocument& document : lexed.documents) document.where = place(document.where);
    Follower follower(lexed, "", open_);
    follower.inner_ = inner_;
    follower.script_.variables = script_.variables;
    follower.script_.reasons = script_.reasons;
    ShellScript script = follower.Run();
    script_.reasons = std::move(script.reasons);
    inner_ = follower.inner_;
    for (auto [from, to] :
         {std::pair(&script.sourced, &script_.sourced), {&script.unsourced, &script_.unsourced}})
      to->insert(to->end(), from->begin(), from->end());
    CheckLines(text, script);
    AddComments(lexed.tokens, lexed.comments, &script);
    Append(std::move(script), front, &script_);
  }

  void TakeRedirect() {
    const Token& token = tokens_[at_++];
    const std::string& op = token.op;
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

  void Operator() {
    if (at_ >= tokens_.size()) return Effects("");
    const std::string& op = tokens_[at_].op;
    Effects(op);
    if (op == "(") ++subshells_;
    if (op == ")" && subshells_ > 0) --subshells_;
    branches_.Operator(op);
    ++at_;
  }

  // Behind the last word of a command and all its redirections.
  void Effects(const std::string& op) {
    Redirects redirects = std::exchange(redirects_, {});
    const Words words = std::exchange(of_command_, {});
    ReadVariables(words, redirects, branches_, &script_);
    WriteFiles(words, redirects, branches_, &script_);
    CopyFile(words, branches_, &script_);
    EditFiles(words, branches_, &script_);
    // bash <<WORD, sbatch <<WORD
    const std::size_t shell = redirects.document ? ShellOfInput(words) : words.size();
    if (shell < words.size())
      Inner(redirects.text,
            Words(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(shell)), true);
    // cat <<WORD | tee FILE, echo TEXT | tee FILE
    if (op != "|") return;
    if (const auto printed = PrintedBy(words); printed && redirects.to.empty()) {
      redirects_.document = true;
      redirects_.text = *printed;
    } else if (redirects.document && words.size() == 1 && words[0].text == "cat") {
      redirects.to.clear();
      redirects_ = std::move(redirects);
    } else {
      redirects_.maker = MakerOf(words);
    }
  }

  const std::vector<Token>& comments_;
  const OpenSourced& open_;
  int inner_ = 0;
  Words of_command_;  // that is read, and where it reads and writes
  Redirects redirects_;
  struct Body {  // of a function, by its tokens
    std::size_t begin = 0, end = 0;
    bool called = false;
  };
  std::vector<Body> bodies_;
  std::map<std::string, std::size_t> functions_;
  std::vector<std::size_t> calls_;  // in each other
  int called_ = 0;
  int subshells_ = 0;  // "(" before: an exit leaves them alone
  struct Sourced {
    std::size_t end = 0;   // of its tokens
    ShellVariable own;     // BASH_SOURCE around it
    ShellBranches around;  // likewise
  };
  std::vector<Sourced> sourced_;  // in each other
};

}  // namespace

ShellScript ReadShell(const SourcePtr& source, const OpenSourced& open) {
  const Lexed lexed = LexShell(source);
  ShellScript script = Follower(lexed, source->name, open).Run();
  AddComments(lexed.tokens, lexed.comments, &script);
  return script;
}

}  // namespace orrery::exchange
