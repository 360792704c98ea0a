// SPDX-License-Identifier: Apache-2.0
// Opens the operands of attention ops and chooses how to compute them.
#include "runtime/device/cuda/attention.h"

#include "runtime/device/cpu/attention.h"
#include "runtime/device/cuda/ops.h"

namespace orrery::cuda {
namespace {

AttentionOperands Open(const OpFrame& f, bool cross) {
  const cpu::AttentionShape s = cpu::MakeAttentionShape(f.checks(), cross);
  AttentionOperands o;
  o.s = {s.batch,   s.seq,      s.seq_kv,         s.nh,         s.hd,     s.buckets,
         s.q_width, s.kv_width, s.queries_per_kv, s.first_head, s.causal, s.flash,
         s.cross,   s.drops,    s.scale,          s.window,     s.cap,    s.alibi};
  o.draw = DrawOf(f);
  return o;
}

int64_t Queries(const Heads& s) { return s.seq * s.batch * s.q_width; }
int64_t KeyValues(const Heads& s) { return s.seq_kv * s.batch * s.kv_width; }

bool Materialises(const Heads& s) { return !s.flash && s.drops; }

void OpenSavedOut(const OpFrame& f, AttentionOperands* o) {
  o->ctx = f.Out(0, o->s.Context());
  o->softmax = f.Out(1, o->s.flash ? o->s.Rows() : o->s.Probabilities());
  if (!Materialises(o->s)) return;
  o->mask = f.Out(2, o->s.Probabilities());
  o->dropped = f.Out(3, o->s.Probabilities());
}

// Inputs `first`, ... ; returns how many they are.
size_t OpenSavedIn(const OpFrame& f, size_t first, AttentionOperands* o) {
  o->softmax = f.In(first, o->s.flash ? o->s.Rows() : o->s.Probabilities());
  if (!Materialises(o->s)) return 1;
  o->mask = f.In(first + 1, o->s.Probabilities());
  o->dropped = f.In(first + 2, o->s.Probabilities());
  return 3;
}

void Forward(OpFrame& f, const AttentionOperands& o) {
  CanFlash(o) ? FlashForward(f, o) : PlainForward(f, o);
}
void Backward(OpFrame& f, const AttentionOperands& o) {
  CanFlash(o) ? FlashBackward(f, o) : PlainBackward(f, o);
}

}  // namespace

void Attention(OpFrame& f) {
  AttentionOperands o = Open(f, false);
  o.q = o.kv = f.In(0, Queries(o.s));
  if (o.s.buckets > 0) o.bias = f.In(1, o.s.buckets * o.s.nh);
  OpenSavedOut(f, &o);
  Forward(f, o);
}

void CrossAttention(OpFrame& f) {
  AttentionOperands o = Open(f, true);
  o.q = f.In(0, Queries(o.s));
  o.kv = f.In(1, KeyValues(o.s));
  OpenSavedOut(f, &o);
  Forward(f, o);
}

void AttentionBackward(OpFrame& f) {
  AttentionOperands o = Open(f, false);
  o.dctx = f.In(0, o.s.Context());
  o.q = o.kv = f.In(1, Queries(o.s));
  o.ctx = f.In(2, o.s.Context());
  const size_t behind = 3 + OpenSavedIn(f, 3, &o);
  o.dq = o.dkv = f.Out(0, Queries(o.s));
  if (o.s.buckets > 0) {
    o.bias = f.In(behind, o.s.buckets * o.s.nh);
    o.dbias = f.InOut(1, behind + 1, o.s.buckets * o.s.nh);
  }
  Backward(f, o);
}

void CrossAttentionBackward(OpFrame& f) {
  AttentionOperands o = Open(f, true);
  o.dctx = f.In(0, o.s.Context());
  o.q = f.In(1, Queries(o.s));
  o.kv = f.In(2, KeyValues(o.s));
  o.ctx = f.In(3, o.s.Context());
  OpenSavedIn(f, 4, &o);
  o.dq = f.Out(0, Queries(o.s));
  o.dkv = f.Out(1, KeyValues(o.s));
  Backward(f, o);
}

}  // namespace orrery::cuda
