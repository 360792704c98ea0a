// SPDX-License-Identifier: Apache-2.0
// Recursive-descent parser of the plan text; see text_words.h for names and README.md for the form.
#pragma once

#include <functional>

#include "model/plan/ir/plan.h"
#include "model/plan/ir/plan_lexer.h"

namespace orrery::ir {

class PlanParser {
 public:
  explicit PlanParser(SourcePtr source) : lex_(std::move(source)) {}
  Plan Parse();

 private:
  // parse.cc
  void Header();
  void MeshLine();
  void OrderLine();
  void NodesLine();
  void UnionOf(const Token& at, MeshAxis* axis);
  void GroupLine();
  void ParamLine();
  // parse_program.cc
  Program ParseProgram();
  void UnitLine(Program* program);
  void RingLine(Program* program);
  void BufferLine(Program* program);
  void ViewLine(Program* program);
  void CheckSize(const Program& program, const Token& at);
  // parse_op.cc
  Block ParseBlock();
  Op OpLine();
  void OpTail(Op* op);
  void OpField(const Token& key, Op* op);
  void CheckOp(const Token& at, const Op& op);
  // parse_schedule.cc
  std::vector<Item> ParseSchedule();
  std::vector<Item> Items();
  Item Loop();
  Item CallItem(int block);
  void CallIndex(Item* call);

  // Takes "key=value" pairs to the end of the line; `take` reads the value. Each key comes once.
  void Fields(const std::function<void(const Token&)>& take);
  [[noreturn]] void FailKey(const Token& key, const std::vector<std::string>& known);
  std::vector<int64_t> Extents();  // of a tensor: [64,32]
  uint16_t Mask();
  uint8_t Flags();
  bool OnOff(const char* what);

  struct OpenLoop {
    int64_t stride = 0;
    bool known = false;  // a call inside has told the stride
  };

  PlanLexer lex_;
  Plan plan_;
  NameIndex axes_, groups_, streams_, params_;
  NameIndex units_, rings_, buffers_, views_, blocks_;  // of the current program
  std::vector<OpenLoop> loops_;
};

// Limits that keep every derived number far inside 64 bits; no training run comes near them.
inline constexpr int64_t kMostRanks = int64_t{1} << 31;
inline constexpr int64_t kMostMicroBatches = int64_t{1} << 24;

}  // namespace orrery::ir
