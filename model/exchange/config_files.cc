// SPDX-License-Identifier: Apache-2.0
// Configurations of DeepSpeed, Accelerate and torchtitan.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/base/plain_text.h"
#include "model/exchange/train_script.h"

namespace orrery::exchange {
namespace {

using Json = nlohmann::ordered_json;

// A setting's text as a value of JSON, YAML or TOML: numbers and truth values stay bare.
bool Bare(const std::string& value) {
  double number = 0;
  return value == "true" || value == "false" || value.starts_with('[') ||
         ParseNumber(value, &number) == NumberFault::kNone;
}
Json Typed(const std::string& value) {
  double number = 0;
  int64_t whole = 0;
  if (value == "true" || value == "false") return value == "true";
  if (ParseInteger(value, &whole) == NumberFault::kNone) return whole;
  if (ParseNumber(value, &number) == NumberFault::kNone) return number;
  return value;
}

// Dotted keys as nested objects; `prefix`: only those below it.
Json Nested(const Settings& settings, const std::string& prefix, const std::string& without) {
  Json json = Json::object();
  for (const Setting& setting : settings) {
    if (!setting.key.starts_with(prefix)) continue;
    if (!without.empty() && setting.key.starts_with(without)) continue;
    Json* at = &json;
    std::string_view key = std::string_view(setting.key).substr(prefix.size());
    for (std::size_t dot = key.find('.'); dot != std::string_view::npos; dot = key.find('.')) {
      at = &(*at)[std::string(key.substr(0, dot))];
      key.remove_prefix(dot + 1);
    }
    (*at)[std::string(key)] = Typed(setting.value);
  }
  return json;
}

Settings Without(const Settings& all, std::initializer_list<const char*> keys) {
  Settings settings;
  for (const Setting& setting : all) {
    if (std::ranges::none_of(keys, [&](const char* key) { return setting.key == key; }))
      settings.push_back(setting);
  }
  return settings;
}

Json HeaderJson(const Bundle& bundle) {
  Json json = Json::object();
  for (const std::string& line : bundle.header) json["about"].push_back(OneLine(line));
  json["not_expressed"] = Json::array();
  for (const std::string& line : bundle.Missing()) json["not_expressed"].push_back(OneLine(line));
  return json;
}

std::string JsonText(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ProgramCheck() {
  return R"sh(
# The training program: it reads the configuration next to this script.
PROGRAM="${PROGRAM:?your training program, such as train.py}"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
)sh";
}

// Nested objects by two blanks, as Accelerate writes them.
std::string YamlText(const Json& json, int depth) {
  std::string text;
  for (const auto& [key, value] : json.items()) {
    text += std::string(static_cast<std::size_t>(2 * depth), ' ') + key + ":";
    text += value.is_object() ? "\n" + YamlText(value, depth + 1) : " " + value.dump() + "\n";
  }
  return text;
}

// Tables by their whole names; those that hold nothing but others stand in these names alone.
std::string TomlTables(const Json& tables, const std::string& above) {
  std::string text;
  for (const auto& [name, values] : tables.items()) {
    if (!values.is_object()) continue;
    std::string own;
    for (const auto& [key, value] : values.items()) {
      if (value.is_object()) continue;
      // A text there even where it is a number.
      const bool list =
          key != "selective_ac_option" && value.is_string() && Bare(value.get<std::string>());
      own += fmt::format("{} = {}\n", key, list ? value.get<std::string>() : value.dump());
    }
    if (!own.empty()) text += fmt::format("\n[{}{}]\n{}", above, name, own);
    text += TomlTables(values, above + name + ".");
  }
  return text;
}

File TitanToml(const Bundle& bundle, const RegistryRow* row) {
  std::string text = Comments(bundle, "#");
  Json sections = Json::object();
  sections["model"]["name"] = row != nullptr ? row->module : "llama3";
  sections["model"]["flavor"] = row != nullptr ? row->flavor : "debugmodel";
  sections["model"]["hf_assets_path"] = "./tests/assets/tokenizer";
  const Json own = Nested(Without(bundle.settings.settings, {"NNODES", "GPUS_PER_NODE"}), "", "");
  for (const auto& [section, values] : own.items()) sections[section].update(values);
  sections["training"]["dataset"] = "c4_test";
  sections["training"]["steps"] = 50;
  sections["metrics"]["log_freq"] = 1;
  text += TomlTables(sections, "");
  return {"train.toml", text, false};
}

std::string PythonValue(const std::string& key, const std::string& value) {
  if (key == "activation_checkpoint") return value;
  if (value == "true" || value == "false") return value == "true" ? "True" : "False";
  return Bare(value) ? value : "\"" + value + "\"";
}

File TitanPython(const Bundle& bundle, const RegistryRow* row) {
  std::string text = Comments(bundle, "#");
  text += R"sh("""A configuration for torchtitan: --module orrery_config --config run."""

)sh";
  const std::string recompute = bundle.Get("activation_checkpoint");
  if (recompute.starts_with("FullAC"))
    text += "from torchtitan.distributed.activation_checkpoint import FullAC\n";
  if (recompute.starts_with("SelectiveAC"))
    text += "from torchtitan.distributed.activation_checkpoint import SelectiveAC\n";
  text += fmt::format("from torchtitan.models.{}.config_registry import {}\n",
                      row != nullptr ? row->module : "llama3",
                      row != nullptr ? row->config : "llama3_debugmodel");
  text += fmt::format(R"sh(from torchtitan.trainer import Trainer


def run() -> Trainer.Config:
    config = {}()
    config.hf_assets_path = "./tests/assets/tokenizer"
    config.training.steps = 50
)sh",
                      row != nullptr ? row->config : "llama3_debugmodel");
  for (const Setting& setting : Without(bundle.settings.settings, {"NNODES", "GPUS_PER_NODE"}))
    text +=
        fmt::format("    config.{} = {}\n", setting.key, PythonValue(setting.key, setting.value));
  const Strategy& layout = bundle.layout.strategy;
  if (layout.pp > 1 || layout.ep > 1)  // refused otherwise: Trainer.Config._validate_cuda_graphs
    text += "    config.training.disable_cuda_graphs = True  # not with stages or experts apart\n";
  return {"orrery_config.py", text + "    return config\n", false};
}

}  // namespace

std::vector<File> DeepSpeedFiles(const Bundle& bundle) {
  Settings settings = Without(bundle.settings.settings, {"NNODES", "GPUS_PER_NODE"});
  settings.push_back({"zero_optimization.contiguous_gradients", "true", {}, ""});
  if (!bundle.Get("optimizer.type").empty())
    settings.push_back({"optimizer.params.lr", "0.0001", {}, ""});
  settings.push_back({"steps_per_print", "1", {}, ""});
  Json json = Nested(settings, "", "");
  json["orrery"] = HeaderJson(bundle);  // DeepSpeed ignores keys that it does not know
  std::string script = ScriptHead(bundle) + ProgramCheck();
  script += ScriptTail(bundle, "\"$PROGRAM\" --deepspeed \"$here/ds_config.json\"");
  return {{"ds_config.json", JsonText(json), false}, {"train.sh", script, true}};
}

std::vector<File> AccelerateFiles(const Bundle& bundle) {
  const Settings& settings = bundle.settings.settings;
  Json config = {{"compute_environment", "LOCAL_MACHINE"}};
  config.update(Nested(settings, "", "args."));
  if (config.contains("fsdp_config")) {
    config["fsdp_config"]["fsdp_state_dict_type"] = "SHARDED_STATE_DICT";
  }
  if (config.contains("parallelism_config")) config["use_parallelism_config"] = true;
  if (config.contains("deepspeed_config")) {
    config["deepspeed_config"]["gradient_accumulation_steps"] = bundle.layout.micro_batches();
    // Each node starts its own ranks. Its default goes from one to the others by pdsh and a hostfile (utils/launch.py).
    config["deepspeed_config"]["deepspeed_multinode_launcher"] = "standard";
  }
  config["rdzv_backend"] = "static";
  config["same_network"] = true;
  config["main_training_function"] = "main";
  config["use_cpu"] = false;
  Json trainer = Nested(settings, "args.", "");
  trainer[bundle.Get("mixed_precision") == "bf16" ? "bf16" : "fp16"] =
      bundle.Get("mixed_precision") != "no";
  trainer["output_dir"] = "output";
  trainer["max_steps"] = 50;
  trainer["logging_steps"] = 1;
  std::string script = ScriptHead(bundle) + ProgramCheck() + R"sh(
# accelerate is the agent of a node: it starts the ranks of its GPUs.
exec accelerate launch --config_file "$here/accelerate.yaml" \
  --num_machines "$NNODES" --num_processes "$((NNODES * GPUS_PER_NODE))" \
  --machine_rank "$NODE_RANK" --main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT" \
  "$PROGRAM" "$here/training_arguments.json" "$@"
)sh";
  return {{"accelerate.yaml", Comments(bundle, "#") + YamlText(config, 0), false},
          {"training_arguments.json", JsonText(trainer), false},
          {"train.sh", script, true}};
}

std::vector<File> TitanFiles(const Bundle& bundle) {
  const RegistryRow* row = FindRegistry(bundle.layout.model.name);
  const bool toml = bundle.target == kTitanToml;
  std::string script = ScriptHead(bundle) + R"sh(
TORCHTITAN_PATH="${TORCHTITAN_PATH:-/workspace/torchtitan}"
if [ ! -f "$TORCHTITAN_PATH/torchtitan/train.py" ]; then
  echo "train.sh: no torchtitan/train.py in $TORCHTITAN_PATH; set TORCHTITAN_PATH" >&2
  exit 2
fi
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cd "$TORCHTITAN_PATH"  # its test tokenizer and data set lie there
export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:-expandable_segments:True}"
)sh";
  if (!toml) script += "export PYTHONPATH=\"$here${PYTHONPATH:+:$PYTHONPATH}\"\n";
  script += ScriptTail(bundle, toml ? "-m torchtitan.train --job.config_file \"$here/train.toml\" "
                                      "--training.steps \"$STEPS\""
                                    : "-m torchtitan.train --module orrery_config --config run "
                                      "--training.steps \"$STEPS\"");
  return {toml ? TitanToml(bundle, row) : TitanPython(bundle, row), {"train.sh", script, true}};
}

}  // namespace orrery::exchange
