// SPDX-License-Identifier: Apache-2.0
// Parses one program of a plan text: units, rings, buffers, views, then its blocks and schedule.
#include <fmt/format.h>

#include "model/plan/ir/plan_parser.h"
#include "model/plan/ir/text_words.h"

namespace orrery::ir {

Program PlanParser::ParseProgram() {
  const Token at = lex_.Take();
  Program program;
  for (NameIndex* index : {&units_, &rings_, &buffers_, &views_, &blocks_}) index->Clear();
  program.stage = static_cast<int>(lex_.Integer("the stage", 0, kMostRanks - 1));
  lex_.Expect('{');
  lex_.EndLine();
  while (lex_.PeekIsWord("unit")) UnitLine(&program);
  while (lex_.PeekIsWord("ring")) RingLine(&program);
  while (lex_.PeekIsWord("buf")) BufferLine(&program);
  while (lex_.PeekIsWord("view")) ViewLine(&program);
  while (lex_.PeekIsWord("block")) {
    program.blocks.push_back(ParseBlock());
    blocks_.Add(program.blocks.back().name);
  }
  if (!lex_.PeekIsWord("schedule")) {
    lex_.FailExpected("unit, ring, buf, view, block or schedule, in this order");
  }
  program.schedule = ParseSchedule();
  lex_.Expect('}');
  lex_.EndLine();
  CheckSize(program, at);
  return program;
}

void PlanParser::UnitLine(Program* program) {
  lex_.Take();
  Unit unit;
  unit.name = lex_.Name("a unit name");
  lex_.ExpectWord("n");
  lex_.Expect('=');
  unit.elements = lex_.Integer("the elements of a unit", 0, kMostElements);
  lex_.ExpectWord("replicated_from");
  lex_.Expect('=');
  unit.replicated_from = lex_.Integer("replicated_from", 0, unit.elements);
  while (lex_.Peek().kind != Token::Kind::kNewline && lex_.Peek().kind != Token::Kind::kEnd) {
    UnitSegment segment{};
    segment.param = lex_.Reference(params_, "parameter");
    lex_.Expect('[');
    segment.offset = lex_.Integer("the offset of a segment", 0, unit.elements);
    lex_.Expect(',');
    segment.elements = lex_.Integer("the elements of a segment", 0, unit.elements - segment.offset);
    lex_.Expect(']');
    unit.segments.push_back(segment);
  }
  lex_.EndLine();
  units_.Add(unit.name);
  program->units.push_back(std::move(unit));
}

void PlanParser::RingLine(Program* program) {
  const Token at = lex_.Take();
  if (rings_.size() == 32767) lex_.Fail(at, "too many rings");
  Ring ring;
  ring.name = lex_.Name("a ring name");
  lex_.ExpectWord("slots");
  lex_.Expect('=');
  ring.slots = static_cast<int>(lex_.Integer("the slots of a ring", 1, 32767));
  lex_.EndLine();
  rings_.Add(ring.name);
  program->rings.push_back(std::move(ring));
}

void PlanParser::BufferLine(Program* program) {
  lex_.Take();
  Buffer buffer;
  buffer.name = lex_.Name("a buffer name");
  buffer.cls = static_cast<BufferClass>(lex_.OneOf(kClassWords, "buffer class"));
  buffer.dtype = static_cast<Dtype>(lex_.OneOf(kDtypeWords, "element type"));
  lex_.Expect('[');
  buffer.elements = lex_.Integer("the elements of a buffer", 0, kMostElements);
  lex_.Expect(']');
  Fields([&](const Token& key) {
    if (key.text == "life") {
      buffer.life = static_cast<Life>(lex_.OneOf(kLifeWords, "life"));
    } else if (key.text == "extra") {
      buffer.extra_slots = static_cast<uint8_t>(lex_.Integer("extra slots", 0, 255));
    } else if (key.text == "ring") {
      buffer.ring = static_cast<int16_t>(lex_.Reference(rings_, "ring"));
    } else if (key.text == "ring_index") {
      buffer.ring_index = static_cast<int16_t>(lex_.Integer("ring_index", 0, 32767));
    } else if (key.text == "unit") {
      buffer.unit = lex_.Reference(units_, "unit");
    } else if (key.text == "shard") {
      buffer.unit_shard_axis = static_cast<int8_t>(lex_.Reference(axes_, "axis"));
    } else if (key.text == "space") {
      buffer.space = static_cast<Space>(lex_.OneOf(kSpaceWords, "memory space"));
    } else {
      FailKey(key, {"life", "extra", "ring", "ring_index", "unit", "shard", "space"});
    }
  });
  buffers_.Add(buffer.name);
  program->buffers.push_back(std::move(buffer));
}

void PlanParser::ViewLine(Program* program) {
  lex_.Take();
  const Token at = lex_.Peek();
  View view;
  view.name = lex_.Name("a view name");
  if (lex_.TakeIf('=')) {
    view.buffer = lex_.Reference(buffers_, "buffer");
    const int64_t elements = program->buffers[view.buffer].elements;
    lex_.Expect('[');
    view.offset = lex_.Integer("the offset of a view", 0, elements);
    lex_.Expect(',');
    view.elements = lex_.Integer("the elements of a view", 0, elements - view.offset);
    lex_.Expect(']');
  } else {
    view.buffer = lex_.Resolve(buffers_, at, view.name, "buffer");
    view.elements = program->buffers[view.buffer].elements;
  }
  lex_.EndLine();
  views_.Add(view.name);
  program->views.push_back(std::move(view));
}

// The arena holds at most one copy of a buffer per micro-batch and extra slot: its size must fit.
void PlanParser::CheckSize(const Program& program, const Token& at) {
  double bytes = 0;
  for (const Buffer& buffer : program.buffers) {
    const double slots = double(plan_.micro_batches) + buffer.extra_slots;
    bytes += (double(buffer.elements) * DtypeBytes(buffer.dtype) + plan_.alignment) * slots;
    if (buffer.ring >= 0) {
      bytes +=
          double(buffer.elements) * DtypeBytes(buffer.dtype) * program.rings[buffer.ring].slots;
    }
  }
  if (bytes > 4e18) lex_.Fail(at, "the buffers of this program could exceed 2^62 bytes");
}

}  // namespace orrery::ir
