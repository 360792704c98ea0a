// SPDX-License-Identifier: Apache-2.0
// Logs of Megatron that are made for a test, and the folder that they lie in.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "calib/program/calibrate/inputs.h"
#include "calib/validate/validate.h"

namespace orrery {

namespace fs = std::filesystem;

struct Dump {
  std::string layers = "24", hidden = "2048", heads = "16", micro = "4", tp = "2", world = "8",
              dp = "4", global = "64", more;
};

// Megatron's dump as its arguments.py prints it, behind the rank that Slurm puts before each line.
inline std::string DumpText(const Dump& d) {
  std::string text = fmt::format(
      "0: using world size: {}, data-parallel-size: {}\n"
      "0: ------------------------ arguments ------------------------\n",
      d.world, d.dp);
  const std::pair<const char*, std::string> arguments[] = {
      {"bf16", "True"},
      {"data_parallel_size", d.dp},
      {"ffn_hidden_size", std::to_string(4 * std::stoi(d.hidden))},
      {"global_batch_size", d.global},
      {"hidden_size", d.hidden},
      {"kv_channels", "128"},
      {"micro_batch_size", d.micro},
      {"num_attention_heads", d.heads},
      {"num_layers", d.layers},
      {"optimizer", "adam"},
      {"pipeline_model_parallel_size", "1"},
      {"padded_vocab_size", "50304"},
      {"seq_length", "2048"},
      {"tensor_model_parallel_size", d.tp},
      {"transformer_impl", "transformer_engine"},
      {"virtual_pipeline_model_parallel_size", "None"},
      {"use_distributed_optimizer", "True"}};
  for (const auto& [key, value] : arguments)
    text +=
        fmt::format("0:   {} {} {}\n", key, std::string(48 - std::string(key).size(), '.'), value);
  return text + d.more + "0: -------------------- end of arguments ---------------------\n";
}

inline std::string Steps(double seconds) {
  std::string text;
  for (int step = 10; step <= 50; step += 10) {
    text += fmt::format(
        "0: [2025-11-0{} 10:00:05] iteration {:8}/     100 | consumed samples: {:12} | elapsed "
        "time "
        "per iteration (ms): {:.1f} | global batch size:    64 | lm loss: 1.0E+01 |\n",
        step / 10, step, 64 * step, 1e3 * seconds * (step == 10 ? 3 : 1));
  }
  return text;
}

class Kit : public testing::Test {
 protected:
  Kit() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  std::string Write(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  // What is predicted of the dump's run, times `factor`, as its log.
  std::string WriteRun(const std::string& name, const Dump& dump, double factor,
                       const std::string& said = "") const {
    const std::string path = Write(name, DumpText(dump) + said + Steps(1));
    const FitInputs inputs = LoadInputs({path}, place_);
    const double predicted = PredictCases(inputs.rows)[0].time->total;
    return Write(name, DumpText(dump) + said + Steps(factor * predicted));
  }
  std::string Why(const std::string& text) const {
    const FitInputs inputs =
        LoadInputs({Write("why.log", text), WriteRun("good.log", {}, 1)}, place_);
    return RenderChecks({inputs.checks[0]});
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / "orrery_kit";
  const RunPlace place_{"dgx-h100", "megatron"};
};

}  // namespace orrery
