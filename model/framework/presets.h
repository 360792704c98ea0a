// SPDX-License-Identifier: Apache-2.0
// What each training framework offers, what it sets, and which other names mean it: `--framework NAME`.
//
// All of it is data: calib/profiles/framework/NAME.yaml, next to the constants of the same framework
// (profile.h). A preset fills the fine knobs of Strategy with the framework's defaults and says which
// axes a search may turn. A file with a `description` is a framework that can be named; files without
// one are bases, sites (FRAMEWORK@TOPOLOGY) and older generations: constants alone.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/arch/model_spec.h"
#include "model/base/node.h"
#include "model/hardware/nccl_release.h"
#include "model/hardware/profile.h"
#include "model/plan/lower/strategy.h"

namespace orrery {

// When gradients of 16-bit runs are accumulated and reduced in fp32.
enum class Fp32Grads { kNever, kBf16, kBf16Zero0, kBf16Sharded };

inline constexpr std::pair<const char*, AttentionKernel> kAttentionKernelNames[] = {
    {"triton", AttentionKernel::kTriton},
    {"fa2", AttentionKernel::kFa2},
    {"fa3", AttentionKernel::kFa3},
    {"fa4", AttentionKernel::kFa4},
    {"cudnn", AttentionKernel::kCudnn},
    {"fa2-deterministic", AttentionKernel::kFa2Deterministic},
    {"cudnn-deterministic", AttentionKernel::kCudnnDeterministic}};

// One entry of `offers` or `defaults`, with its citation.
struct FrameworkFact {
  std::string value;   // as text: "0, 1"
  std::string source;  // documentation or file of the release that behaves so
  std::string file;    // the profile file that says it
};

// Another name under which people know the framework, or a framework that behaves like it.
struct FrameworkAlias {
  std::string name;
  std::string why;  // "JAX shards parameters over the data axis, as FSDP does"
  Location where;
};

// Tables of published runs that name a wider framework; the row's source tells which one it was.
struct PublishedAs {
  std::string framework;  // what the row names
  std::string source;     // part of the text that says where the row comes from
  std::string note;       // how the row was read
  std::string facts;      // of such runs, over the framework's: "overlap_grad_reduce=on"
  std::string
      lora_targets;  // maps with adapters in such runs, where a row does not say; "": not known
  std::string lora_base;  // what frozen weights are kept in where products are in 8 bits, likewise
};

struct FrameworkPreset {
  std::string name;
  std::string description;            // one line; empty: no framework that can be named
  bool tensor = false;                // tp > 1
  bool sequence = false;              // sequence parallelism with tp > 1
  bool sequence_in_pipelines = true;  // with stages, too
  bool hybrid = false;                // dp_outer > 1: ZeRO shards inside groups of ranks
  int hybrid_zero = 1;                // the least ZeRO stage that does
  bool uneven_chunks =
      false;  // layers of each chunk by choice; interleaving without them needs layers to divide by pp x vpp
  std::vector<int> zero;                    // stages on offer
  int zero_with_pipeline = 0;               // highest stage with pp > 1
  std::vector<PipelineSchedule> schedules;  // with pp > 1, preferred first; empty: no pipelines
  std::vector<Recompute> recompute;         // choices that a search looks at
  std::vector<RecomputeModule>
      recompute_modules;         // that can be recomputed by themselves, in any set
  bool recompute_first = false;  // of the first layers of each chunk; a search looks at quarters
  bool recompute_every = false;  // of each second, third, ... layer
  bool reduce_once_in_pipelines = false;  // ZeRO 2 and 3: Strategy::reduce_once with stages
  bool whole_head_in_pipelines = false;   // Strategy::whole_head with stages
  bool offload_optimizer = false, offload_share = false, offload_weights = false,
       offload_activations = false;        // to the host; share: states of some of the parameters;
                                           // weights: with their states
  bool offload_activations_alone = false;  // without pipeline stages and without recomputation
  int offload_zero = 0;  // least ZeRO stage of data-parallel ranks with states on the host
  // Shards of gradients whose states are on the host go there as they are reduced; else when their norm is known.
  bool offload_gradients = false;
  std::vector<CpMethod> context;  // how ranks share sequences, preferred first; empty: they cannot
  std::vector<Fp8> fp8;           // recipes of low precision, the one that it takes by itself first
  Fp32Grads fp32_grads = Fp32Grads::kNever;
  // Facts of the release: what its source does, never fitted.
  nccl::Release nccl = nccl::kOwnRelease;  // by whose rules collectives between nodes are chosen
  double bucket = 0;        // parameters that are reduced together; 0: as the constants say
  int gather_messages = 1;  // in which the weights of a layer are gathered (ZeRO 3)
  std::vector<AttentionKernel> attention;  // fused kernels, the first that the chip has is taken
  bool tp_overlap =
      false;  // gathers and scatters of sequence parallelism beside pieces of products
  bool sequence_copies =
      false;  // what sequence parallelism gathers and scatters is put in order by a copy
  std::vector<Fp8> fused_casts;  // recipes whose casts its norms do themselves
  bool compile = true;  // chains of element-wise operations are kernels, by hand or by a compiler
  bool fused_norm = true;  // without a compiler, too: an RMS norm is one kernel
  // Weights, gradients and the residual stream stay in fp32: norms run in it, and products read casts.
  bool autocast = false;
  bool fused_gate = true;      // of a gated layer: silu(x) y is one kernel
  bool repeats_keys = false;   // standard attention copies keys and values for the heads of a group
  bool scores_buffer = false;  // one buffer of scores is kept for the sums of standard attention
  bool dummy_weight_gradients = false;  // one of each shape of its products is kept for autograd
  bool compile_loss = false;            // the loss is one kernel per direction on logits in 16 bits
  bool padded_vocab = false;            // rows of the vocabulary are padded to what products like
  std::vector<Fp8> fp8_weights;         // recipes whose weights it holds and gathers in 8 bits
  int fp8_weights_zero = 0;             // the least ZeRO stage with which it can, on several ranks
  Strategy defaults;                    // knobs; degrees are all 1
  bool master_weights = true;           // Workload::master_weights of its runs
  double dropout = 0;                   // of runs whose settings do not name any
  std::vector<FrameworkAlias> aliases;
  std::vector<PublishedAs> published_as;
  std::map<std::string, FrameworkFact> facts;  // by "offers.zero", "defaults.dropout"
  std::string overridden;                      // facts that the user set: "tp_overlap=off"

  bool pipeline() const { return !schedules.empty(); }
  bool OffersSequence(int pp) const { return sequence && (pp == 1 || sequence_in_pipelines); }
  // Sequence parallelism of a layout unless it is told.
  bool DefaultSequence(int tp, int pp) const {
    return tp > 1 && OffersSequence(pp) && defaults.sequence_parallel;
  }
  // How it shares sequences unless told otherwise.
  ContextLayout DefaultContext() const {
    return context.empty() ? ContextLayout{} : ContextOf(context.front());
  }
  // The knobs that hang on the ZeRO stage and on the precision, filled in for given degrees.
  Strategy Complete(const Strategy& degrees, Precision precision) const;
  // Also those that hang on the recipe of low precision.
  Strategy Complete(const Strategy& degrees, const Workload& work) const;
  // Dropout of a published run that does not print it: the default of the framework, and none for models with gated
  // layers, whose recipes train without (Llama and its kin).
  double DropoutOf(const ModelSpec& model) const { return model.gated ? 0 : dropout; }
  // The fused attention that it takes on a chip; nullopt: none of its kernels runs there.
  std::optional<AttentionKernel> FusedAttention(const GpuProfile& gpu) const;
  bool Offers(Fp8 recipe) const;
  bool Offers(const Recompute& recompute) const;
  // Activations on the host exclude stages and recomputation.
  bool OffloadsAlone(const Offload& offload) const {
    return offload.activations && offload_activations_alone;
  }
  // Whether a cast for such products is part of the norm in front of it. A tensor's scale must be known before.
  bool FusesCast(ProductType product) const;
  // Empty, or the sentence that says what the framework cannot do.
  std::string Refuses(const Strategy& strategy) const;
  // Of several ranks where none is asked for.
  int DefaultZero(const Offload& offload) const;
  // The user wants weights in 8 bits, and the framework cannot hold them so with this ZeRO stage on several ranks.
  bool LacksCodes(int stage) const;
};

// The kernel runs on the chip, and frameworks that have another one too do not leave it for that.
bool FusedFirst(AttentionKernel kernel, const GpuProfile& gpu);

// Reads the keys description, offers, defaults, aliases and published_as of a profile file over what
// it inherits. Mistakes go to the node's diagnostics.
void ReadPreset(const Node& root, const std::string& id, const std::string& file,
                FrameworkPreset* preset);
inline constexpr const char* kOwnFact =
    "command line";  // FrameworkFact::file of what SetFacts() set

// Sets facts and defaults by "tp_overlap=off,attention=fa2": a piece without '=' continues the list before it. Throws
// InputError: a fact that frameworks do not have, with the nearest ones, or a value that it cannot take.
void SetFacts(std::string_view assignments, FrameworkPreset* preset);
// Names of the facts that SetFacts() knows: "attention".
std::vector<std::string> FactNames();
// A fact that SetFacts() knows, and the values that it takes, in words: "on, off".
struct FactForm {
  std::string name, key, takes;  // "facts.attention", "attention"
};
std::vector<FactForm> FactForms();
// A value of FrameworkFact as --fact takes it.
std::string FactValueText(const std::string& value);

// fp16 or bf16: gradients may be kept in more bits, and attention is fused where nobody says otherwise.
inline bool InHalf(Precision precision) {
  return precision == Precision::kFp16 || precision == Precision::kBf16;
}

// NAME, NAME@RELEASE or either with facts that replace its own: "nemo+tp_overlap=off". Every function here and in
// profile.h that takes the name of a framework takes such a reference.
struct FrameworkReference {
  std::string name, facts;
};
FrameworkReference SplitReference(std::string_view text);
// "megatron@2024": whoever writes a release gets its facts, whatever attention runs.
bool NamesRelease(std::string_view name);
// `name` with `facts` in place of its own; "" changes nothing.
std::string WithFacts(const std::string& name, std::string_view facts);
// The same for people: "megatron with attention fa2, tp_overlap off".
std::string FrameworkWords(std::string_view reference);

// Keys of `offers` and `defaults` that a framework lacks after inheritance: "offers.zero, ...".
std::string MissingFacts(const FrameworkPreset& preset);

// Every framework of calib/profiles/framework, by name. Each file is read once per process and data
// root; what is returned stays valid. Threads may call these at the same time. Throws InputError: a
// damaged file, or one alias in two files.
std::span<const FrameworkPreset> FrameworkPresets();
std::vector<std::string> FrameworkNames();

struct FrameworkMatch {
  const FrameworkPreset* preset;
  const FrameworkAlias* alias;  // null: by its own name
};
// By name or alias; case, blanks, dashes and underscores never matter; or a YAML file (./mine.yaml). Throws InputError:
// unknown, with the nearest names, or its file is damaged.
FrameworkMatch MatchFramework(std::string_view name);
inline const FrameworkPreset& FindFramework(std::string_view name) {
  return *MatchFramework(name).preset;
}
// The framework whose name or alias is the longest that `text` begins with; preset null: none.
FrameworkMatch FrameworkThatBegins(std::string_view text);

// Letters and digits alone, in lower case: how names are compared.
std::string FoldedName(std::string_view text);

}  // namespace orrery
