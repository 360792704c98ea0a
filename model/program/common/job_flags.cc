// SPDX-License-Identifier: Apache-2.0
// Declares the flags of a job.
#include "model/program/common/job_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "model/program/common/names.h"

namespace orrery::cli {

std::string JobFlags::Arguments() const {
  std::string text;
  for (const Flag* flag :
       {&model,     &topology,     &gpus_per_node, &gpu,         &collectives, &seq_len,
        &precision, &fp8,          &fp8_skip,      &fp8_weights, &optimizer,   &framework,
        &fact,      &attention,    &dropout,       &lora_rank,   &lora_alpha,  &lora_targets,
        &lora_base, &memory_limit, &node_price,    &slow_node}) {
    if (flag->given) text += fmt::format(" {} {}", flag->name, Quoted(flag->text));
  }
  if (own_model) {
    for (const Flag& file : from) text += fmt::format(" --from {}", Quoted(file.text));
  }
  return text;
}

std::vector<Flag*> JobFlags::All() {
  return {&model,        &topology,     &nodes,     &gpus_per_node, &gpu,        &collectives,
          &global_batch, &seq_len,      &precision, &fp8,           &fp8_skip,   &fp8_weights,
          &optimizer,    &framework,    &fact,      &attention,     &dropout,    &lora_rank,
          &lora_alpha,   &lora_targets, &lora_base, &memory_limit,  &node_price, &slow_node};
}

void JobFlags::Declare(FlagSet* flags, bool take_several) {
  several = take_several;
  flags->Group("The job");
  flags->Value(&model, "--model", "NAME",
               "a model of `plan list models`, a YAML file or a HuggingFace config.json",
               Words::kModel);
  std::string batch = "sequences per optimizer step";
  if (batch_spans) {
    batch += "; the best of A..B (default: what published runs of so many tokens used)";
  } else {
    if (several) batch += "; A..B compares A, 2 A, 4 A, ..., B and the fastest of all between";
    batch += default_batch ? " (default: the model file's, else about 4 M tokens)"
                           : " (default: the model file's)";
  }
  flags->Value(&global_batch, "--global-batch", several ? "N|A..B" : "N", batch);
  flags->Value(&seq_len, "--seq-len", "N",
               "tokens per sequence (default: the model file's, else its longest, at most 8192)");
  flags->Value(&precision, "--precision", "TYPE", "fp32, tf32, fp16 or bf16", Words::kList,
               NamesOf<Precision>(report::kPrecisionNames));
  flags->Value(&fp8, "--fp8", "RECIPE",
               "products of layers in 8 or 4 bits: off, delayed or current (a scale per tensor), "
               "blockwise (128), mxfp8 or nvfp4",
               Words::kList, NamesOf<Fp8>(kFp8Names));
  flags->Value(&fp8_skip, "--fp8-skip", "FIRST,LAST",
               "layers at the start and the end of the model whose products stay in --precision "
               "(default: none)");
  flags->Value(&fp8_weights, "--fp8-weights", "on|off",
               "hold and gather the weights of these products in 8 bits (delayed, current, "
               "blockwise; mxfp8 gathers 16; default: the framework's)",
               Words::kList, {"on", "off"});
  flags->Value(&optimizer, "--optimizer", "NAME", "sgd, adam, adamw, lamb, adam8bit or muon",
               Words::kList, NamesOf<Optimizer>(report::kOptimizerNames));
  flags->Value(&attention, "--attention", "KIND",
               "flash (fused, no score matrix in memory; default in fp16 and bf16) or standard",
               Words::kList, NamesOf<bool>(report::kAttentionNames));
  flags->Value(&dropout, "--dropout", "RATE",
               "of embeddings, sublayers and attention, 0 to below 1; 0.1/0: another rate of "
               "attention (default: the framework's)");
  flags->Value(&lora_rank, "--lora-rank", "N",
               "LoRA: freezes the weights and trains adapters of this rank (without it all weights "
               "are trained)");
  flags->Value(&lora_alpha, "--lora-alpha", "X",
               "their output is scaled by alpha / rank (default: 32)");
  flags->Value(
      &lora_targets, "--lora-targets", "LIST",
      "maps that take them: linear_qkv, linear_proj, linear_fc1, linear_fc2, by these or "
      "HuggingFace's names (q_proj,v_proj; all-linear; peft: its choice for the model), whose "
      "parts of a map have adapters of their own (default: all four)");
  flags->Value(
      &lora_base, "--lora-base", "TYPE",
      "what the frozen weights of linear maps are kept in: int8, nf4 (QLoRA), fp8 (default: "
      "as --precision says)");
  flags->Value(
      &framework, "--framework", "NAME",
      "training framework or its YAML file; `plan list frameworks` shows names and aliases",
      Words::kFramework);
  flags->Value(&fact, "--fact", "KEY=VALUE,...",
               "facts of this release or recipe of the framework, such as tp_overlap=on or "
               "attention=fa2; `plan list facts` shows them");
  if (!cluster) return;
  flags->Group("The cluster");
  flags->Value(&topology, "--topology", "NAME",
               several ? "a cluster of `plan list topologies` or a YAML file; several with commas "
                         "are compared"
                       : "a cluster of `plan list topologies` or a YAML file",
               Words::kTopology);
  flags->Value(&nodes, "--nodes", several ? "N|A,B,..." : "N",
               several ? "compute nodes; several counts are compared" : "compute nodes");
  flags->Value(&gpus_per_node, "--gpus-per-node", "N", "GPUs used in each node (default: all)");
  flags->Value(&gpu, "--gpu", "NAME",
               "replaces the topology's GPU; `plan list gpus` shows the names", Words::kGpu);
  flags->Value(&collectives, "--collectives", "FILE",
               "collective times measured on this machine, from `plan calibrate`", Words::kFile);
  flags->Value(&memory_limit, "--memory-limit", "SIZE",
               "memory per GPU, such as 60GiB (default: each GPU's own)");
  flags->Value(&node_price, "--node-price", "PRICE",
               "price of a node, such as 13.1USD/h (default: the topology's)");
  flags->Value(&slow_node, "--slow-node", "NODE:FACTOR,...",
               "kernels on these nodes take so many times as long: 3:1.2, 4..7:1.1; numbers as "
               "`plan topo` prints them (topologies/README.md), or hosts that have names: "
               "gpu-b07:1.2");
}

void DeclareFrom(JobFlags* job, FlagSet* set) {
  set->Group("Files of other programs");
  set->Values(
      &job->from, "--from", "FILE",
      "takes job and layout from a launch script with Megatron's arguments or their dump in "
      "a log, ds_config.json, Accelerate's YAML, TrainingArguments (JSON, YAML or a call in "
      "Python), torchtitan's TOML, "
      "sbatch and PBS files, --json records of plan or a scenario; several files add up, flags "
      "win",
      Words::kFile);
}

std::vector<BatchSpan> BatchSpansOf(const Flag& flag, int64_t otherwise) {
  if (!flag.given) return {{otherwise, otherwise}};
  std::vector<BatchSpan> spans;
  Diagnostics diagnostics;  // said when the job was made
  for (std::size_t begin = 0; begin <= flag.text.size();) {
    const std::size_t end = std::min(flag.text.find(',', begin), flag.text.size());
    Flag one = flag;
    one.text = flag.text.substr(begin, end - begin);
    begin = end + 1;
    if (const auto range = ReadRange(one, 1, std::numeric_limits<int64_t>::max(), &diagnostics))
      spans.push_back({range->first, range->second});
  }
  std::ranges::sort(spans, {}, &BatchSpan::most);
  return spans;
}

}  // namespace orrery::cli
