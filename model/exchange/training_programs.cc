// SPDX-License-Identifier: Apache-2.0
// Programs of Megatron-LM, its forks, NeMo and TRL that train nothing, or a model that plans do not have.
#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "model/exchange/command_settings.h"

namespace orrery::exchange {
namespace {

struct OtherProgram {
  std::string_view name;  // the end of its path, or a part of its file's name
  const char* does;
};
constexpr const char* kGenerates = "generates text, and trains nothing";
constexpr const char* kEvaluates = "evaluates a model, and trains nothing";
constexpr const char* kTasks = "evaluates a model, or trains a classifier: neither is modelled";
constexpr const char* kPrepares = "prepares data or a checkpoint, and trains nothing";
constexpr const char* kVision = "trains a model of images, which is not modelled";
constexpr const char* kReinforces = "learns by reinforcement, which is not modelled";
constexpr OtherProgram kPrograms[] = {
    {"text_generation", kGenerates},
    {"text_gen_", kGenerates},
    {"generate_samples", kGenerates},
    {"generate_text", kGenerates},
    {"modelopt/generate.py", kGenerates},
    {"static_inference", kGenerates},
    {"dynamic_inference", kGenerates},
    {"batch_inference", kGenerates},
    {"offline_inference", kGenerates},
    {"launch_inference_server", kGenerates},
    {"run_inference", kGenerates},
    {"avlm_inference", kGenerates},
    {"megatron_gpt_eval.py", kEvaluates},
    {"eval_harness/evaluate.py", kEvaluates},
    {"eval_harness/download.py", kPrepares},
    {"modelopt/mmlu.py", kEvaluates},
    {"modelopt/validate.py", kEvaluates},
    {"tasks/main.py", kTasks},
    {"tasks/msdp/main.py", kTasks},
    {"preprocess_data", kPrepares},
    {"preprocess_mmdata", kPrepares},
    {"data_efficiency/analyze_data.py", kPrepares},
    {"checkpoint/convert.py", kPrepares},
    {"modelopt/convert_model.py", kPrepares},
    {"modelopt/quantize.py", kPrepares},
    {"modelopt/prune.py", kPrepares},
    {"modelopt/export.py", kPrepares},
    {"hf2megads_weight_converter.py", kPrepares},
    {"merge_mp_partitions.py", kPrepares},
    {"pretrain_vision_", kVision},
    {"pretrain_vit.py", kVision},
    {"pretrain_vlm.py", "trains a model of images and text, which is not modelled"},
    {"multimodal/train.py", "trains a model of images and text, which is not modelled"},
    {"mimo/train.py", "trains a model of images and text, which is not modelled"},
    {"pretrain_mamba.py", "trains state-space layers, which are not modelled"},
    {"pretrain_hybrid.py", "trains state-space layers, which are not modelled"},
    {"pretrain_ict.py", "trains two encoders of passages, which are not modelled"},
    {"pretrain_retro.py", "trains layers that retrieve, which are not modelled"},
    {"train_rl.py", kReinforces},
    {"grpo", kReinforces},
    {"rloo", kReinforces},
    {"ppo.py", kReinforces},
    {"run_ppo.py", kReinforces},
};

}  // namespace

const char* TrainsBesides(std::string_view program) {
  constexpr std::pair<std::string_view, const char*> kWords[] = {
      {"dpo", "PREFERENCES"},      {"kto", "PREFERENCES"},      {"orpo", "PREFERENCES"},
      {"cpo", "PREFERENCES"},      {"simpo", "PREFERENCES"},    {"reward", "PREFERENCES"},
      {"lora", "ADAPTER_PROGRAM"}, {"qlora", "ADAPTER_PROGRAM"}};
  if (!program.ends_with(".py")) return nullptr;
  program.remove_prefix(program.rfind('/') + 1);
  program.remove_suffix(3);
  while (!program.empty()) {
    const std::size_t end = std::min(program.find_first_of("_-"), program.size());
    for (const auto& [word, key] : kWords)
      if (program.substr(0, end) == word) return key;
    program.remove_prefix(std::min(end + 1, program.size()));
  }
  return nullptr;
}

const char* OtherThanTraining(std::string_view program) {
  const auto row = std::ranges::find_if(kPrograms, [&](const OtherProgram& one) {
    if (one.name.ends_with(".py"))
      return program.ends_with(one.name) && (program.size() == one.name.size() ||
                                             program[program.size() - one.name.size() - 1] == '/');
    return program.ends_with(".py") &&
           program.substr(program.rfind('/') + 1).find(one.name) != std::string_view::npos;
  });
  return row == std::end(kPrograms) ? nullptr : row->does;
}

}  // namespace orrery::exchange
