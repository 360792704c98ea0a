// SPDX-License-Identifier: Apache-2.0
// Follows the commands of a script and what they assign.
#include "model/exchange/shell.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "model/exchange/shell_arithmetic.h"
#include "model/exchange/shell_effects.h"
#include "model/exchange/shell_follower.h"
#include "model/exchange/shell_words.h"

namespace orrery::exchange {

ShellScript Follower::Run() {
  SetJobVariables(tokens(), lexed_->comments, &script_);
  if (!path_.empty()) SetOwnPaths(path_, &script_);
  while (at_ < tokens().size() && !script_.end) Command();
  EndChains(-1);
  if (!CommandsFollow(tokens(), at_)) script_.end.reset();
  // What nobody calls here may be called elsewhere: with which words is not known.
  for (std::size_t i = 0; i < bodies_.size(); ++i) {
    if (!bodies_[i].called) RunBody(i, std::nullopt);
  }
  return std::move(script_);
}

void Follower::Command() {
  if (Pattern() || Defines()) return;
  Words words;
  Prefix prefix;  // the script's own values while it runs
  bool first = true;
  substitutes_ = false;
  while (at_ < tokens().size() && (tokens()[at_].word() || tokens()[at_].redirect())) {
    const Token& token = tokens()[at_];
    if (!token.word()) {  // words may stand behind it
      if (TakeRedirect(words)) break;
      continue;
    }
    const std::string plain = token.Plain();
    const bool bare = token.pieces.size() == 1 && token.pieces[0].quote == Piece::kNone;
    if (first && bare && TakeKeyword(plain)) {
      if (plain == "case") return Choice();
      continue;
    }
    if (first && bare && !declares_ && Declares(plain, arguments_ && !calls_.empty())) continue;
    if (first) KeepPrefix(&prefix);
    if (first && Assignment()) continue;
    if (first && declares_) {
      if (std::string why = Declared(); !why.empty())
        script_.unsourced.push_back({"export", token.where, std::move(why)});
      continue;
    }
    // Its words are expanded with the variables of the script.
    if (first) Swap(&prefix);
    first = false;
    if (branches_.Skips()) {
      ++at_;
      continue;
    }
    TakeWord(bare ? plain : "", &prefix, &words);
  }
  EndAssignments();
  branches_.Ran(words, substitutes_);
  if (!first) Swap(&prefix);  // without words it is none
  if (words.empty()) return Operator();
  Start(std::move(words), &prefix);
}

bool Follower::TakeKeyword(const std::string& word) {
  if (!branches_.Keyword(word)) return false;
  std::size_t end = 0;
  const bool closes = word == "}" && Subshells() > floor_ && EndsSubshell();
  if (word == "{" && IsForked(&end)) OpenSubshell(end);
  if (closes) CloseSubshell();
  piped_ = false;
  ++at_;
  if (word == "for") LoopVariable();
  return true;
}

void Follower::TakeWord(const std::string& plain, Prefix* prefix, Words* words) {
  const Token& token = tokens()[at_];
  if (words->empty() && (plain == kArithmetic || plain == "let")) return Calculations(words);
  if (const std::size_t shell = RunsOnHost(*words, token) ? 0 : ShellBefore(*words);
      shell < words->size()) {
    const Words front(words->begin(), words->begin() + static_cast<std::ptrdiff_t>(shell));
    // Lines of '...' are those of the file.
    const bool raw = token.pieces.size() == 1 && token.pieces[0].quote == Piece::kSingle;
    const Words texts = Expand(token, true);
    Swap(prefix);
    for (const Word& script : texts) Inner(script, front, raw);
    Swap(prefix);
  }
  if (words->size() == 1)
    expanded_ = !token.pieces.empty() && token.pieces[0].quote != Piece::kSingle &&
                token.pieces[0].text.find_first_of("$`") == 0;
  const bool evaluated = !words->empty() && words->front().text == "eval";
  for (Word& word : Expand(token, evaluated)) {
    if (const Word text = WrappedBy(*words, word); !text.text.empty()) Inner(text, *words, false);
    words->push_back(std::move(word));
  }
  ++at_;
}

void Follower::Start(Words words, Prefix* prefix) {
  if (Returns(words)) return Swap(prefix);
  const bool function = functions_.contains(words[0].text), forks = Forks();
  const std::size_t depth = Subshells();
  if (forks &&
      (function || words[0].text == "source" || words[0].text == "." || words[0].text == "eval"))
    OpenSubshell();
  if (!Sources(words) && !Evals(words) && !Call(words)) {
    Builtins(words);
    KeepEnvironment(*prefix);
    of_command_ = words;
    script_.commands.push_back(std::move(words));
  }
  if (Subshells() > depth) CloseSubshell();
  Operator(prefix);
}

bool Follower::Defines() {
  std::size_t at = at_;
  const auto is = [&](std::string_view op) {
    return at < tokens().size() && tokens()[at].op == op;
  };
  const auto word = [&] { return at < tokens().size() ? tokens()[at].Plain() : std::string(); };
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
  const std::size_t end = EndOfBlock(tokens(), at + 1);
  if (end == 0) return false;
  at_ = end + 1;
  if (branches_.Skips()) return true;
  functions_[name] = bodies_.size();
  bodies_.push_back({lexed_, at + 1, end, false});
  return true;
}

void Follower::Calculations(Words* words) {
  words->push_back({tokens()[at_].Plain(), tokens()[at_].where, ""});
  for (++at_; at_ < tokens().size() && tokens()[at_].word(); ++at_) {
    const Token& token = tokens()[at_];
    const bool raw = words->front().text == kArithmetic;
    const auto value = Evaluate(raw ? token.Plain() : Joined(token).text, token.where);
    Word word{"", token.where, value ? "" : "it needs a shell"};
    if (value) word.text = std::to_string(*value);
    words->push_back(std::move(word));
  }
}

void Follower::LoopVariable() {
  const auto plain = [this](std::size_t at) {
    return at < tokens().size() && tokens()[at].word() ? tokens()[at].Plain() : std::string();
  };
  const std::string name = plain(at_);
  if (name.empty() || NameLength(name) != name.size() || plain(at_ + 1) != "in") return;
  const Location where = tokens()[at_].where;
  Words values;
  for (at_ += 2; at_ < tokens().size() && tokens()[at_].word(); ++at_)
    for (Word& word : Expand(tokens()[at_])) values.push_back(std::move(word));
  if (branches_.Skips() || FollowLoop(name, values)) return;
  script_.variables[name] = {{OneOf(name, values, where)}, false};
}

void Follower::Choice() {
  Word chosen{"", Location(), "nobody knows it"};
  if (at_ < tokens().size() && tokens()[at_].word()) chosen = Joined(tokens()[at_++]);
  while (at_ < tokens().size() && tokens()[at_].op == "\n") ++at_;
  if (at_ < tokens().size() && tokens()[at_].Plain() == "in") ++at_;
  branches_.Choose(chosen);
}

bool Follower::Pattern() {
  const Word* const chosen = branches_.Chosen();
  if (chosen == nullptr) return false;
  while (at_ < tokens().size() && !tokens()[at_].word() && tokens()[at_].op != ")") ++at_;
  if (at_ < tokens().size() && tokens()[at_].Plain() == "esac") return false;
  const std::size_t begin = at_;
  while (at_ < tokens().size() && tokens()[at_].op != ")") ++at_;
  branches_.Arm(
      MatchesPattern(std::span(tokens()).subspan(begin, at_ - begin), *chosen, branches_.any_case));
  if (at_ < tokens().size()) ++at_;
  return true;
}

bool Follower::FollowLoop(const std::string& name, const Words& values) {
  constexpr std::size_t kMostTurns = 1024;
  const bool known =
      std::ranges::all_of(values, [](const Word& word) { return word.unresolved.empty(); });
  const std::size_t begin = at_, end = EndOfAssignments(tokens(), at_);
  if (end == 0 || !known || values.empty() || values.size() > kMostTurns) return false;
  branches_.Keyword("done");  // the assignments are those of the block around the loop
  for (const Word& value : values) {
    Store(name, {{value}, false}, false, value.where);
    for (at_ = begin; at_ < end && !script_.end && !returns_;) Command();
  }
  at_ = end + 1;
  return true;
}

bool Follower::TakeRedirect(const Words& words) {
  const Token& token = tokens()[at_++];
  const std::string& op = token.op;
  if (token.document >= 0) {
    const HereDocument& document = lexed_->documents[static_cast<std::size_t>(token.document)];
    redirects_.document = true;
    if (!branches_.Skips()) redirects_.text = Joined({{document.text}, "", document.where, -1});
  } else if (at_ < tokens().size() && tokens()[at_].word()) {  // the file behind it
    if (op[0] == '>' && op != ">&" && !branches_.Skips()) {
      redirects_.to.push_back(FromFolder(Joined(tokens()[at_])));
      redirects_.append |= op == ">>";
    }
    ++at_;
  }
  return !words.empty() && op == "<" && at_ < tokens().size() && tokens()[at_].op == "(";
}

void Follower::KeepEnvironment(const Prefix& prefix) {
  if (!prefix.empty() || InSubshell() || InChain())
    CopyCounts(script_.variables, &script_.environments[script_.commands.size()]);
  if (folder_ && !folder_->empty()) script_.folders[script_.commands.size()] = *folder_;
}

void Follower::Operator(Prefix* prefix) {
  const std::string op = at_ < tokens().size() ? tokens()[at_].op : "";
  Effects(op);
  if (prefix != nullptr) Swap(prefix);
  if (at_ >= tokens().size()) return;
  const bool closes = op == ")" && Subshells() > floor_;
  const bool goes_on = op == "&&" || op == "||" || op == "|";
  if (op != "|" && op != "&&" && op != "(") EndChain(frames_, op == "||" && LeavesBehind());
  if (op == "(") OpenSubshell();
  if (closes) CloseSubshell();
  branches_.Operator(op);
  if (op == "&&") OpenChain(frames_);
  piped_ = op == "|";
  for (++at_; goes_on && at_ < tokens().size() && tokens()[at_].op == "\n";) ++at_;
}

void Follower::Effects(const std::string& op) {
  Redirects redirects = std::exchange(redirects_, {});
  const Words words = FilesFromFolder(std::exchange(of_command_, {}));
  ReadVariables(words, redirects, branches_, &script_);
  WriteFiles(words, redirects, branches_, &script_);
  CopyFile(words, branches_, &script_);
  EditFiles(words, branches_, &script_);
  // bash <<WORD, sbatch <<WORD
  const std::size_t shell = redirects.document ? ShellOfInput(words) : words.size();
  if (shell < words.size())
    Inner(redirects.text,
          words.size() > 1 && words.front().text == "sbatch"
              ? words
              : Words(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(shell)),
          true);
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

ShellScript ReadShell(const SourcePtr& source, const OpenSourced& open) {
  const auto lexed = std::make_shared<const Lexed>(LexShell(source));
  ShellScript script = Follower(lexed, source->name, open).Run();
  AddComments(lexed->tokens, lexed->comments, &script);
  return script;
}

}  // namespace orrery::exchange
