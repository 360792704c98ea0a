// SPDX-License-Identifier: Apache-2.0
// `plan export --from` a launch script: what the target's own framework lacks, another release of it may have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ExportFrom : public testing::Test {
 protected:
  ExportFrom() {
    WriteText(
        script_,
        "torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --num-layers 12 \\\n"
        "  --hidden-size 768 --num-attention-heads 12 --seq-length 1024 --vocab-size 50257 \\\n"
        "  --max-position-embeddings 1024 --micro-batch-size 2 --global-batch-size 64 \\\n"
        "  --bf16 --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads \\\n"
        "  --ckpt-format fsdp_dtensor --use-distributed-optimizer\n");
  }
  Outcome Export(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"export", "--from", script_, "--topology", "dgx-h100"};
    words.insert(words.end(), more.begin(), more.end());
    return RunPlan(words);
  }

  std::string script_ = ScratchFolder() + "/fsdp.sh";
};

TEST_F(ExportFrom, AFrameworkWithoutShardsIsRefusedAtTheLineThatAsksForThem) {
  const Outcome outcome = Export({"--to", "megatron", "--framework", "megatron"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr(script_ + ":4:"), HasSubstr("has no ZeRO stage 2"),
                                 HasSubstr("hint: --framework megatron@sharded")));
}

TEST_F(ExportFrom, TheReleaseThatHasThemIsTakenWhereNoneIsNamed) {
  for (const char* target : {"megatron", "bridge"}) {
    const Outcome outcome = Export({"--to", target});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out,
                AllOf(HasSubstr("Predicted for megatron@sharded"),
                      HasSubstr("(ZeRO 2), micro-batch 2 x 2"), HasSubstr("optim_grads")));
  }
  EXPECT_EQ(Export({"--to", "megatron", "--zero", "1"}).out.find("@sharded"), std::string::npos);
}

// Accelerate's files start models of HuggingFace, by FSDP, by DeepSpeed or whole: what starts is predicted.
TEST(ExportTo, AccelerateIsPredictedAsWhatItsFilesStart) {
  const auto predicted = [](std::vector<std::string> more) {
    std::vector<std::string> words = {
        "export",     "--to",     "accelerate",    "--model", "gpt2-medium",    "--nodes", "1",
        "--topology", "dgx-h100", "--micro-batch", "4",       "--global-batch", "128"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome made = RunPlan(words);
    EXPECT_EQ(made.code, 0) << made.err;
    const std::size_t begin = made.out.find("# Predicted for ") + 16;
    return made.out.substr(begin, made.out.find(':', begin) - begin);
  };
  EXPECT_EQ(predicted({}), "huggingface@fsdp");
  EXPECT_EQ(predicted({"--zero", "3"}), "huggingface@fsdp");
  EXPECT_EQ(predicted({"--zero", "1"}), "huggingface");
  EXPECT_EQ(predicted({"--zero", "0"}), "ddp");
  EXPECT_EQ(predicted({"--zero", "3", "--framework", "fsdp"}), "fsdp");
}

// What no plan can have was refused without a place.
TEST(RefusedFrom, LayoutsAreRefusedAtTheLineThatAsksForThem) {
  const std::string script = ScratchFolder() + "/shared.sh";
  WriteText(
      script,
      "torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --num-layers 12 \\\n"
      "  --hidden-size 768 --num-attention-heads 12 --seq-length 1024 --vocab-size 50257 \\\n"
      "  --max-position-embeddings 1024 --micro-batch-size 2 --global-batch-size 64 --bf16 \\\n"
      "  --context-parallel-size 4 --hierarchical-context-parallel-sizes 2 2 \\\n"
      "  --cp-comm-type a2a+p2p \\\n"
      "  --attention-dropout 0.1 --hidden-dropout 0.1\n");
  const auto plan = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--from", script, "--topology", "dgx-h100"});
    return RunPlan(words);
  };
  for (const char* command : {"predict", "show", "simulate"}) {
    const Outcome refused = plan({command});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, AllOf(HasSubstr(script + ":5:"), HasSubstr("attention dropout"),
                                   HasSubstr("--dropout 0.1 stands in " + script + ":6")));
  }
  EXPECT_THAT(plan({"export", "--to", "megatron"}).err,
              AllOf(HasSubstr(script + ":5:"), HasSubstr("is possible: attention dropout")));
  // Of a flag: where it stands, and the line of the file that disagrees.
  const Outcome flag = plan({"predict", "--cp-method", "ring", "--dp", "8"});
  EXPECT_THAT(flag.err, AllOf(HasSubstr("command line:1:"), HasSubstr("but the cluster has 16"),
                              HasSubstr("hint: " + script + ":1 says 2 nodes; --nodes 4")));
}

// What train.sh prints is what its log is matched by, whatever the target prints itself.
TEST(ExportedScript, PrintsItsPlanForItsLog) {
  for (const std::string target : {"megatron", "bridge", "deepspeed", "accelerate", "torchtitan",
                                   "torchtitan-toml", "fsdp", "ddp"}) {
    const std::string folder = ScratchFolder() + "/" + target;
    const Outcome made =
        RunPlan({"export",   "--to",      target, "--model",       "gpt2-medium", "--topology",
                 "dgx-h100", "--nodes",   "1",    "--micro-batch", "4",           "--global-batch",
                 "64",       "--seq-len", "512",  "--tp",          "1",           "--pp",
                 "1",        "--out",     folder});
    if (made.code != 0 && made.err.find("torchtitan") != std::string::npos) continue;
    ASSERT_EQ(made.code, 0) << target << made.err;
    const auto record = nlohmann::json::parse(ReadText(folder + "/plan.json"));
    EXPECT_THAT(
        ReadText(folder + "/train.sh"),
        HasSubstr("\necho \"Orrery plan " + record.at("digest").get<std::string>() + "\"\n"))
        << target;
  }
  const std::string folder = ScratchFolder() + "/megatron";
  WriteText(folder + "/pretrain_gpt.py",
            "for i in 1, 2, 3:\n  print(f' iteration {i}/ 3 | elapsed time per iteration (ms): "
            "100.0 |')\n");
  const Outcome run =
      RunShell("cd " + folder + " && RANK=0 MEGATRON_PATH=. bash train.sh > log.txt && " +
               "\"$PLAN\" compare plan.json log.txt");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(
      run.out,
      HasSubstr(
          "plan       " +
          nlohmann::json::parse(ReadText(folder + "/plan.json")).at("digest").get<std::string>()));
  const Outcome other = RunShell(
      "cd " + folder + " && \"$PLAN\" predict --model gpt2-medium --topology dgx-h100 --nodes 1 " +
      "--tp 2 --global-batch 64 --seq-len 512 --json other.json > /dev/null && " +
      "\"$PLAN\" watch log.txt --against other.json --once");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("log.txt:1:1: error: another plan"));
}

// What the files say would answer with their digest: the same plan, whatever the framework does by itself.
TEST(ExportAgain, TheCommandInTheFilesPredictsTheirPlan) {
  for (const char* sequence : {"on", "off"}) {
    const std::string folder = ScratchFolder() + "/" + sequence;
    std::filesystem::create_directories(folder);
    const Outcome made = RunPlan({"export",
                                  "--to",
                                  "torchtitan",
                                  "--model",
                                  "llama3-8b",
                                  "--topology",
                                  "dgx-h100",
                                  "--nodes",
                                  "1",
                                  "--tp",
                                  "2",
                                  "--pp",
                                  "1",
                                  "--sequence-parallel",
                                  sequence,
                                  "--zero",
                                  "2",
                                  "--micro-batch",
                                  "1",
                                  "--global-batch",
                                  "64",
                                  "--recompute",
                                  "none",
                                  "--out",
                                  folder + "/out"});
    ASSERT_EQ(made.code, 0) << made.err;
    const std::string record = ReadText(folder + "/out/plan.json");
    const std::string script = ReadText(folder + "/out/train.sh"), key = "# Predict again: plan ";
    const std::size_t begin = script.find(key);
    ASSERT_NE(begin, std::string::npos);
    const std::size_t words = begin + key.size();
    const Outcome again =
        RunShell("\"$PLAN\" " + script.substr(words, script.find('\n', words) - words) +
                 " --json " + folder + "/again.json 2>&1");
    EXPECT_EQ(again.code, 0) << again.out;
    const auto digest = nlohmann::json::parse(record).at("digest").get<std::string>();
    EXPECT_THAT(ReadText(folder + "/again.json"), HasSubstr(digest)) << sequence;
  }
}

}  // namespace
}  // namespace orrery
