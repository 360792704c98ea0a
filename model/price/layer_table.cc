// SPDX-License-Identifier: Apache-2.0
// Adds up op times per layer and pass.
#include "model/price/layer_table.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>

#include "model/arch/parameters.h"
#include "model/base/check.h"
#include "model/collectives/group_shapes.h"
#include "model/plan/lower/coded.h"
#include "model/plan/lower/packed.h"
#include "model/price/layer_means.h"
#include "model/price/layer_messages.h"
#include "model/price/message_prices.h"
#include "model/price/op_prices.h"

namespace orrery {
namespace {

struct SegmentCosting {
  const OpPrices& ops;
  const LayerMessages& messages;

  double ExposedOf(const CollectiveShape& shape, Pass pass) const {
    const PreparedMessage& message = messages.Of(shape, pass == Pass::kBackward);
    return message.Time(shape.bytes) * (1.0 - message.terms.hidden);
  }

  RingOp InRing(const ShapedOp& op, int list) const {
    RingOp of{ops.Price(op, false).device, list, op.awaited_hops, std::get_if<HopShape>(&op.shape)};
    if (const auto* collective = std::get_if<CollectiveShape>(&op.shape))
      of.seconds += ExposedOf(*collective, op.pass);
    return of;
  }

  // Of ops in the order of issue; of rings alone whose ranks are ahead of each other.
  RingWaits Waits(std::span<const RingOp> all, int lists) const {
    return WaitsOfRing(all, lists, messages.ring_ranks(), [this](double bytes, bool leaves) {
      return leaves ? messages.Hop(bytes) : messages.HopInside(bytes);
    });
  }

  // Operations of one list, which may stand between those of another; each has a ring of its own.
  struct OpList {
    const SegmentCosting& costing;
    RingClock ring;
    RingClock late;  // the same while the host issues: hops travel meanwhile
    PassTime* pass;
    double* accumulated;
    std::vector<PassPart>* parts;
    OpPrice put_off;
    double put_off_messages = 0;
    const RingWaits* known;  // null: ranks of the ring are where this one is
    std::size_t list, next = 0;

    OpList(const SegmentCosting& all, const RingWaits* waits, std::size_t own, PassTime* to,
           double* sum, std::vector<PassPart>* of_pass)
        : costing(all),
          ring(waits != nullptr ? waits->lead : RingLead()),
          late(waits != nullptr ? waits->lead : RingLead()),
          pass(to),
          accumulated(sum),
          parts(of_pass),
          known(waits),
          list(own) {}

    double Await(const ShapedOp& op) {
      if (known == nullptr) return ring.Await(op.awaited_hops);
      const double wait = known->waits[list][next++];
      ring.Wait(wait);
      return wait;
    }

    void Add(const ShapedOp& op) {
      const OpPrice price = costing.ops.Price(op, false);
      Behind(Await(op), nullptr);
      ring.Kernel(price.device);
      if (parts != nullptr) {
        parts->back().kernels += price.device;
        if (op.weight_gradient) parts->back().put_off += price.device;
      }
      const double before = pass->behind + late.Await(op.awaited_hops);
      pass->device += price.device;
      pass->host += price.host;
      pass->behind = std::max(before, pass->host) + price.device;
      late.Kernel(pass->behind - before);
      if (const auto* hop = std::get_if<HopShape>(&op.shape)) {
        ring.Hop(costing.messages.Hop(hop->bytes));
        late.Hop(costing.messages.Hop(hop->bytes));
      }
      if (op.weight_gradient) {
        put_off.device += price.device;
        put_off.host += price.host;
      }
      *accumulated += op.accumulated;
      if (const auto* collective = std::get_if<CollectiveShape>(&op.shape))
        Add(*collective, op.pass, op.weight_gradient);
    }

    OpPrice End() const {
      pass->context += ring.exposed();
      pass->context_early += std::max(0.0, ring.exposed() - late.exposed());
      pass->behind = std::max(pass->behind, pass->busy());
      pass->context_hidden += ring.hidden();
      return put_off;
    }

   private:
    void Add(const CollectiveShape& collective, Pass of, bool later) {
      const PreparedMessage& message = costing.messages.Of(collective, of == Pass::kBackward);
      const double time = message.Time(collective.bytes);
      const double exposed = time * (1.0 - message.terms.hidden);
      ring.Kernel(exposed);
      late.Kernel(exposed);
      pass->behind += exposed;
      if (later) put_off_messages += exposed;
      Behind(exposed, &collective, later);
      (collective.context ? pass->context : pass->tensor) += exposed;
      (collective.context ? pass->context_hidden : pass->tensor_hidden) += time - exposed;
    }

    void Behind(double message, const CollectiveShape* collective, bool later = false) {
      if (parts == nullptr || message <= 0) return;
      parts->back().message = message;
      parts->back().message_put_off = later;
      parts->back().of_sequences = collective != nullptr && collective->context;
      parts->back().of_layer = collective != nullptr && !collective->context;
      parts->emplace_back();
    }
  };

  // Adds one list of operations to a pass. Returns the part of its kernels that may be put off.
  OpPrice Add(std::span<const ShapedOp> list, PassTime* pass, double* accumulated,
              std::vector<PassPart>* parts = nullptr) const {
    RingWaits waits;
    if (messages.ring_leads()) {
      std::vector<RingOp> all;
      for (const ShapedOp& op : list) all.push_back(InRing(op, 0));
      waits = Waits(all, 1);
    }
    OpList added{*this, messages.ring_leads() ? &waits : nullptr, 0, pass, accumulated, parts};
    for (const ShapedOp& op : list) added.Add(op);
    return added.End();
  }

  // Products that run again stand in front of the gradients that want them: not all of them at the beginning of a pass.
  void AddBackward(const SegmentOps& segment, LayerTime* time, double* accumulated,
                   std::vector<PassPart>* parts) const {
    const auto in_order = [&](const auto& again, const auto& gradient) {
      std::size_t next = 0;
      for (std::size_t i = 0; i < segment.recompute.size(); ++i) {
        for (; next < segment.behind[i]; ++next) gradient(segment.backward[next]);
        again(segment.recompute[i]);
      }
      for (; next < segment.backward.size(); ++next) gradient(segment.backward[next]);
    };
    RingWaits waits;
    if (messages.ring_leads()) {
      std::vector<RingOp> all;
      in_order([&](const ShapedOp& op) { all.push_back(InRing(op, 0)); },
               [&](const ShapedOp& op) { all.push_back(InRing(op, 1)); });
      waits = Waits(all, 2);
    }
    const RingWaits* known = messages.ring_leads() ? &waits : nullptr;
    OpList again{*this, known, 0, &time->backward, accumulated, parts};
    OpList gradients{*this, known, 1, &time->backward, accumulated, parts};
    in_order([&](const ShapedOp& op) { again.Add(op); },
             [&](const ShapedOp& op) { gradients.Add(op); });
    (void)again.End();
    const OpPrice put_off = gradients.End();
    time->weight_gradient = put_off.device + gradients.put_off_messages;
    time->weight_gradient_messages = gradients.put_off_messages;
    time->weight_gradient_host = put_off.host;
  }

  TailTime Tails(const SegmentOps& segment, double factor = 1) const {
    TailTime tails;
    for (const double bytes : segment.tails) {
      const double seconds = messages.tail().Time(bytes);
      tails.seconds += factor * seconds;
      tails.lost += factor * messages.tail().terms.Lost(bytes, seconds);
      tails.messages += factor;
    }
    return tails;
  }

  // Of a tensor of so many bytes, between the ranks of a layer.
  PassTime Gather(double bytes, Pass pass) const {
    ShapedOp op;
    op.shape = CollectiveShape{Collective::kAllGather, bytes};
    op.pass = pass;
    PassTime time;
    double none = 0;
    (void)Add({&op, 1}, &time, &none);
    return time;
  }

  // Weights that stay cast both ways in one kernel; gathered ones that way which a pass reads, in each pass again. Their
  // scales are found once per pass, for the products that run again and those of the gradients.
  void AddCasts(const SegmentOps& segment, LayerTime* time) const {
    // Of the products that read a weight along, how many run again.
    const auto casts = [](const std::vector<ShapedOp>& list) {
      return static_cast<double>(std::ranges::count_if(list, [](const ShapedOp& op) {
        const auto* product = std::get_if<GemmShape>(&op.shape);
        return product != nullptr && product->product != ProductType::kPlain;
      }));
    };
    const double again = casts(segment.recompute) / std::max(1.0, casts(segment.forward));
    for (const ShapedOp& op : segment.setup) {
      time->weight_casts += ops.Price(op, false).device;
      ShapedOp once = op;
      if (const auto* copy = std::get_if<TrafficShape>(&op.shape); copy && copy->transposes) {
        // Codes that were gathered: the backward pass alone reads them across.
        once.pass = Pass::kBackward;
        const OpPrice price = ops.Price(once, false);
        time->gathered_backward.device += price.device;
        time->gathered_backward.host += price.host;
        continue;
      }
      once.pass = Pass::kForward;
      auto* cast = std::get_if<TrafficShape>(&once.shape);
      if (cast != nullptr && cast->one_way > 0) cast->bytes = cast->one_way;
      const OpPrice price = ops.Price(once, false);
      once.pass = Pass::kBackward;
      const double host = ops.Price(once, false).host;
      time->gathered_forward.device += price.device;
      time->gathered_forward.host += price.host;
      const double more = cast != nullptr && cast->one_way > 0 ? again : 0.0;
      time->gathered_backward.device += (1 + more) * price.device;
      time->gathered_backward.host += host + more * price.host;
    }
  }

  // What hooks cost where they gather, beyond what they cost where the rank holds the weights.
  double Hooks(const std::vector<ShapedOp>& list) const {
    double host = 0;
    for (const ShapedOp& op : list) {
      if (!op.module || op.gathered) continue;
      ShapedOp gathered = op;
      gathered.gathered = true;
      host += ops.Price(gathered, false).host - ops.Price(op, false).host;
    }
    return host;
  }

  LayerTime operator()(const SegmentOps& segment, LayerShare* parts = nullptr) const {
    LayerTime time;
    double accumulated = 0;
    std::vector<PassPart>* forward = parts != nullptr ? &parts->forward : nullptr;
    std::vector<PassPart>* backward = parts != nullptr ? &parts->backward : nullptr;
    (void)Add(segment.forward, &time.forward, &accumulated, forward);
    AddBackward(segment, &time, &accumulated, backward);
    double none = 0;
    (void)Add(std::span(segment.recompute).first(segment.leading()), &time.leading, &none);
    time.accumulate = ops.Accumulate(accumulated);
    AddCasts(segment, &time);
    time.hooks_forward = Hooks(segment.forward);
    time.hooks_backward = Hooks(segment.recompute) + Hooks(segment.backward);
    time.gathered_forward.host += time.hooks_forward;
    time.gathered_backward.host += time.hooks_backward;
    return time;
  }
};

void CountShard(const ModelSpec& model, const Workload& work, const MicroBatchOps& ops,
                LayerTable* table) {
  const int ranks = ops.layer_ranks;
  const ParameterCount count = CountParameters(model);
  const double outside =
      static_cast<double>(count.embedding + count.pooler + count.head + count.final_norm);
  table->layer_parameters = (static_cast<double>(count.total) - outside) / table->layers / ranks;
  const auto matrix = static_cast<double>(model.vocab * model.hidden);
  const double table_whole = std::min(matrix, static_cast<double>(count.embedding));
  const double head_whole = std::min(matrix, static_cast<double>(count.head));
  table->table_parameters = table_whole / ops.table_ranks;
  table->embedding_parameters =
      table->table_parameters + (static_cast<double>(count.embedding) - table_whole) / ranks;
  table->head_table = head_whole / ops.head_ranks;
  table->head_parameters =
      table->head_table +
      (static_cast<double>(count.head + count.pooler + count.final_norm) - head_whole) / ranks;
  table->final_norm_parameters = static_cast<double>(count.final_norm) / ranks;
  table->frozen = work.lora.on();
  table->adapter_parameters =
      static_cast<double>(AdapterParameters(model, work.lora, ranks, ops.cuts_adapters));
  table->packed_parameters = static_cast<double>(PackedParameters(model, work)) / ranks;
  table->code_bytes = CodeBytes(PackingOf(work));
  if (ops.fp8_weights)
    table->coded_parameters =
        static_cast<double>(CodedParameters(model)) * (1 - table->plain) / table->layers / ranks;
  table->two_stacks = model.decoder_layers > 0;
  table->relative_parameters = static_cast<double>(count.relative_bias) / ranks;
  table->first_unread = model.family == Family::kMlp;
  table->tied = model.tied_embeddings && model.family != Family::kMlp;
}

// Embedding and head, and what stands between two stages.
void CostEnds(const MicroBatchOps& ops, const OpPrices& prices, const SegmentCosting& costing,
              LayerTable* table) {
  table->embedding = costing(ops.embedding);
  table->head = costing(ops.head);
  for (const ShapedOp& op : ops.head.backward) {
    if (std::holds_alternative<LossShape>(op.shape))
      table->loss_gradient += prices.Price(op, false).device;
  }
  table->embedding_tail = costing.Tails(ops.embedding);
  table->head_tail = costing.Tails(ops.head);
  table->boundary_bytes = ops.boundary_bytes;
  if (ops.gathers_boundary) {
    table->boundary_forward = costing.Gather(ops.boundary_bytes * ops.layer_ranks, Pass::kForward);
    table->boundary_backward =
        costing.Gather(ops.boundary_bytes * ops.layer_ranks, Pass::kBackward);
    ShapedOp cut;
    cut.shape = TrafficShape{2 * ops.boundary_bytes, ir::Info(ir::OpKind::kSlice).name};
    table->boundary_cut = prices.Price(cut, false).device;
  }
}

void CostMatrices(const std::vector<ir::UnitMatrix>& matrices, const OpPrices& prices,
                  LayerTable* table) {
  if (matrices.empty()) return;
  table->matrix_update = prices.NewtonSchulz(matrices);
  double largest = 0;
  for (const ir::UnitMatrix& matrix : matrices)
    largest = std::max(largest, ir::NewtonSchulzWork(matrix));
  table->largest_matrix = largest / ir::NewtonSchulzWork(matrices);
}

LayerTable CostLayers(const MicroBatchOps& ops, const ModelSpec& model, const Workload& work,
                      const CostSetting& setting, const GroupShape& shape,
                      const std::vector<double>* kernels) {
  const OpPrices prices(setting, work.precision, kernels);
  const LayerMessages messages(ops, setting, shape);
  const SegmentCosting costing{prices, messages};
  LayerTable table;
  table.layer_ranks = ops.layer_ranks;
  table.shape = shape;
  table.sequence_ranks = ops.context.ranks;
  table.holds_nics = messages.holds_nics();
  for (const LayerKind& kind : ops.layers) table.layers += kind.count;
  table.kinds.clear();
  LayerTime kept, cast;  // of layers that are not recomputed; whose products are cast
  std::vector<LayerTime> times;
  for (const LayerKind& kind : ops.layers) {
    LayerShare share{kind.count / table.layers,
                     {PassPart{}},
                     {PassPart{}},
                     !kind.ops.recompute.empty(),
                     kind.scale * kind.kept_bytes};
    const LayerTime time = costing(kind.ops, &share);
    Scale(kind.scale * kind.count / table.layers, time, &table.layer);
    const TailTime tails = costing.Tails(kind.ops, kind.scale * share.share);
    table.layer_tail.seconds += tails.seconds;
    table.layer_tail.lost += tails.lost;
    table.layer_tail.messages += tails.messages;
    table.kept_bytes += share.share * share.kept_bytes;
    if (!kind.ops.recompute.empty()) table.recomputed += share.share;
    Scale(kind.scale * share.share, time, share.recomputed ? &table.recomputing : &kept);
    if (kind.plain) table.plain += share.share;
    Scale(kind.scale * share.share, time, kind.plain ? &table.plain_more : &cast);
    times.push_back({});
    Scale(kind.scale, time, &times.back());
    Scale(kind.scale, &share.forward), Scale(kind.scale, &share.backward);
    table.kinds.push_back(std::move(share));
  }
  SubtractMeans(table.recomputed, kept, &table.recomputing);
  table.recomputing.forward = {};  // alike
  SubtractMeans(table.plain, cast, &table.plain_more);
  CostEnds(ops, prices, costing, &table);
  CostMatrices(ops.matrix_update.matrices, prices, &table);
  CountShard(model, work, ops, &table);
  if (table.plain > 0 && table.plain < 1)
    table.least = std::make_shared<const LayerTable>(LeastOfKinds(table, times));
  return table;
}

}  // namespace

const std::vector<double>& KnownKernels::Of(const MicroBatchKey& key, const MicroBatchOps& ops,
                                            const CostSetting& setting, Precision precision) {
  {
    const std::scoped_lock lock(mutex_);
    if (const auto known = kernels_.find(key); known != kernels_.end()) return known->second;
  }
  const OpPrices prices(setting, precision);
  std::vector<double> seconds;
  MicroBatchOps::ForEach(ops, [&](const ShapedOp& op) {
    ORRERY_CHECK(op.index == static_cast<int>(seconds.size()), "op {} of {}", op.index,
                 seconds.size());
    seconds.push_back(prices.AtFullPace(op));
  });
  const std::scoped_lock lock(mutex_);
  return kernels_.try_emplace(key, std::move(seconds)).first->second;
}

LayerTable CostLayers(const MicroBatchOps& ops, const ModelSpec& model, const Workload& work,
                      const CostSetting& setting, const std::vector<double>* kernels) {
  const int local = setting.cluster->domain_gpus();
  const auto of_shape = [&](const GroupShape& shape) {
    return CostLayers(ops, model, work, setting, shape, kernels);
  };
  if (LieAlike(ops.layer_ranks, 1, local)) return of_shape(ShapeOfAxis(ops.layer_ranks, 1, local));
  const int64_t ranks = setting.cluster->ranks();
  std::vector<LayerTable> tables;
  for (const GroupShape& shape : NeighbourGroups(ops.layer_ranks, local, ranks).Kinds())
    tables.push_back(of_shape(shape));
  std::ranges::stable_sort(tables, std::greater<>(), [](const LayerTable& table) {
    return table.layer.forward.busy() + table.layer.backward.busy();
  });
  LayerTable& slowest = tables.front();
  // Ranks that share sequences wait for each other, whatever their kind.
  if (ops.context.ranks > 1 || ops.ring.ranks > 1) return std::move(slowest);
  for (std::size_t kind = 1; kind < tables.size(); ++kind) {
    tables[kind].holds_nics = 0;  // they have time left for that
    slowest.faster.push_back(std::make_shared<const LayerTable>(std::move(tables[kind])));
  }
  return std::move(slowest);
}

}  // namespace orrery
