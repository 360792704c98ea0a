// SPDX-License-Identifier: Apache-2.0
// The operations of a plan: kinds, operands, attributes, and what follows from them.
//
// Conventions: row-major; an activation is [sequence, batch, width] flattened to rows x width with
// row = position * batch + sample, so that a sequence shard is one contiguous piece. A linear weight
// is [out_features, in_features]. Reading and writing one view: name it in `in` and in `out`.
// `coord(axis)` is the rank's coordinate on a mesh axis; attribute axis = -1 means "not sharded".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::ir {

using ViewId = int32_t;

// Each row of the op table (op_table.cc) gives operands, required attributes, FLOPs and trace name.
// Kernels live with the executors; the reference semantics is written here.
enum class OpKind : uint8_t {
  // Input. load: out t[seq*batch*h]; attrs what batch seq h axis; group = the data group (-1: one member): sample
  // index of local sample i of micro-batch m = (m * group size + index in group) * batch + i. Layout [position, sample]
  // (h > 0: features, [sample, h]). axis: the sequence is sharded, first position = coord(axis) * seq.
  // Masked positions are `seq` distinct positions of a sequence of v tokens.
  // Where a sequence is cut over ranks, attrs cp part parts zigzag say which positions these rows have (positions.h): of
  // load, add_pos, pos_bwd, rope, dropout, bias_res and part_attn. Attribute axis then cuts the part of the rank again.
  kLoad,
  // Element movement.
  kZero,  // out x
  kAdd,  // out c; in a, b: c = a + b. columns >= 0, attrs n rows h: c is a[rows,h], b[n] is added to its n/rows columns
         //   from `columns` on
  kSlice,  // out y[n]; in x[g*n]; attrs n axis rows: y = part coord(axis) of the g = size(axis) equal parts of x; rows > 0:
  //   of each of so many rows of x. columns >= 0, attrs n rows h: the n/rows columns from `columns` on of x[rows,h]
  kCopy,  // out y; in x: y = x, which may lie in another space (Buffer::space)
  kGatherRows,  // out y[rows,h]; in x, pos[rows]; attrs rows h batch: y[j*batch+i] = x[pos[j*batch+i]*batch+i]
  kScatterRows,  // out dx[n*h]; in dy[rows,h], pos; attrs rows h batch n axis: zero everywhere else, rows added; axis: dx holds
                 //   rows coord(axis)*n .. +n of the full sequence
  // Embeddings. axis shards the table's rows: first local row = coord(axis)*vl; foreign tokens give 0.
  kEmbed,  // out x; in tokens, table (, x if acc); attrs rows h vl axis acc scale: rows of the table times
           //   scale (0: as they are)
  kEmbedBwd,  // out dtable; in dtable, tokens, dx; attrs rows h vl axis scale: accumulates
  kAddPos,  // out y; in x, table; attrs rows h batch axis: position = (coord(axis)*rows + r) / batch
  kPosBwd,  // out dtable; in dtable, dx; attrs rows h batch axis: accumulates
  kRope,  // out qkv; in qkv; attrs rows batch nh kv hd inverse turn base: rotary positions on the first `turn` columns (0:
  //   all) of q and k, pairs (i, i+turn/2), angle position * base^(-2i/turn). Or in q[rows,nh*hd], k, v[rows,kv*hd],
  //   tensors of products of their own; inverse: out q, k, v
  // Matrix product: C[M,N] = op(A) op(B) (+ bias[N]) (+ C if acc). ta: A is stored [K,M]; tb: B is stored [N,K].
  // scale: op(A) op(B) times it (0: as it is).
  // product > 0 (enum class ProductType): A and B are cast tensors, their blocks of scales along K (below).
  kMatmul,  // out C; in A, B (, bias) (, C) (, As, Bs (, At, Bt)); attrs M N K ta tb acc bias scale product block block2
  // Casts to 8 or 4 bits (casts.h). The value of a cast element is data * scale of its block (* At of the tensor, nvfp4).
  // Of x[rows,h] stored by rows: along=1 writes data whose blocks of `block` elements run along the rows of x, across=1
  // data whose blocks run across them (down the columns), both in the order of x; block2 elements in the other direction
  // share a scale, too. So the scales are [rows/block2, h/block] and [rows/block, h/block2]. block 0: one scale for the
  // tensor, which is an input, as At is. A product that sums along stored rows reads the first, else the second.
  // hadamard: the cast across is of HadamardOf() (casts.h) every 16 rows, column by column, and has the second of two scales.
  // stochastic: rounds up or down by a draw for (site, direction, sample, position, column), attrs batch axis cp part parts
  // zigzag and group as of dropout; columns: the axis that cuts the width.
  kQuantize,  // out (q, s,) (qa, sa); in x (, scale[1|2]); attrs rows h product fmt block block2 along across made_by
              //   hadamard stochastic site batch axis columns
  kAmax,  // out a[1]; in x (, a if acc); attrs n acc made_by: the largest magnitude (of both, if acc); hadamard: a[2], of
          //   x[n/h,h] and of its transform
  kAmaxRoll,  // out hist[n*length]; in hist, a[n]; attrs n length: a in front, the oldest leave
  kScaleUpdate,  // out scale[n]; in a[n] | hist[n*length]; attrs n length product fmt margin: largest value on the
                 //   format's largest number, times 2^margin; 1 where it is 0
  // w[rows,h] of a parameter kept in few bits (packed.h). fmt: its Packed. nf4: codes[rows*h/2], scales[rows*h/64], groups;
  // which group a block is of follows from its place in the whole tensor: this rank's piece is part coord(axis) of the
  // rows, or (across) of the columns in `parts` parts.
  kUnpack,  // out w; in codes, scales (, groups); attrs rows h fmt axis across parts
  // Trained weights held in 8 bits (unit_codes.h). w: shard coord(zaxis) of a flat unit's master copy (-1: the whole), in any
  // place of which elements of several tensors may meet; k scales, of a tensor each, or (block > 0) of block x block numbers.
  kUnitAmax,  // out a[k]; in w[n]; attrs n zaxis block length: the largest magnitude behind each scale in this shard, 0:
              //   none; length > 0: for histories of so many, found by the cast that read w before
  kUnitCast,  // out q[n]; in w[n], scale[k]; attrs n zaxis product fmt block: codes, 0 in the padding
  // Attention. qkv row: per kv group (nh/kv q heads, 1 k, 1 v) of hd each. scale 1/sqrt(hd) unless attr scale.
  // flash=1: second output lse[rows*nh]; flash=0: probabilities [batch*nh*seq*seq] are kept.
  // rate>0: probabilities are dropped out by (site, sample, global head = coord(axis)*nh + h, query, key); flash=0 then
  // has two further outputs, mask and dropped probabilities (sizes of the probabilities), which backward reads behind
  // the probabilities; flash=1 draws them again.
  // window>0: query i sees keys i-window+1 .. i. cap>0: scores become cap*tanh(score/cap) (Gemma 2).
  // alibi>0: head h of so many in the model adds its slope (alibi.h) times (key - query) to scores in front of the cap.
  // buckets>0: a further input, the relative position bias table [buckets, nh] (bidirectional if not causal).
  kAttn,  // out ctx, lse|probs; in qkv (, bias); attrs batch seq nh kv hd causal flash buckets scale window cap
  kAttnBwd,  // out dqkv (, dbias); in dctx, qkv, ctx, lse|probs (, bias, dbias); same attrs; dbias accumulates
  kCrossAttn,  // out ctx, lse|probs; in q[seq*batch,nh*hd], kv[seq_kv*batch, nh*(k,v)*hd]; attrs batch seq seq_kv nh hd flash scale
  kCrossAttnBwd,  // out dq, dkv; in dctx, q, kv, ctx, lse|probs
  // Attention over a sequence that ranks share. kv row: per kv group k, v of hd each.
  kKeyValues,  // out kv; in qkv; attrs rows nh kv hd: keys and values alone. inverse: out qkv; in qkv, kv: puts them back
  kPartAttn,  // out acc, lse; in qkv, kv (, acc, lse if acc); attrs batch seq seq_kv nh kv hd causal flash scale window
  //   cap cp part parts zigzag step acc: own queries over the keys of the rank `step` before this one on axis cp; step -1:
  //   over those of all ranks, in rank order. acc: merged with what earlier steps have found, by the log of the sums
  kPartAttnBwd,  // out dkv, dqkv; in dctx, qkv, kv, ctx, lse (, dqkv if acc); same attrs: dkv of these keys, queries' columns
  //   of dqkv (those of keys and values are 0); acc: these are added up
  kRegroup,  // out y; in x; attrs rows h parts: x[rows, parts, h] to y[parts, rows, h]; zigzag: the rows of `parts` ranks, in
  //   zigzag order, to the order of the sequence; inverse: back
  // Normalisation; stats = (mean, rstd) per row for layer norm, rstd per row for RMS norm. Forward: attr eps.
  kLayerNorm,     // out y, stats[2*rows]; in x, gamma, beta; attrs rows h
  kLayerNormBwd,  // out dx; in dy, x, stats, gamma (, r if add); attrs rows h add: dx = J^T dy (+ r)
  kLayerNormWgrad,  // out dgamma, dbeta; in dgamma, dbeta, dy, x, stats; attrs rows h: accumulates
  kRmsNorm,         // out y, stats[rows]; in x, gamma
  kRmsNormBwd,      // out dx; in dy, x, stats, gamma (, r if add)
  kRmsNormWgrad,    // out dgamma; in dgamma, dy, x, stats
  // RMS norm of queries and keys in qkv rows, values as they are. whole=0: each head, gains [2*hd] of queries and keys;
  // whole=1: all heads as one, gains [(nh+kv)*hd]. raw[rows*(nh+kv)*hd]: queries, then keys before the norm.
  kQkNorm,     // out qkv, raw, stats[rows*(nh+kv)|rows*2]; in qkv, gamma; attrs rows nh kv hd whole
  kQkNormBwd,  // out dx[qkv]; in dy[qkv], raw, stats, gamma
  kQkNormWgrad,  // out dgamma; in dgamma, dy, raw, stats: accumulates
  // Element-wise.
  // Dropout: an element is kept with probability 1 - rate and scaled by 1/(1 - rate). Whether it is kept depends on the
  // seed, the step, attr site, the global sample (group and batch as in load), the position (axis: sharded sequence, as
  // in load) and the column alone, so that every layout drops the same elements.
  kBiasResidual,  // out z (, mask[rows*h] if rate); in x, y (, as many biases as attr bias says); attrs rows h bias rate
                  //   site batch axis: z = x + dropout(y + biases)
  kDropout,       // out y, mask; in x; attrs rows h rate site batch axis
  kDropoutBwd,    // out dx; in dy, mask; attrs n rate
  kColSum,        // out db; in db, dy; attrs rows h: db += column sums
  kGelu,          // out y; in x; attrs n (tanh form)
  kGeluBwd,       // out dx; in dy, x; attrs n
  kRelu,          // attrs n power: relu, or its square
  kReluBwd,
  // x[2n] as pairs (gate, up), or gate[n] and up[n] of products of their own.
  kSwiglu,  // out y[n]; in x | gate, up; attrs n gate: y = f(gate) * up, f silu, gelu or relu (GateKind)
  kSwigluBwd,  // out dx | dgate, dup; in dy[n], x | gate, up
  kTanh,       // out y; in x; attrs n cap: y = cap*tanh(x/cap)
  kTanhBwd,    // out dx; in dy, y; attrs n cap
  // Loss over a vocabulary that may be sharded over axis (v = real columns, vl = local width, padding masked).
  kXentMax,  // out m[rows]; in logits; attrs rows vl v axis
  kXentSum,  // out s[2*rows] = (sum of exp(x-m), target's x-m); in logits, m, labels; attrs rows vl v axis
  kXentGrad,  // out dlogits, loss; in logits, m, s, labels, loss (, loss scale); attrs rows vl v axis scale:
              //   loss += scale*sum(log s0 - s1); dlogits = scale * loss_scale * (softmax - onehot)
  kMse,  // out dy, loss; in y, target, loss (, loss scale); attrs n scale: loss += scale*sum((y-t)^2)
  // Optimizer. zaxis: the buffers are shard coord(zaxis) of the flat unit (-1: whole unit). `rep` is the first
  // element of the unit's tail that is replicated over the tensor axis.
  kSumSq,  // out acc; in acc, g; attrs n zaxis rep wt wrep: acc += wt*sum(g^2 before rep) + wrep*sum(after). The view `gnorm`
  //   is this sum of squares over the whole model, of gradients still multiplied by the loss scale
  kSgd,   // out W (, M); in g, W|M (, gn) (, lsc); attrs n lr wd clip master zaxis
  kAdam,  // out W (, M), m, v; in g, W|M, m, v (, gn) (, lsc); attrs n lr beta1 beta2 eps wd clip master zaxis decoupled
  kLambDir,  // out m, v, u, norms[2*segments]; in g, W|M, m, v (, gn) (, lsc); attrs as adam + wt wrep rep: per
  //   segment (w^2, u^2) of the local part, replicated tail weighted with wrep
  kLambApply,  // out W (, M); in u, W|M, norms (, gn); attrs n lr master zaxis: w -= lr * |w|/|u| * u
  kMuon,  // out W (, M), m; in g, W|M, m (, gn) (, lsc); attrs n lr wd clip master zaxis work: momentum, orthogonalised
  //   by Newton-Schulz steps on the unit's matrices (matrices.h), of which this rank does `work` operations
  kLossScale,  // out lsc; in lsc, gn: halves on a non-finite norm, doubles every 2000 good steps
  // Communication. op: 0 sum, 1 max. Members in rank order. all_reduce is in place. whole: no product in front of it or
  // behind is cut in pieces for it: for prices alone.
  kAllReduce,      // out x; in x; attrs op
  kAllGather,      // out y[g*n]; in x[n]
  kReduceScatter,  // out y[n]; in x[g*n]; attrs op
  kAllToAll,       // out y[g*n]; in x[g*n]: part k goes to member k, part k comes from member k
  kSend,           // in x; peer
  kRecv,           // out x; peer
};
inline constexpr int kOpKinds = static_cast<int>(OpKind::kRecv) + 1;

enum class Attr : uint8_t {
  kM,
  kN,
  kK,
  kTransA,
  kTransB,
  kAcc,
  kBias,
  kRows,
  kH,
  kVl,
  kV,
  kAxis,
  kBatch,
  kSeq,
  kSeqKv,
  kNh,
  kKv,
  kHd,
  kCausal,
  kFlash,
  kBuckets,
  kScale,
  kInverse,
  kAdd,
  kElements,
  kWhat,
  kZaxis,
  kRep,
  kWt,
  kWrep,
  kLr,
  kWd,
  kClip,
  kMaster,
  kBeta1,
  kBeta2,
  kEps,
  kDecoupled,
  kReduceOp,
  kRate,
  kSite,
  kWindow,
  kCap,
  kTurn,
  kBase,
  kWhole,
  kGate,
  kPower,
  kWork,
  kCp,
  kPart,
  kParts,
  kZigzag,
  kStep,
  kProduct,
  kFmt,
  kBlock,
  kBlock2,
  kAlong,
  kAcross,
  kFrom,
  kLength,
  kMargin,
  kHadamard,
  kStochastic,
  kColumns,
  kHooked,  // its weights are fetched by hooks, although this rank holds them: for prices alone
  kAlibi,
  kStretch,  // of rotary positions (positions.h), with the four behind it
  kOriginal,
  kRampFrom,
  kRampTo,
  kMagnify,
};
inline constexpr int kAttrs = static_cast<int>(Attr::kMagnify) + 1;

enum class GateKind : int { kSilu, kGelu, kRelu };
// What wrote the tensor that is cast: frameworks fuse the cast with some of them.
enum class CastFrom : int { kElsewhere, kNorm, kActivation, kWeight };

// How a frozen tensor is kept in few bits (packed.h). kE4m3: one scale; kE4m3Blocks: of each 128 x 128.
enum class Packed : uint8_t { kNone, kInt8, kNf4, kE4m3, kE4m3Blocks };

// What a load op reads.
enum class LoadWhat : int {
  kTokens,
  kLabels,
  kMaskedPositions,
  kMaskedLabels,
  kTokenTypes,
  kFeatures,
  kTargets,
  kDecoderTokens,
  kDecoderLabels
};

// Attributes in a namespace of their own (never mixed with the op's fields). Defaults are not stored.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<Attr, double>> list) {
    for (const auto& [key, value] : list) Set(key, value);
  }
  void Set(Attr key, double value);  // a value equal to the table's default is dropped
  double Get(Attr key) const;        // stored value, else the table's default
  int64_t Int(Attr key) const { return static_cast<int64_t>(Get(key)); }
  const std::vector<std::pair<Attr, double>>& entries() const { return entries_; }  // sorted by key
  bool operator==(const Attrs&) const = default;

 private:
  std::vector<std::pair<Attr, double>> entries_;
};
std::string_view AttrName(Attr attr);
// Whether what the op writes depends on counter-based draws (draws.h), so that it must know which samples it works on.
inline bool Draws(const Attrs& attrs) {
  return attrs.Get(Attr::kRate) > 0 || attrs.Get(Attr::kStochastic) != 0;
}
double AttrDefault(Attr attr);  // 0 for most, -1 for axes
// Its value is the index of a mesh axis.
inline bool NamesAxis(Attr attr) {
  return attr == Attr::kAxis || attr == Attr::kZaxis || attr == Attr::kCp || attr == Attr::kColumns;
}

// Where an op stands in the step: for breakdowns and traces, never for execution.
enum class Phase : uint8_t {
  kInput,
  kForward,
  kBackward,
  kWeightGrad,
  kRecompute,
  kParamGather,
  kGradReduce,
  kGradNorm,
  kOptimizer,
  kPipeline,
  kSetup
};
enum class Segment : uint8_t { kStep, kEmbedding, kLayer, kHead };

// A point-to-point partner: coordinate + delta on `axis`, modulo its size.
struct Peer {
  int8_t axis = -1;
  int8_t delta = 0;
  bool operator==(const Peer&) const = default;
};

struct Op {
  OpKind kind = OpKind::kZero;
  std::vector<ViewId> out, in;
  Attrs attrs;
  uint8_t stream = 0;
  int16_t group = -1;   // collectives and load; index into Plan::groups
  Peer peer;            // send and recv
  int32_t tag = 0;      // identity of the call site; takes part in matching
  uint16_t yields = 0;  // mask of axes over which out[0] is a partial sum (checked, not executed)
  uint8_t when = 0;     // 0: always; else executed only on calls whose flags contain it
  Phase phase = Phase::kForward;
  Segment segment = Segment::kStep;
  int16_t layer = -1;  // global layer index, -1: none
  bool operator==(const Op&) const = default;
};

inline constexpr uint8_t kWhenLast = 1;   // call flag: last backward call of this chunk in the step
inline constexpr uint8_t kWhenFirst = 2;  // call flag: first forward call of this chunk in the step
inline constexpr uint8_t kWhenLater = 4;  // call flag: not the first call of its block in the step

enum class OpClass : uint8_t {
  kMatmul,
  kAttention,
  kMemory,
  kOptimizer,
  kCollective,
  kPointToPoint,
  kInput,
  kHostLink  // between memory of the device and of the host
};

struct OpInfo {
  OpKind kind;
  const char* name;  // in text and traces
  OpClass op_class;
  int min_in, max_in, min_out, max_out;
};
const OpInfo& Info(OpKind kind);
std::span<const OpInfo> OpTable();

// Floating-point operations of one execution; formulas in op_table.cc (2MNK for a product; attention forward
// 4*b*nh*s*s_kv*hd, backward 8x/..10x with flash recompute, halved when causal).
double OpFlops(const Op& op);

}  // namespace orrery::ir
