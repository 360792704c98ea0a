// SPDX-License-Identifier: Apache-2.0
// Random calls of attention, forward and backward; what backward reads comes from the reference's forward pass.
#include <fmt/format.h>

#include "tests/cpu_kernels/typed_call.h"

namespace orrery {
namespace {

using ir::Attr;
using ir::Attrs;
using ir::OpKind;

struct Heads {
  const char* name;
  int64_t batch, seq, nh, kv, hd;
  bool causal;
  int64_t buckets = 0;
  double scale = 0, rate = 0;
  int64_t window = 0;
  double cap = 0;
  int64_t alibi = 0;
};
constexpr Heads kSelf[] = {
    {"plain", 2, 9, 3, 3, 5, false},
    {"causal", 2, 70, 2, 2, 16, true},
    {"long", 1, 150, 1, 1, 24, true},
    {"one", 1, 1, 1, 1, 1, true},
    {"grouped", 2, 11, 6, 2, 8, true},
    {"multi_query", 1, 65, 4, 1, 7, false},
    {"relative", 2, 67, 2, 2, 8, false, 32, 1},
    {"relative_causal", 2, 19, 2, 2, 8, true, 8, 1},
    {"dropout", 2, 13, 2, 2, 8, false, 0, 0, 0.3},
    {"all", 3, 71, 4, 2, 6, true, 16, 1, 0.2},
    {"window", 2, 150, 4, 2, 8, true, 0, 0, 0, 20},
    {"cap", 1, 70, 2, 2, 8, true, 0, 2, 0, 0, 0.8},
    {"relative_cap", 2, 67, 2, 2, 8, false, 32, 1, 0, 0, 0.8},
    {"alibi", 2, 70, 3, 3, 8, true, 0, 0, 0, 0, 0, 6},
    {"alibi_all", 2, 70, 2, 1, 8, true, 0, 0, 0.2, 7, 0.8, 4},
    {"wide", 1, 9, 2, 1, 300, true},
    {"window_cap_dropout", 1, 90, 2, 1, 6, true, 0, 2, 0.2, 7, 0.8},
};

double Real(int64_t n) { return static_cast<double>(n); }

Attrs AttrsOf(const Heads& c, bool flash, int64_t seq_kv) {
  Attrs attrs{{Attr::kBatch, Real(c.batch)}, {Attr::kSeq, Real(c.seq)}, {Attr::kNh, Real(c.nh)},
              {Attr::kHd, Real(c.hd)},       {Attr::kFlash, flash},     {Attr::kScale, c.scale},
              {Attr::kRate, c.rate},         {Attr::kSite, 3},          {Attr::kAxis, 0}};
  if (seq_kv > 0) {
    attrs.Set(Attr::kSeqKv, Real(seq_kv));
    return attrs;
  }
  attrs.Set(Attr::kKv, Real(c.kv));
  attrs.Set(Attr::kCausal, c.causal);
  attrs.Set(Attr::kBuckets, Real(c.buckets));
  attrs.Set(Attr::kWindow, Real(c.window));
  attrs.Set(Attr::kCap, c.cap);
  attrs.Set(Attr::kAlibi, Real(c.alibi));
  return attrs;
}

// Sizes and types of what the forward pass gives.
struct Outputs {
  std::vector<int64_t> sizes;
  std::string types;
};

Outputs OutputsOf(const Heads& c, bool flash, int64_t seq_kv) {
  const int64_t context = c.seq * c.batch * c.nh * c.hd,
                probabilities = c.batch * c.nh * c.seq * seq_kv;
  if (flash) return {{context, c.seq * c.batch * c.nh}, "fs"};
  if (c.rate == 0) return {{context, probabilities}, "ff"};
  return {{context, probabilities, probabilities, probabilities}, "ffmf"};
}

void AddSelf(const Heads& c, bool flash, std::vector<TypedCall>& cases) {
  const int64_t queries = c.seq * c.batch * (c.nh + 2 * c.kv) * c.hd;
  const Attrs attrs = AttrsOf(c, flash, 0);
  const Outputs outputs = OutputsOf(c, flash, c.seq);
  const Vector qkv = Random(queries, 1), bias = Random(c.buckets * c.nh, 2),
               dctx = Random(outputs.sizes[0], 3);
  OpCall forward{OpKind::kAttn, attrs, {qkv}, outputs.sizes, {}, {1}, 5};
  if (c.buckets > 0) forward.in.push_back(bias);
  forward.first_sample = 4;
  const std::vector<Vector> saved = RunOp(forward);
  OpCall backward{OpKind::kAttnBwd, attrs, {dctx, qkv}, {queries}, {}, {1}, 5};
  backward.first_sample = 4;
  backward.in.insert(backward.in.end(), saved.begin(), saved.end());
  std::string in = "ff" + outputs.types, out = "f";
  if (c.buckets > 0) {
    backward.in.insert(backward.in.end(), {bias, Random(c.buckets * c.nh, 6)});
    backward.out_sizes.push_back(c.buckets * c.nh);
    backward.shared = {{1, backward.in.size() - 1}};
    in += "ff";
    out += "f";
  }
  const std::string name = fmt::format("attn_{}_{}", c.name, flash ? "flash" : "kept");
  cases.push_back({name, forward, c.buckets > 0 ? "ff" : "f", outputs.types});
  cases.push_back({name + "_bwd", backward, in, out});
}

void AddCross(const Heads& c, int64_t seq_kv, bool flash, std::vector<TypedCall>& cases) {
  const int64_t context = c.seq * c.batch * c.nh * c.hd,
                kv_size = seq_kv * c.batch * 2 * c.nh * c.hd;
  const Attrs attrs = AttrsOf(c, flash, seq_kv);
  const Outputs outputs = OutputsOf(c, flash, seq_kv);
  const Vector q = Random(context, 1), kv = Random(kv_size, 2), dctx = Random(context, 3);
  const OpCall forward{OpKind::kCrossAttn, attrs, {q, kv}, outputs.sizes, {}, {1}};
  const std::vector<Vector> saved = RunOp(forward);
  OpCall backward{OpKind::kCrossAttnBwd, attrs, {dctx, q, kv}, {context, kv_size}, {}, {1}};
  backward.in.insert(backward.in.end(), saved.begin(), saved.end());
  const std::string name = fmt::format("cross_attn_{}_{}", c.name, flash ? "flash" : "kept");
  cases.push_back({name, forward, "ff", outputs.types});
  cases.push_back({name + "_bwd", backward, "fff" + outputs.types, "ff"});
}

void AddRope(std::vector<TypedCall>& cases) {
  const int64_t batch = 2, rows = 22, nh = 4, kv = 2, hd = 6, n = rows * (nh + 2 * kv) * hd;
  for (const bool inverse : {false, true}) {
    const Attrs attrs{{Attr::kRows, Real(rows)}, {Attr::kBatch, Real(batch)},
                      {Attr::kNh, Real(nh)},     {Attr::kKv, Real(kv)},
                      {Attr::kHd, Real(hd)},     {Attr::kInverse, inverse}};
    Attrs part = attrs;
    part.Set(Attr::kTurn, 4);
    part.Set(Attr::kBase, 500000);
    Attrs llama3 = attrs, yarn = attrs;
    for (Attrs* scaled : {&llama3, &yarn}) scaled->Set(Attr::kStretch, 8);
    llama3.Set(Attr::kOriginal, 40);
    llama3.Set(Attr::kRampFrom, 0.1);
    llama3.Set(Attr::kRampTo, 4);
    yarn.Set(Attr::kRampTo, 1.5);
    yarn.Set(Attr::kMagnify, 1.25);
    for (const Attrs& scaled : {llama3, yarn})
      cases.push_back({"rope_scaled", {OpKind::kRope, scaled, {Random(n, 1)}, {n}}, "f", "f"});
    cases.push_back({"rope_part", {OpKind::kRope, part, {Random(n, 1)}, {n}, {{0, 0}}}, "f", "f"});
    cases.push_back({"rope", {OpKind::kRope, attrs, {Random(n, 1)}, {n}}, "f", "f"});
    cases.push_back(
        {"rope_in_place", {OpKind::kRope, attrs, {Random(n, 1)}, {n}, {{0, 0}}}, "f", "f"});
    const int64_t q = rows * nh * hd, k = rows * kv * hd;
    for (const Attrs& one : {attrs, part}) {
      if (inverse) {
        cases.push_back(
            {"rope_to_apart", {OpKind::kRope, one, {Random(n, 1)}, {q, k, k}}, "f", "fff"});
      } else {
        cases.push_back({"rope_of_apart",
                         {OpKind::kRope, one, {Random(q, 1), Random(k, 2), Random(k, 3)}, {n}},
                         "fff",
                         "f"});
      }
    }
  }
}

void AddQkNorms(bool whole, std::vector<TypedCall>& cases) {
  const int64_t rows = 21, nh = 6, kv = 2, hd = 10, heads = nh + kv, n = rows * (heads + kv) * hd;
  const int64_t gains = (whole ? heads : 2) * hd, raw = rows * heads * hd,
                stats = rows * (whole ? 2 : heads);
  const Attrs attrs{{Attr::kRows, Real(rows)}, {Attr::kNh, Real(nh)},
                    {Attr::kKv, Real(kv)},     {Attr::kHd, Real(hd)},
                    {Attr::kWhole, whole},     {Attr::kEps, whole ? 0.5 : 1e-5}};
  const Vector x = Random(n, 1), gamma = Random(gains, 2), dy = Random(n, 3);
  const OpCall forward{OpKind::kQkNorm, attrs, {x, gamma}, {n, raw, stats}, {{0, 0}}};
  const std::vector<Vector> out = RunOp(forward);
  const std::string name = whole ? "qk_norm_whole" : "qk_norm";
  cases.push_back({name, forward, "ff", "ffs"});
  cases.push_back(
      {name + "_bwd", {OpKind::kQkNormBwd, attrs, {dy, out[1], out[2], gamma}, {n}}, "ffsf", "f"});
  cases.push_back({name + "_wgrad",
                   {OpKind::kQkNormWgrad, attrs, {gamma, dy, out[1], out[2]}, {gains}, {{0, 0}}},
                   "fffs",
                   "f"});
}

// One step on the rank with this coordinate of an axis of four; step -1: over all parts.
struct PartCase {
  const char* name;
  int coord, step;
  bool zigzag;
  int64_t window = 0;
  double cap = 0, rate = 0;
  int64_t alibi = 0;
};
constexpr PartCase kParts[] = {
    {"own", 1, 0, true},
    {"before", 3, 1, true},
    {"behind", 0, 1, true},
    {"contiguous", 3, 2, false},
    {"unseen", 1, 2, false},
    {"all", 2, -1, true},
    {"all_contiguous", 2, -1, false},
    {"window", 2, -1, true, 30},
    {"cap", 1, 1, true, 0, 0.8},
    {"dropout", 2, 1, true, 0, 0, 0.3},
    {"all_dropout", 1, -1, false, 0, 0, 0.2},
    {"alibi", 3, 1, true, 0, 0, 0, 12},
    {"all_alibi", 1, -1, false, 0, 0.8, 0, 12},
};

void AddPart(const PartCase& c, std::vector<TypedCall>& cases) {
  const int64_t batch = 2, part = 70, parts = 4, nh = 4, kv = 2, hd = 6;
  const int64_t keys = c.step < 0 ? part * parts : part, rows = part * batch;
  const int64_t context = rows * nh * hd, qkv = rows * (nh + 2 * kv) * hd;
  const int64_t kv_size = keys * batch * 2 * kv * hd, sums = rows * nh;
  const bool acc = c.step > 0;
  Attrs attrs{{Attr::kBatch, Real(batch)},
              {Attr::kSeq, Real(part)},
              {Attr::kSeqKv, Real(keys)},
              {Attr::kNh, Real(nh)},
              {Attr::kKv, Real(kv)},
              {Attr::kHd, Real(hd)},
              {Attr::kCausal, 1},
              {Attr::kFlash, 1},
              {Attr::kWindow, Real(c.window)},
              {Attr::kCap, c.cap},
              {Attr::kAlibi, Real(c.alibi)},
              {Attr::kRate, c.rate},
              {Attr::kSite, 3},
              {Attr::kCp, 0},
              {Attr::kPart, Real(part)},
              {Attr::kParts, Real(parts)},
              {Attr::kZigzag, c.zigzag},
              {Attr::kStep, Real(c.step)}};
  const std::vector<int> coords{c.coord};
  const Vector x = Random(qkv, 1), y = Random(kv_size, 2), dctx = Random(context, 3);
  Attrs own = attrs;
  own.Set(Attr::kSeqKv, Real(part));
  own.Set(Attr::kStep, 0);
  const Vector mine = Random(part * batch * 2 * kv * hd, 4);
  const std::vector<Vector> before =
      RunOp({OpKind::kPartAttn, own, {x, mine}, {context, sums}, {}, coords, 5});
  attrs.Set(Attr::kAcc, acc);
  OpCall forward{OpKind::kPartAttn, attrs, {x, y}, {context, sums}, {}, coords, 5};
  if (acc) {
    forward.in.insert(forward.in.end(), before.begin(), before.end());
    forward.shared = {{1, 3}};
  }
  const std::vector<Vector> saved = RunOp(forward);
  OpCall backward{
      OpKind::kPartAttnBwd, attrs, {dctx, x, y, saved[0], saved[1]}, {kv_size, qkv}, {}, coords, 5};
  if (acc) {
    backward.in.push_back(Random(qkv, 6));
    backward.shared = {{1, 5}};
  }
  const std::string name = std::string("part_attn_") + c.name;
  cases.push_back({name, forward, acc ? "ffss" : "ff", acc ? "ss" : "fs"});
  cases.push_back({name + "_bwd", backward, acc ? "ffffsf" : "ffffs", "ff"});
}

void AddRearranged(std::vector<TypedCall>& cases) {
  const int64_t rows = 12, nh = 6, kv = 2, hd = 5, parts = 3;
  const int64_t wide = rows * (nh + 2 * kv) * hd, narrow = rows * 2 * kv * hd;
  Attrs heads{{Attr::kRows, Real(rows)},
              {Attr::kNh, Real(nh)},
              {Attr::kKv, Real(kv)},
              {Attr::kHd, Real(hd)}};
  cases.push_back(
      {"key_values", {OpKind::kKeyValues, heads, {Random(wide, 1)}, {narrow}}, "f", "f"});
  heads.Set(Attr::kInverse, 1);
  cases.push_back(
      {"key_values_back",
       {OpKind::kKeyValues, heads, {Random(wide, 1), Random(narrow, 2)}, {wide}, {{0, 0}}},
       "ff",
       "f"});
  // Rows of a part of the sequence.
  for (const bool zigzag : {false, true}) {
    const Attrs place{{Attr::kBatch, 2}, {Attr::kCp, 0},          {Attr::kPart, 6},
                      {Attr::kParts, 3}, {Attr::kZigzag, zigzag}, {Attr::kRows, Real(rows)}};
    const std::vector<int> coords{1};
    Attrs turn = place, table = place;
    turn.Set(Attr::kNh, Real(nh)), turn.Set(Attr::kKv, Real(kv)), turn.Set(Attr::kHd, 6);
    table.Set(Attr::kH, 10);
    const int64_t n = rows * (nh + 2 * kv) * 6;
    cases.push_back(
        {"rope_of_a_part", {OpKind::kRope, turn, {Random(n, 1)}, {n}, {{0, 0}}, coords}, "f", "f"});
    cases.push_back(
        {"add_pos_of_a_part",
         {OpKind::kAddPos, table, {Random(rows * 10, 1), Random(190, 2)}, {rows * 10}, {}, coords},
         "ff",
         "f"});
    cases.push_back(
        {"pos_bwd_of_a_part",
         {OpKind::kPosBwd, table, {Random(190, 1), Random(rows * 10, 2)}, {190}, {{0, 0}}, coords},
         "ff",
         "f"});
    table.Set(Attr::kRate, 0.3);
    cases.push_back(
        {"dropout_of_a_part",
         {OpKind::kDropout, table, {Random(rows * 10, 1)}, {rows * 10, rows * 10}, {}, coords},
         "f",
         "fm"});
  }
  for (const bool zigzag : {false, true}) {
    for (const bool inverse : {false, true}) {
      const Attrs attrs{{Attr::kRows, Real(rows)},
                        {Attr::kH, 7},
                        {Attr::kParts, Real(parts)},
                        {Attr::kZigzag, zigzag},
                        {Attr::kInverse, inverse}};
      const int64_t n = rows * parts * 7;
      cases.push_back({fmt::format("regroup_{}{}", zigzag, inverse),
                       {OpKind::kRegroup, attrs, {Random(n, 1)}, {n}},
                       "f",
                       "f"});
    }
  }
}

}  // namespace

std::vector<TypedCall> AttentionCases() {
  std::vector<TypedCall> cases;
  for (const bool whole : {false, true}) AddQkNorms(whole, cases);
  for (const bool flash : {false, true}) {
    for (const Heads& c : kSelf) AddSelf(c, flash, cases);
    AddCross({"short", 2, 5, 2, 2, 4, false}, 9, flash, cases);
    AddCross({"long", 1, 67, 3, 3, 8, false, 0, 1, 0.25}, 33, flash, cases);
  }
  AddRope(cases);
  for (const PartCase& c : kParts) AddPart(c, cases);
  AddRearranged(cases);
  return cases;
}

}  // namespace orrery
