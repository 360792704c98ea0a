// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's JSON, Accelerate's YAML, TrainingArguments, torchtitan's configuration as it prints it, and this project's own records.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "model/base/json_text.h"
#include "model/base/yaml_tree.h"
#include "model/exchange/document.h"

namespace orrery::exchange {
namespace {

using Tree = YamlTree;

std::string Scalar(const Tree& tree) {
  if (tree.quoted) return tree.text;
  if (tree.text == "True" || tree.text == "TRUE" || tree.text == "yes") return "true";
  if (tree.text == "False" || tree.text == "FALSE") return "false";
  // 5e8 and 1.0: whole numbers in another spelling.
  return tree.text.ends_with(".0") ? tree.text.substr(0, tree.text.size() - 2) : tree.text;
}

std::string UnreadList(const Tree&) { return "[...]"; }

// Lists of TrainingArguments as words, which their command line takes: those of `fsdp`, modules of adapters.
std::string ListedWords(const Tree& list) {
  std::string words;
  for (const auto& element : list.elements) {
    if (element->kind != Tree::Kind::kScalar) return UnreadList(list);
    words += (words.empty() ? "" : " ") + element->text;
  }
  return words;
}

void Flatten(const Tree& tree, const std::string& prefix, Settings* settings,
             std::string (*list)(const Tree&) = UnreadList) {
  for (const Tree::Member& member : tree.members) {
    const std::string key = prefix.empty() ? member.key : prefix + "." + member.key;
    const Tree& value = *member.value;
    switch (value.kind) {
      case Tree::Kind::kMap:
        Flatten(value, key, settings, list);
        break;
      case Tree::Kind::kScalar:
        settings->push_back({key, Scalar(value), value.where, ""});
        break;
      case Tree::Kind::kSequence:
        settings->push_back({key, list(value), value.where, ""});
        break;
      case Tree::Kind::kNull:
        break;
    }
  }
}

const Tree* Member(const Tree& tree, const std::string& key) {
  const auto at = std::ranges::find(tree.members, key, &Tree::Member::key);
  return at == tree.members.end() ? nullptr : at->value.get();
}
std::string TextAt(const Tree& tree, const std::string& key) {
  const Tree* value = Member(tree, key);
  return value != nullptr && value->kind == Tree::Kind::kScalar ? value->text : "";
}

// ["model", "loss"], as in TOML.
std::string TreeListText(const Tree& list) {
  std::string text;
  for (const auto& element : list.elements) {
    if (!text.empty()) text += ", ";
    if (element->kind == Tree::Kind::kSequence)
      text += TreeListText(*element);
    else if (element->kind == Tree::Kind::kMap)
      text += "{...}";
    else
      text += element->quoted ? '"' + element->text + '"' : element->text;
  }
  return '[' + text + ']';
}

// The class of a configuration of recomputation is not printed, but its fields are: b5bcd76c's SelectiveAC has one of its own.
Setting ClassOfRecompute(const Tree& recompute, const Location& where) {
  Setting setting{"activation_checkpoint", "", where, ""};
  if (recompute.kind == Tree::Kind::kNull) {
    setting.value = "None";
  } else if (const Tree* saved = Member(recompute, "save_regions"); saved != nullptr) {
    setting.value = saved->elements.empty() ? "FullAC.Config()" : "SelectiveAC.Config()";
  } else if (Member(recompute, "force_recompute_mm_shapes_by_fqns") != nullptr) {
    setting.value = "SelectiveAC.Config()";
  } else {
    setting.unresolved = "the class of its configuration is not printed";
  }
  return setting;
}

bool IsTitan(const Tree& root) {
  const Tree* degrees = Member(root, "parallelism");
  return degrees != nullptr && Member(root, "training") != nullptr &&
         (Member(*degrees, "data_parallel_shard_degree") != nullptr ||
          Member(*degrees, "tensor_parallel_degree") != nullptr);
}

// Trainer.Config and the JobConfig before it, which print all defaults (debug.print_config, debug.save_config_file).
Document TitanDump(const SourcePtr& source, const Tree& root) {
  Document document{source, "a configuration that torchtitan printed", kTitanToml, {}, {}};
  const Tree& training = *Member(root, "training");
  for (const char* key : {"max_context_length", "num_tokens_per_train_step"})
    if (Member(training, key) != nullptr) document.target = kTitan;  // counts tokens
  Flatten(root, "", &document.settings, TreeListText);
  std::erase_if(document.settings, [](const Setting& setting) { return setting.value.empty(); });
  constexpr std::string_view kSpec = "model_spec.";
  for (Setting& setting : document.settings) {
    if (setting.key.starts_with(kSpec)) setting.key.replace(0, kSpec.size(), "model.");
  }
  const Tree* recompute = Member(root, "activation_checkpoint");
  if (recompute == nullptr || Member(*recompute, "mode") != nullptr) return document;
  const Location where = recompute->where.line > 0 ? recompute->where : Location{source, 1, 1};
  document.settings.push_back(ClassOfRecompute(*recompute, where));
  for (const char* field : {"save_regions", "force_recompute_mm_shapes_by_fqns",
                            "preserve_rng_state", "determinism_check", "debug"})
    std::erase_if(document.settings, [&](const Setting& setting) {
      return setting.key == std::string("activation_checkpoint.") + field;
    });
  return document;
}

// The fields of a layout by their own names, from what `plan` and its commands write with --json.
Document OwnRecord(const SourcePtr& source, const Tree& root) {
  Document document{source, "a record of this project", std::nullopt, {}, {}};
  const auto add = [&](const std::string& field, const Tree* value) {
    if (value == nullptr || value->kind != Tree::Kind::kScalar) return;
    std::string text = Scalar(*value);
    if (text == "true" || text == "false") text = text == "true" ? "on" : "off";
    document.settings.push_back({"field." + field, text, value->where, ""});
  };
  const Tree* prediction = Member(root, "prediction");
  const Tree* ranked = Member(root, "ranked");
  if (ranked != nullptr && !ranked->elements.empty()) prediction = ranked->elements.front().get();
  const Tree* strategy = prediction != nullptr ? Member(*prediction, "strategy") : nullptr;
  if (strategy == nullptr)
    throw InputError({{{source, 1, 1},
                       fmt::format("{} holds no layout", source->name),
                       "a file that plan, plan predict, simulate or export wrote with --json"}});
  for (const char* key :
       {"tp", "pp", "dp", "dp_outer", "vpp", "micro_batch", "schedule", "zero", "recompute",
        "sequence_parallel", "flash_attention", "cp", "zigzag", "offload", "placement"})
    add(key, Member(*strategy, key));
  add("context", Member(*strategy, "cp_method"));
  if (TextAt(*strategy, "cp_method") == "a2a_ring") add("cp_inner", Member(*strategy, "cp_inner"));
  if (const Tree* layout = Member(*strategy, "layout"); layout != nullptr) {
    std::string list;
    for (const auto& element : layout->elements) list += (list.empty() ? "" : ",") + element->text;
    document.settings.push_back({"field.layout", list, layout->where, ""});
  }
  add("nodes", Member(*prediction, "nodes"));
  add("global_batch", Member(*prediction, "global_batch"));
  if (const Tree* work = Member(root, "workload"); work != nullptr) {
    for (const char* key : {"seq_len", "precision", "optimizer", "fp8", "fp8_skip"})
      add(key, Member(*work, key));
    const Tree* dropout = Member(*work, "dropout");
    add("dropout", dropout);
    if (const Tree* own = Member(*work, "attention_dropout"); own != nullptr && dropout != nullptr)
      document.settings.back().value += "/" + own->text;
    if (const Tree* lora = Member(*work, "lora"); lora != nullptr) {
      add("lora", Member(*lora, "rank"));
      add("lora_alpha", Member(*lora, "alpha"));
      add("lora_targets", Member(*lora, "targets"));
      add("lora_base", Member(*lora, "base"));
    }
    add("framework", Member(*work, "framework"));
  }
  if (const Tree* cluster = Member(root, "topology"); cluster != nullptr) {
    add("gpus_per_node", Member(*cluster, "gpus_per_node"));
    add("topology", Member(*cluster, "name"));
  }
  if (const Tree* model = Member(root, "model"); model != nullptr)
    add("model", Member(*model, "name"));
  return document;
}

std::shared_ptr<Tree> MapIn(const SourcePtr& source) {
  Diagnostics diagnostics;
  auto root = ReadYaml(source, &diagnostics);
  diagnostics.ThrowIfAny();
  if (!root || root->kind != Tree::Kind::kMap)
    throw InputError({{{source, 1, 1}, fmt::format("{} is no map of keys", source->name), ""}});
  return root;
}

// Nothing but keys of that part (transformers, training_args.py, fsdp_config), one of which is its alone.
bool IsFsdpPart(const Tree& root) {
  constexpr std::string_view kOwn[] = {
      "transformer_layer_cls_to_wrap", "activation_checkpointing", "min_num_params",
      "reshard_after_forward",         "auto_wrap_policy",         "limit_all_gathers"};
  constexpr std::string_view kOthers[] = {
      "backward_prefetch", "forward_prefetch",  "use_orig_params",           "sync_module_states",
      "version",           "state_dict_type",   "cpu_ram_efficient_loading", "xla",
      "xla_fsdp_v2",       "xla_fsdp_settings", "xla_fsdp_grad_ckpt",        "offload_params"};
  bool own = false;
  return std::ranges::all_of(root.members,
                             [&](const Tree::Member& member) {
                               std::string_view key = member.key;
                               if (key.starts_with("fsdp_")) key.remove_prefix(5);
                               const bool of_it = std::ranges::find(kOwn, key) != std::end(kOwn) &&
                                                  member.value->kind != Tree::Kind::kMap;
                               own = own || of_it;
                               return of_it || std::ranges::find(kOthers, key) != std::end(kOthers);
                             }) &&
         own;
}
Document FsdpPart(const SourcePtr& source, const Tree& root) {
  Document document{source, "TrainingArguments' part for FSDP", kAccelerate, {}, {}};
  Flatten(root, "args.fsdp_config", &document.settings, ListedWords);
  return document;
}

// Configurations of other programs around HuggingFace's models, whose keys would be taken for TrainingArguments with their
// defaults.
void RefuseOtherPrograms(const SourcePtr& source, const Tree& root) {
  const auto has = [&](const char* key) { return Member(root, key) != nullptr; };
  const auto refuse = [&](const char* key, const char* program) {
    throw InputError(
        {{Member(root, key)->where.line > 0 ? Member(root, key)->where : Location{source, 1, 1},
          fmt::format("{} is a configuration of {} (by its {}), which is not read", source->name,
                      program, key),
          "give its numbers by flags: --micro-batch, --global-batch, --seq-len, --zero, "
          "--recompute, --lora-rank; --framework axolotl for FSDP, huggingface for DeepSpeed"}});
  };
  if (has("per_device_train_batch_size")) return;
  if (has("base_model") && (has("micro_batch_size") || has("sequence_len") || has("datasets")))
    refuse("base_model", "Axolotl");
  if (has("model") && has("micro_batch_size"))
    for (const char* key : {"dist_config", "kernel_config", "peft_config", "train_dataset"})
      if (has(key)) refuse(key, "LLaMA-Factory's release 1");
  for (const Tree::Member& member : root.members)
    if (member.value->kind == Tree::Kind::kMap && Member(*member.value, "_component_") != nullptr)
      refuse(member.key.c_str(), "torchtune");
}

}  // namespace

SourcePtr WithoutJsonComments(const SourcePtr& source) {
  const std::string& text = source->text;
  std::string plain = text;
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    if (text[at] == '"') {
      for (; end < text.size() && text[end] != '"'; ++end) end += text[end] == '\\' ? 1 : 0;
      at = std::min(end + 1, text.size());
      continue;
    }
    if (text[at] == '#' || text.compare(at, 2, "//") == 0) {
      end = std::min(text.find('\n', at), text.size());
    } else if (text.compare(at, 2, "/*") == 0) {
      const std::size_t close = text.find("*/", at + 2);
      if (close == std::string::npos)
        throw InputError(
            {{{source,
               1 + static_cast<int>(std::count(
                       text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n')),
               1},
              "a comment is never closed",
              ""}});
      end = close + 2;
    } else {
      ++at;
      continue;
    }
    for (any = true; at < end; ++at) {
      if (plain[at] != '\n') plain[at] = ' ';
    }
  }
  return any ? std::make_shared<const Source>(Source{source->name, std::move(plain)}) : source;
}

Document ReadFsdpPart(const SourcePtr& source) { return FsdpPart(source, *MapIn(source)); }

Document ReadTree(const SourcePtr& source) {
  const auto root = MapIn(source);
  if (TextAt(*root, "schema").starts_with("orrery.")) return OwnRecord(source, *root);
  if (IsTitan(*root)) return TitanDump(source, *root);
  if (IsAdapterConfig(*root)) return ReadAdapters(source, *root);
  if (IsFsdpPart(*root)) return FsdpPart(source, *root);
  RefuseOtherPrograms(source, *root);
  Document document{source, "", std::nullopt, {}, {}};
  const auto has = [&](std::initializer_list<const char*> keys) {
    return std::ranges::any_of(keys,
                               [&](const char* key) { return Member(*root, key) != nullptr; });
  };
  if (has({"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"})) {
    document.target = kDeepSpeed;
    document.kind = "a DeepSpeed configuration";
    Flatten(*root, "", &document.settings);
    std::erase_if(document.settings,
                  [](const Setting& setting) { return setting.key.starts_with("orrery."); });
  } else if (has({"per_device_train_batch_size"}) ||
             (has({"gradient_accumulation_steps", "output_dir"}) &&
              !has({"compute_environment"}))) {
    document.target = kAccelerate;
    document.kind = "TrainingArguments";
    Flatten(*root, "args", &document.settings, ListedWords);
    for (const Setting& setting : document.settings) {
      if (setting.key == "args.deepspeed" || setting.key == "args.fsdp_config")
        document.files.push_back(setting);
    }
  } else if (has({"distributed_type", "compute_environment", "fsdp_config", "num_machines"})) {
    document.target = kAccelerate;
    document.kind = "a configuration of Accelerate";
    Flatten(*root, "", &document.settings);
    for (const Setting& setting : document.settings) {
      if (setting.key == "deepspeed_config.deepspeed_config_file")
        document.files.push_back(setting);
    }
  } else {
    throw InputError({{{source, 1, 1},
                       fmt::format("{} is of no kind that is known", source->name),
                       "ds_config.json, a configuration of Accelerate or of torchtitan, "
                       "TrainingArguments, PEFT's "
                       "adapter_config.json, or a record that plan wrote with --json; a topology "
                       "goes to --topology, a model to --model"}});
  }
  return document;
}

}  // namespace orrery::exchange
