// SPDX-License-Identifier: Apache-2.0
// Release facts in words.
#include "model/program/common/release_facts.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/collectives/nccl/setting.h"
#include "model/framework/presets.h"
#include "model/plan/lower/names.h"

namespace orrery::cli {

using report::Job;
using report::ReleaseFact;

namespace {

// When replicas sum their gradients: FollowFramework() decides so for a layout.
std::string ReductionWords(const FrameworkProfile& framework) {
  const Strategy& defaults = framework.preset->defaults;
  const VisibleReduction visible = VisibleReductionOf(framework);
  // Whole gradients are reduced beside the backward pass wherever they have a stream of their own, see OutlineOf().
  if (defaults.overlap_grad_reduce) {
    if (VisibleShare(visible, false) < 1)
      return defaults.reduce_in_backward ? "reduced in the backward pass"
                                         : "reduced in the backward pass, with ZeRO 1 after it";
    if (VisibleShare(visible, true) < 1)
      return "reduced in the backward pass, with pipelines or ZeRO 1 after it";
  }
  return "reduced after the backward pass";
}

// What is reduced together; "": nothing, or all of it.
std::string BucketWords(const FrameworkProfile& framework) {
  constexpr double kMillion = 1e6;
  if (const double own = framework.preset->bucket; own > 0)
    return fmt::format("in buckets of {:g} million parameters", own / kMillion);
  if (framework.bucket_parameters > 0) {
    std::string words = fmt::format("in buckets of {:g} million parameters",
                                    framework.bucket_parameters / kMillion);
    if (framework.bucket_parameters_per_rank > 0)
      words += fmt::format(", or {:.0f} million per rank if that is more",
                           framework.bucket_parameters_per_rank / kMillion);
    return words;
  }
  const double bytes = framework.bucket.value;
  return bytes > 0 && bytes < 1e12 ? fmt::format("in buckets of {:.0f} MB", bytes / kMillion) : "";
}

// "" where all are cast.
std::string SkippedWords(const Workload& work) {
  const SkippedLayers& skip = work.fp8_skip;
  if (!skip.any()) return "";
  std::string which;
  for (const auto& [end, count] : {std::pair("first", skip.first), std::pair("last", skip.last)}) {
    if (count == 0) continue;
    which += fmt::format("{}the {} {}", which.empty() ? "" : " and ", end,
                         count == 1 ? "layer" : fmt::format("{} layers", count));
  }
  return fmt::format(", but those of {} in {}", which, NameIn(kPrecisionNames, work.precision));
}

// By whose rules collectives are chosen. "": nobody asks, or the framework has its own and nobody says otherwise.
std::string NcclWords(const Job& job) {
  const FrameworkProfile& framework = job.profiles.framework;
  const bool stated = framework.preset->facts.at("facts.nccl").file == kOwnFact;
  const bool several = *std::ranges::max_element(job.request.nodes) > 1;
  const bool chosen = several && job.cluster.gpus_per_node > 1 && framework.algorithm.empty();
  if (!stated && (!chosen || nccl::Capability(job.profiles.gpu) <= 0)) return "";
  return fmt::format("nccl {}{}", nccl::ReleaseText(framework.preset->nccl),
                     chosen ? "" : ", whose release matters between nodes of several GPUs alone");
}

}  // namespace

std::vector<ReleaseFact> ReleaseFacts(const Job& job) {
  std::vector<ReleaseFact> all;
  const FrameworkProfile& framework = job.profiles.framework;
  const FrameworkPreset& preset = *framework.preset;  // of the release
  const auto add = [&](const char* section, const char* key, std::string what) {
    const bool stated = preset.facts.at(fmt::format("{}.{}", section, key)).file == kOwnFact;
    all.push_back({key, std::move(what), stated});
  };
  if (job.request.flash_attention && job.request.model.family != Family::kMlp) {
    if (const auto kernel = preset.FusedAttention(job.profiles.gpu))
      add("facts", "attention",
          fmt::format("attention {}", NameIn(kAttentionKernelNames, *kernel)));
  }
  if (const std::string nccl = NcclWords(job); !nccl.empty()) add("facts", "nccl", nccl);
  const Fp8 recipe = job.request.work.fp8;
  if (recipe != Fp8::kOff) {
    const ProductType product = FormOf(recipe).product;
    all.push_back({"",
                   fmt::format("{} products of layers (fp8 {}){}", NameIn(kProductNames, product),
                               NameIn(kFp8Names, recipe), SkippedWords(job.request.work)),
                   false});
    if (preset.FusesCast(product) && recipe != Fp8::kCurrent)
      add("facts", "fp8_fused_casts", "casts fused with norms");
    Strategy sharded;
    sharded.zero = 1;
    sharded.dp = 2;
    if (CanHoldCodes(job.request.work, sharded)) {
      const bool held = std::ranges::find(preset.fp8_weights, recipe) != preset.fp8_weights.end();
      add("facts", "fp8_weights",
          held && GathersCodes(recipe)
              ? fmt::format("weights held and gathered in 8 bits{}",
                            preset.fp8_weights_zero > 0
                                ? fmt::format(" from ZeRO {} on", preset.fp8_weights_zero)
                                : "")
          : held ? "weights held in 8 bits with ZeRO 1 and 2, gathered in 16 once a step"
                 : "weights held in 16 bits, cast once a step");
    }
  }
  if (preset.tensor && preset.sequence)
    add("facts", "tp_overlap", fmt::format("tp_overlap {}", preset.tp_overlap ? "on" : "off"));
  if (preset.sequence && preset.sequence_copies)
    add("facts", "sequence_copies", "gathered and scattered sequences are copied");
  if (preset.sequence && preset.defaults.gathers_kept)
    add("facts", "gathers_kept", "gathered sequences are kept for the backward pass");
  if (preset.tensor && preset.defaults.reduces_apart)
    add("facts", "reduces_apart", "tensor ranks reduce gradients of each product by itself");
  if (preset.tensor && job.request.work.lora.on())
    add("facts", "adapter_split",
        fmt::format("adapters cut over tensor ranks by {}",
                    NameIn(kAdapterSplitNames, preset.defaults.adapter_split)));
  if (preset.defaults.split_products)
    add("facts", "split_products", "queries, keys, values, gate and up are products of their own");
  if (!preset.compile)
    add("facts", "compile",
        fmt::format("compile off{}", preset.fused_norm ? "" : ", norms in several kernels"));
  if (preset.compile_loss) add("facts", "compile_loss", "loss compiled");
  const Precision precision = job.request.work.precision;
  if (InHalf(precision)) {
    if (preset.autocast) add("facts", "autocast", "autocast over weights in fp32");
    const bool bf16 = precision == Precision::kBf16;
    const char* half = bf16 ? "bf16" : "fp16";
    add("defaults", "fp32_grads",
        preset.fp32_grads == Fp32Grads::kNever || !bf16 ? fmt::format("gradients in {}", half)
        : preset.fp32_grads == Fp32Grads::kBf16
            ? std::string("gradients in fp32")
            : fmt::format("gradients in fp32 ({} from ZeRO 1)", half));
  }
  if (!preset.zero.empty() && preset.zero.front() <= 1) {
    const bool when = preset.facts.at("defaults.reduce_in_backward").file == kOwnFact;
    add("defaults", when ? "reduce_in_backward" : "overlap_grad_reduce", ReductionWords(framework));
    if (const std::string words = BucketWords(framework); !words.empty())
      add("facts", "bucket", words);
  }
  if (preset.gather_messages > 1 && !preset.zero.empty() && preset.zero.back() == 3)
    add("facts", "gather_messages",
        fmt::format("with ZeRO 3 weights of a layer gathered in {} messages{}",
                    preset.gather_messages,
                    preset.defaults.prefetch == 0 ? ", when they are used" : ""));
  // Whatever else the user set changes the plan as well.
  for (const auto& [name, fact] : preset.facts) {
    const std::string key = name.substr(name.find('.') + 1);
    if (fact.file != kOwnFact ||
        std::ranges::any_of(all, [&](const ReleaseFact& shown) { return shown.key == key; }))
      continue;
    std::string what = fmt::format("{} {}", key, FactValueText(fact.value));
    if (key == "dropout" && job.request.work.dropout != preset.dropout)
      what += fmt::format(", --dropout {} instead", job.request.work.dropout);
    all.push_back({key, std::move(what), true});
  }
  return all;
}

}  // namespace orrery::cli
