// SPDX-License-Identifier: Apache-2.0
// Numbers in and out of an arena, and what it holds before the first step.
#include <algorithm>
#include <optional>
#include <stdexcept>

#include "runtime/device/cpu/low_precision.h"
#include "runtime/exec/index.h"
#include "runtime/exec/initial.h"
#include "runtime/exec/rank_image.h"
#include "runtime/exec/share.h"
#include "runtime/half.h"

namespace orrery::exec {
namespace {

using ir::BufferClass;
using ir::Dtype;

// The buffers that hold the state of a loss_scale op.
std::vector<bool> LossScaleStates(const ir::Program& program) {
  std::vector<bool> is(program.buffers.size(), false);
  for (const ir::Block& block : program.blocks) {
    for (const ir::Op& op : block.ops) {
      if (op.kind == ir::OpKind::kLossScale)
        is[At(program.views.at(At(op.out.at(0))).buffer)] = true;
    }
  }
  return is;
}

constexpr int64_t kChunk = int64_t{1} << 16;  // elements initialised at a time

// Threads that are worth starting for `chunks`. Packed parameters are drawn as whole tensors, which each thread would
// do again.
int64_t WorkersFor(const ir::Plan& plan, const ir::Unit& unit, int64_t chunks) {
  constexpr int64_t kChunksEach = 8;
  for (const ir::UnitSegment& segment : unit.segments)
    if (!plan.params.at(At(segment.param)).of.empty()) return 1;
  return std::clamp<int64_t>(chunks / kChunksEach, 1, CoresAllowed());
}

bool Stopped(const train::InitialFrom& from) { return from.stops != nullptr && from.stops(); }

void InitialiseWeights(RankImage* image, const ir::Buffer& buffer, std::byte* base,
                       const train::InitialFrom& from) {
  if (buffer.unit < 0) throw std::runtime_error(buffer.name + ": parameters of no unit");
  const ir::Unit& unit = image->program->units.at(At(buffer.unit));
  const int64_t shard =
      buffer.unit_shard_axis < 0 ? 0 : image->coords.at(At(buffer.unit_shard_axis));
  const ir::Op* cast =
      buffer.cls == BufferClass::kParam ? ir::CastOfUnit(*image->program, buffer.unit) : nullptr;
  std::optional<train::InitialCodes> codes;
  if (cast != nullptr) codes.emplace(from, *image->plan, unit, image->coords, *cast);
  const int64_t chunks = (buffer.elements + kChunk - 1) / kChunk;
  Share(chunks, WorkersFor(*image->plan, unit, chunks), [&](int64_t chunk) {
    if (Stopped(from)) return;
    const int64_t begin = chunk * kChunk;
    std::vector<double> values(At(std::min(kChunk, buffer.elements - begin)));
    train::InitialUnit(from, *image->plan, unit, image->coords, shard * buffer.elements + begin,
                       values);
    if (codes) codes->Cast(shard * buffer.elements + begin, values);
    FromNumbers(values, {base + begin * ir::DtypeBytes(buffer.dtype),
                         static_cast<int64_t>(values.size()), buffer.dtype});
  });
}

}  // namespace

std::vector<double> ToNumbers(const cpu::Operand& operand) {
  std::vector<double> numbers(At(operand.n));
  const auto fill = [&](const auto* from) {
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(from[i]);
  };
  switch (operand.dtype) {
    case Dtype::kF64:
      fill(static_cast<const double*>(operand.data));
      break;
    case Dtype::kF32:
    case Dtype::kTf32:
      fill(static_cast<const float*>(operand.data));
      break;
    case Dtype::kF16:
    case Dtype::kBf16: {
      const auto* from = static_cast<const uint16_t*>(operand.data);
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = operand.dtype == Dtype::kBf16 ? FromBf16(from[i]) : FromF16(from[i]);
      }
      break;
    }
    case Dtype::kI32:
      fill(static_cast<const int32_t*>(operand.data));
      break;
    case Dtype::kU8:
    case Dtype::kE2m1x2:  // pairs of codes
      fill(static_cast<const uint8_t*>(operand.data));
      break;
    case Dtype::kE4m3:
    case Dtype::kE5m2:
    case Dtype::kE8m0: {
      std::vector<float> values(numbers.size());
      cpu::DecodeCodes(operand.dtype, static_cast<const uint8_t*>(operand.data), operand.n,
                       values.data());
      std::copy(values.begin(), values.end(), numbers.begin());
      break;
    }
  }
  return numbers;
}

void FromNumbers(const std::vector<double>& numbers, const cpu::Operand& operand) {
  if (static_cast<int64_t>(numbers.size()) != operand.n)
    throw std::runtime_error("a view takes as many numbers as it has elements");
  const auto fill = [&]<class T>(T* to, auto convert) {
    for (std::size_t i = 0; i < numbers.size(); ++i) to[i] = convert(numbers[i]);
  };
  switch (operand.dtype) {
    case Dtype::kF64:
      return fill(static_cast<double*>(operand.data), [](double x) { return x; });
    case Dtype::kF32:
    case Dtype::kTf32:
      return fill(static_cast<float*>(operand.data),
                  [](double x) { return static_cast<float>(x); });
    case Dtype::kF16:
      return fill(static_cast<uint16_t*>(operand.data),
                  [](double x) { return ToF16(static_cast<float>(x)); });
    case Dtype::kBf16:
      return fill(static_cast<uint16_t*>(operand.data),
                  [](double x) { return ToBf16(static_cast<float>(x)); });
    case Dtype::kI32:
      return fill(static_cast<int32_t*>(operand.data),
                  [](double x) { return static_cast<int32_t>(x); });
    case Dtype::kU8:
    case Dtype::kE2m1x2:
      return fill(static_cast<uint8_t*>(operand.data),
                  [](double x) { return static_cast<uint8_t>(x); });
    case Dtype::kE4m3:
    case Dtype::kE5m2:
    case Dtype::kE8m0: {
      const std::vector<float> values(numbers.begin(), numbers.end());
      return cpu::EncodeCodes(operand.dtype, values.data(), operand.n,
                              static_cast<uint8_t*>(operand.data));
    }
  }
}

void Initialise(RankImage* image, const train::InitialFrom& from, double loss_scale) {
  const std::vector<bool> scales = LossScaleStates(*image->program);
  for (std::size_t b = 0; b < image->program->buffers.size(); ++b) {
    const ir::Buffer& buffer = image->program->buffers[b];
    if (image->layout.scope[b] != ir::Layout::Scope::kStep) continue;
    std::byte* base = image->Place(image->layout.Address(static_cast<ir::BufferId>(b), 0));
    Fill(base, 0, buffer.elements * ir::DtypeBytes(buffer.dtype), from.stops);
    if (buffer.cls == BufferClass::kParam || buffer.cls == BufferClass::kMaster)
      InitialiseWeights(image, buffer, base, from);
    if (scales[b]) FromNumbers({loss_scale}, {base, 1, buffer.dtype});
  }
  // Behind the loop, which clears their buffer.
  for (std::size_t u = 0; u < image->program->units.size(); ++u) {
    const ir::Op* cast = ir::CastOfUnit(*image->program, static_cast<int32_t>(u));
    if (cast == nullptr) continue;
    const train::InitialCodes codes(from, *image->plan, image->program->units[u], image->coords,
                                    *cast);
    FromNumbers(codes.scales(), image->OnHost(image->Resolve(cast->in.at(1), 0)));
  }
  if (from.given != nullptr && !Stopped(from)) from.given->CheckWhole();
}

}  // namespace orrery::exec
