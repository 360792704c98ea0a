// SPDX-License-Identifier: Apache-2.0
// Parses the head of a plan text: mesh, groups, streams, parameters.
#include <fmt/format.h>

#include <algorithm>

#include "model/plan/ir/plan_parser.h"
#include "model/plan/ir/text_words.h"

namespace orrery::ir {
namespace {

constexpr int kMostAxes = 16;       // bits of a mask
constexpr int kMostStreams = 256;   // Op::stream
constexpr int kMostGroups = 32767;  // Op::group
constexpr int kMostDims = 8;

}  // namespace

Plan ParsePlan(const std::string& text, const std::string& source_name) {
  return PlanParser(std::make_shared<const Source>(Source{source_name, text})).Parse();
}

Plan PlanParser::Parse() {
  lex_.SkipNewlines();
  Header();
  while (lex_.PeekIsWord("param")) ParamLine();
  const int stages = plan_.mesh.axes[plan_.mesh.program_axis].size;
  while (lex_.PeekIsWord("program")) {
    const Token at = lex_.Peek();
    const int expected = static_cast<int>(plan_.programs.size());
    Program program = ParseProgram();
    if (program.stage != expected || expected >= stages) {
      lex_.Fail(at, fmt::format("stage {} out of order", program.stage),
                fmt::format("stages 0 to {}, each once", stages - 1));
    }
    plan_.programs.push_back(std::move(program));
  }
  if (lex_.Peek().kind != Token::Kind::kEnd) lex_.FailExpected("'param', 'program' or the end");
  if (static_cast<int>(plan_.programs.size()) != stages) {
    lex_.Fail(lex_.Peek(), fmt::format("{} of {} programs", plan_.programs.size(), stages));
  }
  return std::move(plan_);
}

void PlanParser::Header() {
  lex_.ExpectWord("orrery-plan");
  lex_.Integer("the version of the plan text", 1, 1);
  lex_.EndLine();
  if (lex_.TakeIfWord("title")) {
    plan_.title = lex_.Name("the title");
    lex_.EndLine();
  }
  if (lex_.TakeIfWord("framework")) {
    plan_.framework = lex_.Name("a framework");
    lex_.EndLine();
  }
  MeshLine();
  lex_.ExpectWord("micro_batches");
  plan_.micro_batches =
      static_cast<int>(lex_.Integer("the number of micro-batches", 1, kMostMicroBatches));
  lex_.EndLine();
  if (lex_.PeekIsWord("nodes")) NodesLine();
  lex_.ExpectWord("alignment");
  const Token at = lex_.Peek();
  plan_.alignment = lex_.Integer("the alignment", 1, int64_t{1} << 30);
  if ((plan_.alignment & (plan_.alignment - 1)) != 0) {
    lex_.Fail(at, "the alignment is a power of two, in bytes");
  }
  lex_.EndLine();
  lex_.ExpectWord("frame_pool");
  plan_.frame_pool = OnOff("frame_pool");
  lex_.EndLine();
  while (lex_.PeekIsWord("group")) GroupLine();
  lex_.ExpectWord("streams");
  while (lex_.Peek().kind != Token::Kind::kNewline && lex_.Peek().kind != Token::Kind::kEnd) {
    if (streams_.size() == kMostStreams) lex_.Fail(lex_.Peek(), "more than 256 streams");
    plan_.streams.push_back(lex_.Name("a stream name"));
    streams_.Add(plan_.streams.back());
  }
  if (plan_.streams.empty()) lex_.FailExpected("a stream name");
  lex_.EndLine();
}

void PlanParser::MeshLine() {
  lex_.ExpectWord("mesh");
  int64_t ranks = 1;
  while (lex_.Peek().kind != Token::Kind::kNewline) {
    const Token at = lex_.Peek();
    MeshAxis axis;
    axis.name = lex_.Name("an axis name");
    lex_.Expect('=');
    const bool plain = lex_.Peek().kind == Token::Kind::kWord && !IsBareName(lex_.Peek().text);
    if (plain) {
      axis.size = static_cast<int>(lex_.Integer("the size of an axis", 1, kMostRanks - 1));
      if (plan_.mesh.plain() < plan_.mesh.axes.size()) lex_.Fail(at, "an axis behind a union");
      ranks *= axis.size;
    } else {
      UnionOf(at, &axis);
    }
    if (ranks > kMostRanks) lex_.Fail(at, "more than 2^31 ranks");
    if (axes_.size() == kMostAxes) lex_.Fail(at, "more than 16 axes");
    axes_.Add(axis.name);
    plan_.mesh.axes.push_back(std::move(axis));
  }
  lex_.EndLine();
  lex_.ExpectWord("program_axis");
  plan_.mesh.program_axis = lex_.Reference(axes_, "axis");
  lex_.EndLine();
  if (lex_.PeekIsWord("order")) OrderLine();
}

void PlanParser::OrderLine() {
  const Token at = lex_.Take();
  unsigned seen = 0;
  while (lex_.Peek().kind == Token::Kind::kWord) {
    const Token word = lex_.Peek();
    const auto axis = static_cast<uint8_t>(lex_.Reference(axes_, "axis"));
    if (axis >= plan_.mesh.plain() || (seen >> axis & 1) != 0)
      lex_.Fail(word, "the order names each axis that is no union once");
    seen |= 1u << axis;
    plan_.mesh.order.push_back(axis);
  }
  if (plan_.mesh.order.size() != plan_.mesh.plain())
    lex_.Fail(at, "the order names each axis that is no union once");
  lex_.EndLine();
}

void PlanParser::NodesLine() {
  const Token at = lex_.Take();
  while (lex_.Peek().kind == Token::Kind::kWord)
    plan_.nodes.push_back(static_cast<int32_t>(lex_.Integer("a node", 0, kMostRanks - 1)));
  std::vector<int32_t> sorted = plan_.nodes;
  std::ranges::sort(sorted);
  if (sorted.empty() || std::ranges::adjacent_find(sorted) != sorted.end() ||
      sorted.back() >= static_cast<int32_t>(sorted.size()))
    lex_.Fail(at, "the order of nodes names each once, from 0 on");
  lex_.EndLine();
}

void PlanParser::UnionOf(const Token& at, MeshAxis* axis) {
  axis->of = Mask();
  if (axis->of == 0 || plan_.mesh.Plain(axis->of) != axis->of)
    lex_.Fail(at, "a union names axes that are no unions");
  for (std::size_t i = 0; i < plan_.mesh.axes.size(); ++i) {
    if (axis->of >> i & 1) axis->size *= plan_.mesh.axes[i].size;
  }
}

void PlanParser::GroupLine() {
  const Token at = lex_.Take();
  if (groups_.size() == kMostGroups) lex_.Fail(at, "too many groups");
  Group group;
  group.name = lex_.Name("a group name");
  lex_.Expect('=');
  group.axes = plan_.mesh.Plain(Mask());
  if (lex_.TakeIfWord("where")) {
    group.restricted_axis = lex_.Reference(axes_, "axis");
    if ((group.axes >> group.restricted_axis & 1) == 0) {
      lex_.Fail(at, "the restricted axis is not an axis of the group");
    }
    lex_.ExpectWord("in");
    const int size = plan_.mesh.axes[group.restricted_axis].size;
    do {
      const int64_t from = group.allowed.empty() ? 0 : group.allowed.back() + 1;
      group.allowed.push_back(
          static_cast<int>(lex_.Integer("an increasing coordinate", from, size - 1)));
    } while (lex_.Peek().kind == Token::Kind::kWord);
  }
  lex_.EndLine();
  groups_.Add(group.name);
  plan_.groups.push_back(std::move(group));
}

std::vector<int64_t> PlanParser::Extents() {
  std::vector<int64_t> extents;
  lex_.Expect('[');
  while (!lex_.TakeIf(']')) {
    if (!extents.empty()) lex_.Expect(',');
    if (extents.size() == kMostDims) lex_.Fail(lex_.Peek(), "more than 8 dimensions");
    extents.push_back(lex_.Integer("a dimension", 0, kMostElements));
  }
  return extents;
}

void PlanParser::ParamLine() {
  lex_.Take();
  Param param;
  param.name = lex_.Name("a parameter name");
  param.shape = Extents();
  const auto dims = static_cast<int64_t>(param.shape.size());
  Fields([&](const Token& key) {
    if (key.text == "dim") {
      param.shard_dim = static_cast<int8_t>(lex_.Integer("the sharded dimension", 0, dims - 1));
    } else if (key.text == "axis") {
      param.shard_axis = static_cast<int8_t>(lex_.Reference(axes_, "axis"));
    } else if (key.text == "partial") {
      param.partial_over = Mask();
    } else if (key.text == "tie") {
      param.tie = static_cast<int16_t>(lex_.Integer("tie", 0, 32767));
    } else if (key.text == "real_rows") {
      param.real_rows = lex_.Integer("real_rows", 0, kMostElements);
    } else if (key.text == "init") {
      param.init = static_cast<Init>(lex_.OneOf(kInitWords, "initialisation"));
    } else if (key.text == "std") {
      param.init_std = lex_.Number("std");
    } else if (key.text == "decay") {
      param.decay = OnOff("decay");
    } else if (key.text == "frozen") {
      param.frozen = OnOff("frozen");
    } else if (key.text == "packing") {
      param.packing = static_cast<Packed>(lex_.OneOf(kPackingWords, "packing"));
    } else if (key.text == "of") {
      param.of = Extents();
    } else {
      FailKey(key, {"dim", "axis", "partial", "tie", "real_rows", "init", "std", "decay", "frozen",
                    "packing", "of"});
    }
  });
  params_.Add(param.name);
  plan_.params.push_back(std::move(param));
}

void PlanParser::Fields(const std::function<void(const Token&)>& take) {
  std::vector<std::string_view> seen;
  while (lex_.Peek().kind == Token::Kind::kWord) {
    const Token key = lex_.Take();
    if (std::find(seen.begin(), seen.end(), key.text) != seen.end()) {
      lex_.Fail(key, fmt::format("'{}' is given twice", key.text));
    }
    seen.push_back(key.text);
    lex_.Expect('=');
    take(key);
  }
  lex_.EndLine();
}

void PlanParser::FailKey(const Token& key, const std::vector<std::string>& known) {
  lex_.Fail(key, fmt::format("unknown key '{}'", key.text.substr(0, 60)),
            SuggestName(key.text, known));
}

uint16_t PlanParser::Mask() {
  if (lex_.TakeIf('%')) {
    const int64_t most = (int64_t{1} << axes_.size()) - 1;
    return static_cast<uint16_t>(lex_.Integer("a mask of axes", 0, most));
  }
  uint16_t mask = 0;
  do {
    mask = static_cast<uint16_t>(mask | 1 << lex_.Reference(axes_, "axis"));
  } while (lex_.TakeIf(','));
  return mask;
}

uint8_t PlanParser::Flags() {
  if (lex_.TakeIfWord(kLastWord)) return kWhenLast;
  return static_cast<uint8_t>(lex_.Integer("call flags ('last' or a mask)", 0, 255));
}

bool PlanParser::OnOff(const char* what) {
  if (lex_.TakeIfWord("on")) return true;
  if (lex_.TakeIfWord("off")) return false;
  lex_.FailExpected(fmt::format("{} on or off", what));
}

}  // namespace orrery::ir
