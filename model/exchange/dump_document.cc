// SPDX-License-Identifier: Apache-2.0
// Megatron's dump of its arguments in a log: "  name ...... value" between two ruled lines, and the line in front of it:
//   using world size: 16, data-parallel size: 4, tensor-model-parallel size: 4, pipeline-model-parallel size: 1
#include <fmt/format.h>

#include <algorithm>

#include "model/base/text.h"
#include "model/exchange/document.h"
#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

constexpr std::string_view kBegin = " arguments ---";
constexpr std::string_view kDumpEnd = "end of arguments";
constexpr std::size_t kMostSettings = 5000;

// A dump names an argument by where its value is stored (argparse's dest), which is not always its flag. These two tables are of
// the arguments that an import knows and that differ: Megatron-LM at d98e8a64 (training/arguments.py; argparse_meta of the members
// of core/transformer/transformer_config.py and core/model_parallel_config.py), Megatron-DeepSpeed at 4efb479d and BigScience's
// fork at 8387ae17 (megatron/arguments.py).
constexpr std::pair<const char*, const char*> kRenamed[] = {
    {"virtual-pipeline-model-parallel-size", "num-virtual-stages-per-pipeline-rank"},
    {"fp8", "fp8-format"},
    {"fp4", "fp4-format"},
    {"fp8-param", "fp8-param-gather"},
    {"fp4-param", "fp4-param-gather"},
    {"layernorm-epsilon", "norm-epsilon"},
    {"layernorm-zero-centered-gamma", "apply-layernorm-1p"},
    {"rope-theta", "rotary-base"},
    {"nccl-ub", "use-nccl-ub"},
    {"logit-dtype", "output-logit-dtype"},
    {"microbatch-group-size-per-vp-stage", "microbatch-group-size-per-virtual-pipeline-stage"},
    {"overlap-p2p-comm-warmup-flush", "overlap-p2p-communication-warmup-flush"},
};
// Switches that turn off what is on without them (store_false): False is their flag, True its absence.
constexpr std::pair<const char*, const char*> kNegative[] = {
    {"scatter-gather-tensors-in-pipeline", "no-scatter-gather-tensors-in-pipeline"},
    {"add-bias-linear", "disable-bias-linear"},
    {"add-position-embedding", "no-position-embedding"},
    {"bert-binary-head", "bert-no-binary-head"},
    {"torch-fsdp2-reshard-after-forward", "torch-fsdp2-no-reshard-after-forward"},
    {"masked-softmax-fusion", "no-masked-softmax-fusion"},
    {"bias-gelu-fusion", "no-bias-gelu-fusion"},
    {"bias-swiglu-fusion", "no-bias-swiglu-fusion"},
    {"bias-dropout-fusion", "no-bias-dropout-fusion"},
    {"apply-rope-fusion", "no-rope-fusion"},
    {"gradient-accumulation-fusion", "no-gradient-accumulation-fusion"},
    {"overlap-p2p-comm", "no-overlap-p2p-communication"},
    {"async-tensor-model-parallel-allreduce", "no-async-tensor-model-parallel-allreduce"},
};

// Of those that None or False turn off, what decides time and memory; validate_args turns none of them off by itself.
constexpr std::string_view kDecides[] = {"fp8-format", "fp4-format", "recompute-granularity",
                                         "use-distributed-optimizer", "optimizer-cpu-offload"};

// Arguments that Megatron-LM has since 2023-08-16 (2d5220a424), 2023-10-12 (292543d342) and 2024-12-07 (fa0dcc4872), and since
// 2022-12 (d693034ecf, 3499542edd). A dump names all that its release has, whatever their values.
constexpr std::string_view kSince2024[] = {"overlap-grad-reduce", "context-parallel-size",
                                           "attention-backend"};
constexpr std::string_view kSayAttention[] = {"attention-backend", "transformer-impl",
                                              "use-flash-attn",    "use-flash-attn-v1",
                                              "use-flash-attn-v2", "use-flash-attn-triton"};
// Of 2023, after flash attention: a dump that has one of them and says nothing of attention is a part of one.
constexpr std::string_view kSince2023[] = {"swiglu", "untie-embeddings-and-output-weights",
                                           "group-query-attention", "num-query-groups"};

// What the line in front of the dump says, by the names of arguments. Some releases lack a comma in it.
constexpr std::string_view kWorldLine = "using world size:";
constexpr std::pair<std::string_view, const char*> kWorldNames[] = {
    {"world size", "WORLD"},
    {"data-parallel size", "data-parallel-size"},
    {"data-parallel-size", "data-parallel-size"},
    {"context-parallel size", "context-parallel-size"},
    {"tensor-model-parallel size", "tensor-model-parallel-size"},
    {"pipeline-model-parallel size", "pipeline-model-parallel-size"},
    {"and model-parallel size", "model-parallel-size"},
};

Settings WorldOf(std::string_view text, const Location& where) {
  Settings settings;
  text.remove_prefix(text.find(kWorldLine) + std::string_view("using ").size());
  for (std::size_t colon = 0; (colon = text.find(':')) != text.npos;) {
    // A name may stand behind the digits of the number before.
    const std::size_t first = text.find_first_not_of(" ,]\t");
    const std::string_view name = text.substr(first, colon - first);
    text.remove_prefix(std::min(text.find_first_not_of(" \t", colon + 1), text.size()));
    const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const auto known =
        std::ranges::find(kWorldNames, name, [](const auto& one) { return one.first; });
    if (known != std::end(kWorldNames) && digits > 0)
      settings.push_back({known->second, std::string(text.substr(0, digits)), where, ""});
    std::size_t end = digits;
    if (end == 0 && text.starts_with("None"))
      end = 4;
    else if (end == 0)
      end = text.starts_with('[') ? text.find(']') : text.find(',');
    text.remove_prefix(std::min(end, text.size()));
  }
  return settings;
}

bool IsSet(const Settings& settings, std::string_view key) {
  return std::ranges::find(settings, key, &Setting::key) != settings.end();
}
std::string ValueAt(const Settings& settings, std::string_view key) {
  const auto at = std::ranges::find(settings, key, &Setting::key);
  return at == settings.end() ? "" : at->value;
}

// An argument's flag, by where its value is stored.
std::string FlagOf(std::string_view stored) {
  std::string key(stored);
  std::ranges::replace(key, '_', '-');
  for (const auto& [name, flag] : kRenamed) {
    if (key == name) return flag;
  }
  return key;
}

void SayOff(std::string_view name, std::string_view value, const Location& where, Settings* off) {
  std::string key = FlagOf(name);
  if (std::ranges::find(kDecides, key) != std::end(kDecides))
    off->push_back({std::move(key), std::string(value), where, ""});
}

// validate_args turns off by itself what has nothing to do in a job: fusions of another activation or without biases, sends of
// chunks that are not there, what DeepSpeed's engine does.
void DropFollowing(Settings* settings) {
  const bool deepspeed = IsSet(*settings, "deepspeed"), gated = IsSet(*settings, "swiglu"),
             relu = IsSet(*settings, "squared-relu");
  const std::string degree = ValueAt(*settings, "tensor-model-parallel-size");
  const bool tensor = !degree.empty() && degree != "1";
  const bool rope = IsSet(*settings, "use-rotary-position-embeddings") ||
                    ValueAt(*settings, "position-embedding-type") == "rope";
  const std::pair<const char*, bool> kFollow[] = {
      {"no-bias-gelu-fusion", gated || relu || IsSet(*settings, "disable-bias-linear")},
      {"no-bias-swiglu-fusion", !gated},
      {"no-rope-fusion", !rope},
      {"no-overlap-p2p-communication", !IsSet(*settings, "num-virtual-stages-per-pipeline-rank")},
      {"no-async-tensor-model-parallel-allreduce",
       deepspeed || !tensor || IsSet(*settings, "sequence-parallel")}};
  std::erase_if(*settings, [&](const Setting& setting) {
    return std::ranges::any_of(
        kFollow, [&](const auto& one) { return one.second && setting.key == one.first; });
  });
}

// "AttnBackend.flash", "PositionEmbeddingType.alibi": the word behind the class of an enumeration.
std::string WithoutClass(const std::string& word) {
  const std::size_t dot = word.find('.');
  if (dot == std::string::npos || dot + 1 == word.size() || word[0] < 'A' || word[0] > 'Z')
    return word;
  const bool name = std::ranges::all_of(word, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  });
  return name && word.find('.', dot + 1) == std::string::npos ? word.substr(dot + 1) : word;
}

bool LineOf(std::string_view text, std::string_view* name, std::string_view* value) {
  const std::size_t dots = text.find(" ..");
  if (dots == std::string_view::npos) return false;
  std::size_t end = text.find_first_not_of('.', dots + 1);
  if (end == std::string_view::npos || text[end] != ' ') return false;
  std::string_view front = Trim(text.substr(0, dots));
  const std::size_t blank = front.find_last_of(" \t:]");  // prefixes of srun and of ranks
  if (blank != std::string_view::npos) front.remove_prefix(blank + 1);
  *name = front;
  *value = Trim(text.substr(end));
  return !name->empty() && !value->empty();
}

}  // namespace

bool HasArgumentDump(std::string_view text) {
  const std::size_t at = text.find(kBegin);
  return at != std::string_view::npos && at > 3 && text.substr(at - 3, 3) == "---";
}

Document ReadArgumentDump(const SourcePtr& source) {
  Document document{source, "the arguments that Megatron printed", kMegatron, {}, {}};
  std::string_view rest = source->text;
  Settings world;
  bool inside = false, whole = false, plain = false, recent = false, attention = false;
  int first = 1, last = 1;
  for (int line = 1; !rest.empty(); ++line) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view text = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!inside) {
      inside = text.find(kBegin) != std::string_view::npos;
      if (text.find(kWorldLine) != text.npos) world = WorldOf(text, {source, line, 1});
      if (inside) document.settings = std::move(world);
      first = line;
      continue;
    }
    last = line;
    whole = text.find(kDumpEnd) != std::string_view::npos;
    if (whole) break;
    std::string_view name, value;
    if (!LineOf(text, &name, &value)) continue;
    recent |= std::ranges::find(kSince2024, FlagOf(name)) != std::end(kSince2024);
    attention |= std::ranges::find(kSayAttention, FlagOf(name)) != std::end(kSayAttention) ||
                 std::ranges::find(kSince2023, FlagOf(name)) != std::end(kSince2023);
    if (value == "None" || value == "False") SayOff(name, value, {source, line, 1}, &document.off);
    if (value == "None") continue;
    // "num_layers ... 24......updated": by other names than Megatron's, too.
    if (value.ends_with("....updated") || value.ends_with("....default"))
      throw InputError(
          {{{source, line, 1},
            "these are the arguments of GPT-NeoX, which are not read",
            "its layout by flags: --model, --tp, --pp, --micro-batch, --global-batch"}});
    if (document.settings.size() > kMostSettings) break;
    std::string key = FlagOf(name);
    std::string word(value);
    const Location where{source, line, 1};
    if (key == "world-size") {
      document.settings.push_back({"WORLD", word, where, ""});
      continue;
    }
    plain |= key == "deepspeed" && word == "False";
    if (key == "deepspeed-config") {  // names a file, which the log may hold, too
      if (!HasLoggedJson(source->text))
        document.files.push_back({"deepspeed_config", word, where, ""});
      continue;
    }
    const auto negative =
        std::ranges::find(kNegative, key, [](const auto& one) { return std::string(one.first); });
    if (negative != std::end(kNegative) && word == "False") {
      document.settings.push_back({negative->second, "", where, ""});
      continue;
    }
    // On, as it is without its flag; one of older releases stands for what the job does.
    if (negative != std::end(kNegative) && key != kNegative[0].first) continue;
    if (word == "False") continue;
    word = word == "True" ? "" : WithoutClass(word);
    document.settings.push_back({std::move(key), std::move(word), where, ""});
  }
  // Arguments are printed in the order of the alphabet: those behind the cut would be taken for defaults.
  if (!whole)
    throw InputError({{{source, last, 1},
                       fmt::format("{} ends within Megatron's arguments: 'end of arguments' never "
                                   "comes",
                                   source->name),
                       "the whole dump, or the launch script"}});
  if (recent) document.settings.push_back({kRecentMegatron, "", {source, first, 1}, ""});
  if (!recent && !attention)
    document.settings.push_back({kBeforeFlash, "", {source, first, 1}, ""});
  if (plain)  // Megatron-DeepSpeed without DeepSpeed has its stage of ZeRO as a default alone
    std::erase_if(document.settings, [](const Setting& one) { return one.key == "zero-stage"; });
  DropFollowing(&document.settings);
  const std::size_t again = rest.find(kBegin);
  if (again != std::string_view::npos) {
    const auto between =
        std::count(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(again), '\n');
    document.notes.push_back(
        fmt::format("{}:{}: the arguments of a later run; those of the first "
                    "are taken",
                    source->name, last + 1 + between));
  }
  return document;
}

}  // namespace orrery::exchange
