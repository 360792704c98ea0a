// SPDX-License-Identifier: Apache-2.0
// Writes the scripts of Megatron-LM and Megatron-Bridge, and the parts of all scripts.
#include "model/exchange/train_script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "model/exchange/rules.h"
#include "model/plan/ir/plan.h"

namespace orrery::exchange {
namespace {

// Named by the shell script itself, not by the program.
bool OfLauncher(const std::string& key) { return key == "NNODES" || key == "GPUS_PER_NODE"; }

Settings ProgramSettings(const Settings& all) {
  Settings settings;
  for (const Setting& setting : all) {
    if (!OfLauncher(setting.key)) settings.push_back(setting);
  }
  return settings;
}

// Megatron generates tokens for GPT alone (MockGPTDataset). Masked ones of its BERT and T5 need a data set and the tokens that
// WordPiece tokenizers have: cls, sep and mask, and the sentinels of T5, which --vocab-extra-ids adds.
std::string MegatronData(const ModelSpec& model) {
  if (model.family != Family::kEncoder && model.family != Family::kEncoderDecoder)
    return R"sh(# Generated tokens unless DATA_PATH names a data set; its tokenizer is TOKENIZER.
data=(--mock-data --tokenizer-type NullTokenizer)
if [ -n "${DATA_PATH:-}" ]; then
  data=(--data-path "$DATA_PATH" --split '99,1,0'
    --tokenizer-type HuggingFaceTokenizer --tokenizer-model "${TOKENIZER:?a folder or a name}")
fi
)sh";
  return fmt::format(
      R"sh(# Megatron generates no masked tokens: DATA_PATH names a data set, TOKENIZER the WordPiece vocabulary that made it.
data=(--data-path "${{DATA_PATH:?a data set of Megatron}}" --split '99,1,0'
  --tokenizer-type BertWordPieceLowerCase --vocab-file "${{TOKENIZER:?its vocab.txt}}"{})
)sh",
      model.family == Family::kEncoderDecoder ? " --vocab-extra-ids 100" : "");
}

// Of arguments that take several words (nargs): quoted as one they would be one choice that nobody knows.
constexpr std::string_view kLists[] = {"recompute-modules", "hierarchical-context-parallel-sizes"};

std::string ArgumentWords(const Setting& setting) {
  if (setting.value.empty()) return "";
  if (std::ranges::find(kLists, setting.key) == std::end(kLists))
    return " " + ShellWord(setting.value);
  std::string text;
  for (const std::string& word : WordsOf(setting.value)) text += " " + ShellWord(word);
  return text;
}

std::string PlanLine(const Bundle& bundle) {
  if (bundle.digest.empty()) return "";
  return fmt::format(
      R"sh(
# By this line in the log, plan compare and plan watch know which prediction it is to be held against.
echo "{}{}"
)sh",
      ir::kPlanLine, bundle.digest);
}

}  // namespace

std::string ScriptHead(const Bundle& bundle) {
  const Case& c = bundle.layout;
  return "#!/usr/bin/env bash\n" + Comments(bundle, "#") +
         fmt::format(R"sh(set -euo pipefail

# A launcher sets these; the values here are those of the plan.
NNODES="${{NNODES:-{0}}}"
GPUS_PER_NODE="${{GPUS_PER_NODE:-{1}}}"
NODE_RANK="${{NODE_RANK:-0}}"
MASTER_ADDR="${{MASTER_ADDR:-localhost}}"
MASTER_PORT="${{MASTER_PORT:-29500}}"
STEPS="${{STEPS:-50}}"

# The number of GPUs decides the data-parallel degree: another one would be another layout.
if [ "$((NNODES * GPUS_PER_NODE))" -ne {2} ]; then
  echo "train.sh: the layout is for {2} GPUs, not $NNODES nodes of $GPUS_PER_NODE" >&2
  exit 2
fi
if [ "$NNODES" -gt 1 ] && [ "$MASTER_ADDR" = localhost ]; then
  echo "train.sh: MASTER_ADDR is the host of node 0; set it and NODE_RANK on every node" >&2
  exit 2
fi
)sh",
                     c.nodes, c.gpus_per_node, c.gpus()) +
         PlanLine(bundle);
}

std::vector<std::string> VariablesOf(Target target) {
  switch (target) {
    case kMegatron:
      return {"STEPS",     "MEGATRON_PATH", "DATA_PATH",
              "TOKENIZER", "CHECKPOINTS",   "CUDA_DEVICE_MAX_CONNECTIONS"};
    case kBridge:
      return {"STEPS", "BRIDGE_PATH", "RECIPE", "PRETRAINED"};
    case kDeepSpeed:
    case kAccelerate:
      return {"STEPS", "PROGRAM"};
    case kTitan:
    case kTitanToml:
      return {"STEPS", "TORCHTITAN_PATH", "PYTORCH_ALLOC_CONF", "PYTHONPATH"};
    case kFsdp:
    case kDdp:
      return {"STEPS"};
  }
  return {};
}

// Tokens and keys are not among them: a command line shows what it passes on.
std::string PassedVariables(Target target, const std::string& indent) {
  const std::string text = fmt::format(
      R"sh(# Exported variables that go to every node: those of train.sh and of libraries, and the names in ORRERY_PASS.
passed=()
while read -r name; do
  case "$name" in
    {} | \
      NCCL_* | GLOO_* | TORCH_* | PYTORCH_* | NVTE_* | UCX_* | FI_* | OMP_* | HF_HOME)
      passed+=("$name") ;;
    *) case " ${{ORRERY_PASS:-}} " in *" $name "*) passed+=("$name") ;; esac ;;
  esac
done < <(compgen -e)
)sh",
      fmt::join(VariablesOf(target), " | "));
  if (indent.empty()) return text;
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin) + 1;
    out += indent + text.substr(begin, end - begin);
    begin = end;
  }
  return out;
}

std::string ArgumentArray(const std::string& name, const Settings& settings) {
  std::string text = fmt::format("{}=(\n", name);
  for (const Setting& setting : settings) {
    text += fmt::format("  --{}{}\n", setting.key, ArgumentWords(setting));
  }
  return text + ")\n";
}

// How the job numbers its ranks, which is what the target is told.
std::string RankOrder(const Bundle& bundle) {
  const Strategy& strategy = bundle.layout.strategy;
  const auto row =
      std::ranges::find(bundle.settings.fields, std::string_view("placement"), &FieldReport::field);
  const bool told = row != bundle.settings.fields.end() && !Differs(row->status);
  const bool inside = strategy.stages_inside() && told;
  return fmt::format("tensor parallelism within a node, {}then {}, {}",
                     strategy.cp > 1 ? "then context parallelism, " : "",
                     inside ? "pipeline stages, then data" : "data, then pipeline stages",
                     told || !strategy.stages_inside()
                         ? "as the prediction has it"
                         : "where the prediction has stages in front of data");
}

std::string ScriptTail(const Bundle& bundle, const std::string& command) {
  return fmt::format(R"sh(
# Rank order: {}.
if [ -n "${{RANK:-}}" ]; then
  start=(python3 -u)  # the launcher started this process for one GPU
else
  start=(
    torchrun --nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" --node-rank "$NODE_RANK"
    --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT"
  )
fi
exec "${{start[@]}}" {} "$@"
)sh",
                     RankOrder(bundle), command);
}

File MegatronScript(const Bundle& bundle) {
  const Case& c = bundle.layout;
  const std::string program = MegatronProgram(c.model);
  std::string text = ScriptHead(bundle);
  text += fmt::format(R"sh(
MEGATRON_PATH="${{MEGATRON_PATH:-/workspace/Megatron-LM}}"
if [ ! -f "$MEGATRON_PATH/{0}" ]; then
  echo "train.sh: no {0} in $MEGATRON_PATH; set MEGATRON_PATH" >&2
  exit 2
fi
)sh",
                      program.empty() ? "pretrain_gpt.py" : program);
  if (c.strategy.tp > 1 && c.strategy.zero < 2) {
    text +=
        "# Up to Hopper, kernels of tensor parallelism are ordered by one hardware queue.\n"
        "export CUDA_DEVICE_MAX_CONNECTIONS=\"${CUDA_DEVICE_MAX_CONNECTIONS:-1}\"\n";
  }
  Settings model = bundle.model.settings;
  model.push_back({"vocab-size", std::to_string(c.model.vocab), {}, ""});
  text += "\n" + ArgumentArray("model", model);
  text += ArgumentArray("layout", ProgramSettings(bundle.settings.settings));
  text += R"sh(training=(
  --train-iters "$STEPS" --lr 1e-4 --min-lr 1e-5 --lr-decay-style cosine --weight-decay 0.1
  --init-method-std 0.02 --eval-iters 0 --eval-interval 1000000
  --log-interval 1 --log-throughput
)
if [ -n "${CHECKPOINTS:-}" ]; then
  training+=(--save "$CHECKPOINTS" --load "$CHECKPOINTS" --save-interval 500)
fi
)sh";
  text += MegatronData(c.model);
  text +=
      ScriptTail(bundle, fmt::format("\"$MEGATRON_PATH/{}\" \"${{model[@]}}\" \"${{layout[@]}}\" "
                                     "\"${{training[@]}}\" \"${{data[@]}}\"",
                                     program.empty() ? "pretrain_gpt.py" : program));
  return {"train.sh", text, true};
}

// What overrides cannot make, as they set members of what is there: recipes name their precision alone, whose configuration wins
// over members of the model, and make LoRA where adapters of parts of one product are CanonicalLoRA's.
constexpr char kBridgeProgram[] = "run_orrery.py";
File BridgeProgram(const Bundle& bundle) {
  const Workload& work = bundle.layout.work;
  std::string imports, made;
  if (work.fp8 != Fp8::kOff) {
    imports += "from megatron.bridge.training.mixed_precision import get_mixed_precision_config\n";
    made += fmt::format("    config.mixed_precision = get_mixed_precision_config(\"{}_mixed\")\n",
                        NameIn(kPrecisionNames, work.precision));
  }
  if (AdaptsParts(work.lora)) {
    imports.insert(0, "from megatron.bridge.peft.canonical_lora import CanonicalLoRA\n");
    made += "    config.peft = CanonicalLoRA()\n";
  }
  return {kBridgeProgram,
          Comments(bundle, "#") + fmt::format(R"py(
import os
import sys

sys.path.insert(0, os.path.join(os.environ["BRIDGE_PATH"], "scripts", "training"))

import run_recipe
{}
load_recipe = run_recipe.load_recipe


def load_and_add(*arguments, **named):
    config = load_recipe(*arguments, **named)
{}    return config


run_recipe.load_recipe = load_and_add
run_recipe.main()
)py",
                                              imports, made),
          false};
}

// The recipe of the model; adapters have one of their own (recipe_metadata.py of Megatron-Bridge: recipe_task).
std::string RecipeOf(const RegistryRow* row, bool adapters) {
  if (row == nullptr) return "?a recipe of Megatron-Bridge for this model";
  std::string recipe = row->recipe;
  constexpr std::string_view kPretrain = "_pretrain_";
  if (const std::size_t at = recipe.find(kPretrain); adapters && at != std::string::npos)
    recipe.replace(at, kPretrain.size(), "_peft_");
  return "-" + recipe;
}

std::vector<File> BridgeFiles(const Bundle& bundle) {
  const RegistryRow* row = FindRegistry(bundle.layout.model.name);
  const Lora& lora = bundle.layout.work.lora;
  const bool own = AdaptsParts(lora) || bundle.layout.work.fp8 != Fp8::kOff;
  std::string text = ScriptHead(bundle);
  text += fmt::format(R"sh(
BRIDGE_PATH="${{BRIDGE_PATH:-/opt/Megatron-Bridge}}"
RECIPE="${{RECIPE:{}}}"
if [ ! -f "$BRIDGE_PATH/scripts/training/run_recipe.py" ]; then
  echo "train.sh: no scripts/training/run_recipe.py in $BRIDGE_PATH; set BRIDGE_PATH" >&2
  exit 2
fi

overrides=(
)sh",
                      RecipeOf(row, lora.on()));
  for (const Setting& setting : ProgramSettings(bundle.settings.settings))
    text += fmt::format("  {}\n", ShellWord(setting.key + "=" + setting.value));
  text += "  \"train.train_iters=$STEPS\"\n  logger.log_interval=1\n";
  if (lora.on())
    text +=
        "  \"checkpoint.pretrained_checkpoint=${PRETRAINED:?the frozen weights, a checkpoint of "
        "Megatron-Bridge}\"\n";
  text += ")\n";
  if (own)
    text +=
        "export BRIDGE_PATH\n"
        "here=\"$(cd \"$(dirname \"${BASH_SOURCE[0]}\")\" && pwd)\"\n";
  const std::string program = own ? fmt::format("\"$here/{}\"", kBridgeProgram)
                                  : "\"$BRIDGE_PATH/scripts/training/run_recipe.py\"";
  text += ScriptTail(bundle, fmt::format("{} --recipe \"$RECIPE\" --mode {} \"${{overrides[@]}}\"",
                                         program, lora.on() ? "lora" : "pretrain --dataset mock"));
  std::vector<File> files{{"train.sh", text, true}};
  if (own) files.push_back(BridgeProgram(bundle));
  return files;
}

std::vector<File> TargetFiles(const Bundle& bundle) {
  switch (bundle.target) {
    case kMegatron:
      return {MegatronScript(bundle)};
    case kBridge:
      return BridgeFiles(bundle);
    case kDeepSpeed:
      return DeepSpeedFiles(bundle);
    case kAccelerate:
      return AccelerateFiles(bundle);
    case kTitan:
    case kTitanToml:
      return TitanFiles(bundle);
    case kFsdp:
    case kDdp:
      return TorchFiles(bundle);
  }
  return {};
}

}  // namespace orrery::exchange
