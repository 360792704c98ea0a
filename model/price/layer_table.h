// SPDX-License-Identifier: Apache-2.0
// Times of one micro-batch through one layer, the embedding and the head, on one rank.
//
// Built once per MicroBatchKey; the closed form then only adds and multiplies. The host that issues kernels runs beside the device.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "model/price/layer_ops.h"
#include "model/price/setting.h"

namespace orrery {

// Seconds per micro-batch.
struct PassTime {
  double device = 0;  // kernels, messages excluded
  double tensor = 0;  // exposed tensor-parallel collectives
  double tensor_hidden = 0;
  double context = 0;  // exposed messages between ranks that share sequences
  double context_hidden = 0;
  double context_early = 0;  // of the exposed ones, those that end before a late host goes on
  double host = 0;           // issuing time
  // From when the host starts to issue until the device has run all of it: no op starts before it is issued.
  double behind = 0;

  double busy() const { return device + tensor + context; }
};

struct LayerTime {
  PassTime forward;
  PassTime backward;  // recomputation included
  PassTime leading;   // part of backward that wants no gradient: recomputation at its start
  double weight_gradient = 0;  // part of backward that may be put off, its messages included
  double weight_gradient_messages = 0;  // of it, exposed messages
  double weight_gradient_host = 0;      // of backward.host, what issues it
  double accumulate = 0;    // per micro-batch when there are several: adding up gradients
  double weight_casts = 0;  // weights in 8 or 4 bits: cast once per step
  // What a pass pays more where its weights are gathered: those casts, and the framework's hooks.
  PassTime gathered_forward, gathered_backward;
  double hooks_forward = 0, hooks_backward = 0;  // of their issuing time, the hooks
};

// Gradients that ranks of a layer add up when they are complete, where they are scattered in the passes.
struct TailTime {
  double seconds = 0, lost = 0;  // lost: by kernels beside them
  double messages = 0;
};

// A part of a pass: kernels, and what they wait for behind them.
struct PassPart {
  double kernels = 0, put_off = 0;  // put_off: of them, gradients of weights
  double message = 0;               // exposed
  bool of_sequences = false;        // a collective of ranks that share sequences
  bool of_layer = false;            // of ranks that share a layer
  bool message_put_off = false;     // for a gradient of weights
};

// A kind of layers: its passes in order; kernels alone cost nothing where their parts are needed.
struct LayerShare {
  double share = 1;  // of all layers
  std::vector<PassPart> forward, backward;
  bool recomputed = false;
  double kept_bytes = 0;  // activations for the backward pass
};

struct LayerTable {
  LayerTime layer;        // mean over the kinds of layers
  double recomputed = 0;  // share of the layers that are
  // Where some are: what the backward pass of one of them takes more than that of one that is not.
  LayerTime recomputing;
  double plain = 0;  // share of the layers whose products stay in the precision of the job
  // Where some do, and others not: what one of them takes more than one of the others.
  LayerTime plain_more;
  // Then, for bounds: each layer takes the least that one of any kind takes.
  std::shared_ptr<const LayerTable> least;
  std::vector<LayerShare> kinds;
  LayerTime embedding, head;
  TailTime layer_tail, embedding_tail, head_tail;
  double layers = 0;
  double kept_bytes = 0;        // mean over the kinds
  double layer_parameters = 0;  // per rank
  double embedding_parameters = 0;
  double table_parameters = 0;  // of them, the token table: a flat unit of its own
  double head_parameters = 0;   // on the last stage; a tied table counts on both stages
  double head_table = 0;        // of them, the output matrix, unless it is the token table
  double loss_gradient = 0;     // of head.backward, seconds of the loss in front of the products
  double final_norm_parameters = 0;  // of them: a flat unit of its own
  bool frozen = false;            // the parameters above are never updated, those of adapters are
  double adapter_parameters = 0;  // per layer and rank: a flat unit of its own
  double packed_parameters = 0;   // of a layer's, frozen in few bits: a flat unit of their own
  double code_bytes = 0;          // of one of them, as messages gather it
  double coded_parameters = 0;    // trained and held in 8 bits: likewise
  bool tied = false;
  // A plain MLP: nobody wants its input's gradient, so backward does not read the first layer's weights.
  bool first_unread = false;
  bool two_stacks = false;         // an encoder and a decoder, each behind an embedding of its own
  double relative_parameters = 0;  // T5: of both stacks, a unit beside those of layers
  double boundary_bytes = 0;       // per rank, between two stages
  // Where ranks of a layer send a part each: the gather in front of a pass, the kernel that cuts behind one.
  PassTime boundary_forward, boundary_backward;
  double boundary_cut = 0;
  // What an optimizer computes on the matrices of one layer: seconds, and the share of these operations of the largest matrix,
  // which one rank does alone.
  double matrix_update = 0, largest_matrix = 0;
  int layer_ranks = 1;     // that share a layer's weights
  int sequence_ranks = 1;  // that meet in collectives over shared sequences
  // Where they are on several nodes: share of the time of messages inside layers for which those hold the NICs.
  double holds_nics = 0;
  GroupShape shape;  // of these ranks
  // Where groups of them lie on nodes in different ways, this table is of the slowest ones, by their prices: between two GPUs
  // of a node may be less than the NICs carry. Those of the others, the fastest last.
  std::vector<std::shared_ptr<const LayerTable>> faster;

  // Of any stage, no pass takes less.
  const LayerTable& Fastest() const { return faster.empty() ? *this : *faster.back(); }
  const LayerTable& Least() const {
    const LayerTable& fastest = Fastest();
    return fastest.least != nullptr ? *fastest.least : fastest;
  }

  // Whether a chunk of so many layers begins its backward pass before a gradient reaches it: its last layer is recomputed, and
  // what it receives is not gathered in front of that.
  bool RecomputesAhead(const Recompute& recompute, double chunk_layers) const {
    const auto last = static_cast<int64_t>(chunk_layers) - 1;
    return recomputed > 0 && boundary_cut == 0 && last >= 0 && recompute.Of(last) != 0;
  }

  double TrainedOfLayer() const { return frozen ? adapter_parameters : layer_parameters; }
  double TrainedOfEnds(double parameters) const { return frozen ? 0.0 : parameters; }
};

// Seconds of the kernels of micro-batches by ShapedOp::index, on one GPU under one framework: what is the same on any number of
// nodes. Safe for concurrent use.
class KnownKernels {
 public:
  // Found, or priced; stays where it is.
  const std::vector<double>& Of(const MicroBatchKey& key, const MicroBatchOps& ops,
                                const CostSetting& setting, Precision precision);

 private:
  std::mutex mutex_;
  std::map<MicroBatchKey, std::vector<double>> kernels_;
};

// `kernels`: of KnownKernels; null: not known. Throws nothing.
LayerTable CostLayers(const MicroBatchOps& ops, const ModelSpec& model, const Workload& work,
                      const CostSetting& setting, const std::vector<double>* kernels = nullptr);

}  // namespace orrery
