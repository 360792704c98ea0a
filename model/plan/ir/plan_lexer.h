// SPDX-License-Identifier: Apache-2.0
// Words, quoted names, numbers and punctuation of the plan text, with places for errors.
//
// Every reading function throws InputError (file, line, column, hint) when the text has something
// else. `what` names the expected thing in that message.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "model/base/diagnostics.h"

namespace orrery::ir {

struct Token {
  enum class Kind : uint8_t { kWord, kString, kPunctuation, kNewline, kEnd };
  Kind kind = Kind::kEnd;
  std::string_view text;  // of a string: what stands between the quotes, escapes unresolved
  std::size_t position = 0;
};

// Names in definition order; a name given twice can only be referred to by %index.
class NameIndex {
 public:
  void Add(const std::string& name);
  void Clear() { ids_.clear(), size_ = 0; }
  int size() const { return size_; }
  int Find(const std::string& name) const;  // -1: unknown, -2: ambiguous
  std::vector<std::string> Names() const;

 private:
  std::unordered_map<std::string, int> ids_;
  int size_ = 0;
};

class PlanLexer {
 public:
  explicit PlanLexer(SourcePtr source);

  const Token& Peek() const { return next_; }
  Token Take();
  bool PeekIs(char punctuation) const;
  bool PeekIsWord(std::string_view word) const;
  bool TakeIf(char punctuation);
  bool TakeIfWord(std::string_view word);
  void Expect(char punctuation);
  void ExpectWord(std::string_view word);
  void EndLine();  // also takes the blank lines that follow
  void SkipNewlines();

  Token Word(const char* what);
  std::string Name(const char* what);  // bare or quoted
  int64_t Integer(const char* what, int64_t min, int64_t max);
  double Number(const char* what);                          // finite
  int Reference(const NameIndex& index, const char* what);  // a unique name, or %index
  int OneOf(std::span<const std::string_view> words, const char* what);

  // The same for text that is part of a word.
  int64_t IntegerIn(const Token& token, std::string_view digits, const char* what, int64_t min,
                    int64_t max) const;
  int Resolve(const NameIndex& index, const Token& token, const std::string& name,
              const char* what) const;

  [[noreturn]] void Fail(const Token& at, std::string message, std::string hint = "") const;
  [[noreturn]] void FailExpected(const std::string& what) const;  // at the next token

 private:
  Token Scan();
  Token ScanString();
  std::string Unescaped(const Token& token) const;

  SourcePtr source_;
  std::string_view text_;
  std::size_t position_ = 0;
  Token next_;
};

}  // namespace orrery::ir
