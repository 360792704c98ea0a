// SPDX-License-Identifier: Apache-2.0
// Collectives in shared memory. Sums go the way of a ring, piece by piece, rounding like one.
#include "runtime/comm/local_collectives.h"

#include <fmt/format.h>

#include <cstring>

namespace orrery::comm {
namespace {

std::byte* Bytes(void* p) { return static_cast<std::byte*>(p); }
const std::byte* Bytes(const void* p) { return static_cast<const std::byte*>(p); }

void Copy(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memmove(to, from, static_cast<std::size_t>(bytes));
}

// The sum of elements [begin, begin + n) of all inputs, from member `piece` + 1 round to `piece`.
void SumRound(std::span<const Collective> parts, std::size_t piece, int64_t begin, int64_t n,
              std::byte* sum) {
  const int64_t width = ir::DtypeBytes(parts[0].dtype), at = begin * width;
  const std::size_t g = parts.size();
  Copy(sum, Bytes(parts[(piece + 1) % g].in) + at, n * width);
  for (std::size_t k = 2; k <= g; ++k)
    ReduceInto(sum, Bytes(parts[(piece + k) % g].in) + at, n, parts[0].dtype, parts[0].maximum);
}

void AllReduce(std::span<const Collective> parts) {
  const int64_t width = ir::DtypeBytes(parts[0].dtype), n = parts[0].n;
  const auto g = static_cast<int64_t>(parts.size());
  std::vector<std::byte> total(static_cast<std::size_t>(n * width));
  for (int64_t c = 0; c < g; ++c) {
    const int64_t begin = PieceBegin(n, c, g), end = PieceBegin(n, c + 1, g);
    SumRound(parts, static_cast<std::size_t>(c), begin, end - begin, total.data() + begin * width);
  }
  for (const Collective& part : parts) Copy(part.out, total.data(), n * width);
}

void ReduceScatter(std::span<const Collective> parts) {
  const int64_t width = ir::DtypeBytes(parts[0].dtype), n = parts[0].n;
  std::vector<std::byte> total(static_cast<std::size_t>(n * width) * parts.size());
  for (std::size_t c = 0; c < parts.size(); ++c) {
    const int64_t begin = static_cast<int64_t>(c) * n;
    SumRound(parts, c, begin, n, total.data() + begin * width);
  }
  for (std::size_t c = 0; c < parts.size(); ++c)
    Copy(parts[c].out, total.data() + static_cast<int64_t>(c) * n * width, n * width);
}

void AllGather(std::span<const Collective> parts) {
  const int64_t bytes = parts[0].n * ir::DtypeBytes(parts[0].dtype);
  for (const Collective& to : parts) {
    for (std::size_t k = 0; k < parts.size(); ++k)
      Copy(Bytes(to.out) + static_cast<int64_t>(k) * bytes, parts[k].in, bytes);
  }
}

void AllToAll(std::span<const Collective> parts) {
  const int64_t bytes = parts[0].n * ir::DtypeBytes(parts[0].dtype);
  for (std::size_t to = 0; to < parts.size(); ++to) {
    for (std::size_t from = 0; from < parts.size(); ++from) {
      Copy(Bytes(parts[to].out) + static_cast<int64_t>(from) * bytes,
           Bytes(parts[from].in) + static_cast<int64_t>(to) * bytes, bytes);
    }
  }
}

}  // namespace

void CheckAlike(std::span<const Collective> parts) {
  const Collective& a = parts[0];
  for (const Collective& b : parts) {
    if (a.kind != b.kind || a.n != b.n || a.dtype != b.dtype || a.maximum != b.maximum ||
        a.tag != b.tag || a.root != b.root) {
      throw CommError(
          fmt::format("members of a group start different collectives: kind {} of {} elements, tag "
                      "{} against kind {} of {} elements, tag {}",
                      static_cast<int>(a.kind), a.n, a.tag, static_cast<int>(b.kind), b.n, b.tag));
    }
  }
}

void Perform(std::span<const Collective> parts) {
  switch (parts[0].kind) {
    case CollectiveKind::kAllReduce:
      return AllReduce(parts);
    case CollectiveKind::kAllGather:
      return AllGather(parts);
    case CollectiveKind::kReduceScatter:
      return ReduceScatter(parts);
    case CollectiveKind::kAllToAll:
      return AllToAll(parts);
    case CollectiveKind::kBroadcast:
      for (const Collective& part : parts)
        Copy(part.out, parts[static_cast<std::size_t>(parts[0].root)].in,
             parts[0].n * ir::DtypeBytes(parts[0].dtype));
      return;
    case CollectiveKind::kBarrier:
      return;
  }
}

}  // namespace orrery::comm
