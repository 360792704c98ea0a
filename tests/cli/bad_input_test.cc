// SPDX-License-Identifier: Apache-2.0
// Wrong input ends in a message that names it, exit code 2 and nothing on standard output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct BadInput {
  std::string name;
  std::vector<std::string> arguments;
  std::vector<std::string> said;  // parts of the message
};

void PrintTo(const BadInput& bad, std::ostream* out) { *out << bad.name; }

std::vector<std::string> Scheduled(std::vector<std::string> words, const char* last) {
  words.emplace_back(last);
  return words;
}

class BadInputTest : public testing::TestWithParam<BadInput> {};

TEST_P(BadInputTest, IsExplainedAndRefused) {
  const Outcome outcome = RunPlan(GetParam().arguments);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("error: "), Not(HasSubstr("internal error")),
                                 Not(HasSubstr("terminate"))));
  for (const std::string& part : GetParam().said) EXPECT_THAT(outcome.err, HasSubstr(part));
}

// Both the search and a layout of one's own say what would do.
TEST(SharedSequences, InFp32NeedFlashAttentionByName) {
  for (const char* command : {"plan", "predict"}) {
    std::vector<std::string> words = {
        "--model", "gpt2-xl",   "--topology", "dgx-h100",       "--nodes", "1",           "--cp",
        "2",       "--seq-len", "1024",       "--global-batch", "8",       "--precision", "fp32"};
    if (command == std::string("predict")) words.insert(words.begin(), command);
    const Outcome outcome = RunPlan(words);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("context parallelism without flash attention"),
                                   HasSubstr("hint: --attention flash")));
    words.insert(words.end(), {"--attention", "flash"});
    if (command == std::string("predict")) {
      EXPECT_EQ(RunPlan(words).code, 0);
    }
  }
}

// As a configuration file that asks for it is.
TEST(UnknownFlag, NamesAnAxisThatIsNotModelled) {
  const Outcome outcome = RunPlan({"--model", "llama3-8b", "--ep", "2"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("expert parallelism is not modelled"),
                                 Not(HasSubstr("unknown flag"))));
}

// The same word is the value of other flags.
TEST(UnknownFlag, IsTheOnlyErrorBesideItsValue) {
  for (const auto& [words, said] :
       {std::pair{
            std::vector<std::string>{"--nodes", "2", "--shard-grp", "2", "--micro-batch", "2"},
            "unknown flag '--shard-grp'"},
        std::pair{std::vector<std::string>{"--nodes", "2", "2", "--micro-batch", "2"},
                  "error: '2' belongs to no flag"}}) {
    std::vector<std::string> all = {"--model", "gpt2-xl"};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome outcome = RunPlan(all);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(said));
    EXPECT_EQ(outcome.err.find("error:"), outcome.err.rfind("error:")) << outcome.err;
  }
}

const std::vector<std::string> kBert = {"--model", "bert-1.5b"};
const std::vector<std::string> kPipeline = {"predict",  "--model", "llama3-8b", "--topology",
                                            "dgx-h100", "--nodes", "1",         "--global-batch",
                                            "16",       "--pp",    "2",         "--schedule"};

std::vector<BadInput> All() {
  return {
      {"TruncatedYaml",
       {"--model", DataPath("truncated.yaml")},
       {"truncated.yaml:5:8", "this '[' is never closed"}},
      {"MissingDevice",
       {"topo", DataPath("missing-device.yaml")},
       {"missing-device.yaml:11", "gpu9"}},
      {"MissingDeviceInPlan",
       {"--model", "gpt2-small", "--topology", DataPath("missing-device.yaml")},
       {"missing-device.yaml:11", "gpu9"}},
      {"NoNodes", {"--nodes", "0", "--model", "bert-1.5b"}, {"--nodes", "0 is too small", "^"}},
      {"ABillionNodes",
       {"--nodes", "1e9", "--model", "bert-1.5b"},
       {"1000000000 nodes", "aws-dl1", "16384"}},
      {"FasterNode",
       {"--nodes", "2", "--model", "bert-1.5b", "--slow-node", "1:0.5"},
       {"'1:0.5' makes the node faster", "name the others as slower"}},
      {"SlowNodeTwice",
       {"--nodes", "8", "--model", "bert-1.5b", "--slow-node", "1..3:1.2,2..5:1.5"},
       {"--slow-node: node 2 stands there twice", "each node once"}},
      {"NegativeNodes", {"--nodes", "-4", "--model", "bert-1.5b"}, {"-4 is too small"}},
      {"HalfANode", {"--nodes", "2.5", "--model", "bert-1.5b"}, {"'2.5' is not a whole number"}},
      {"NodesInWords",
       {"--nodes", "many", "--model", "bert-1.5b"},
       {"'many' is not a whole number"}},
      {"HugeNumber",
       {"--nodes", "99999999999999999999999", "--model", "bert-1.5b"},
       {"is too large"}},
      {"LayoutOfOtherChunks",
       {"--model", "gpt2-medium", "--layout", "12,12", "--pp", "2", "--vpp", "3"},
       {"names 2 chunks, which pp 2 x vpp 3 does not make up", "one number of layers per chunk"}},
      {"LayoutOfMoreStages",
       {"predict", "--model", "gpt2-medium", "--layout", "6,6,6,6", "--pp", "1"},
       {"names 4 chunks, which pp 1 does not make up; they fit pp 4, pp 2 x vpp 2", "^"}},
      {"LayoutThatNoStagesDivide",
       {"--model", "gpt2-medium", "--topology", "dgx-a100-80", "--nodes", "2", "--global-batch",
        "96", "--layout", "9,8,7"},
       {"no number of stages on offer divides the 3 chunks", "^"}},
      {"MethodWithoutSharedSequences",
       {"predict", "--model", "gpt2-medium", "--cp-method", "ring"},
       {"says how GPUs share sequences, and cp is 1", "hint: --cp N", "^"}},
      {"InnerRanksOfARing",
       {"--model", "gpt2-medium", "--cp", "4", "--cp-inner", "2", "--cp-method", "ring"},
       {"--cp-inner belongs to --cp-method a2a_ring", "^"}},
      {"TwoLevelsWithoutInnerRanks",
       {"predict", "--model", "gpt2-medium", "--topology", "dgx-h100", "--nodes", "1",
        "--global-batch", "64", "--cp", "4", "--cp-method", "a2a_ring"},
       {"a2a_ring has two levels, and of cp 4", "hint: --cp-inner N", "^"}},
      {"RecomputedLayersBeyondTheChunk",
       {"predict", "--model", "gpt2-medium", "--topology", "dgx-h100", "--nodes", "1",
        "--global-batch", "64", "--pp", "2", "--recompute", "full:50"},
       {"a chunk of the model's 24 layers has at most 12", "hint: at most 12, or no number", "^"}},
      {"RecomputationOfAllAndAPart",
       {"predict", "--model", "gpt2-medium", "--topology", "dgx-h100", "--nodes", "1",
        "--recompute", "mlp+full"},
       {"'mlp+full': full recomputes whole layers, and mlp with them",
        "hint: --recompute full, or mlp and the rest is kept", "^"}},
      {"RecomputationThatAFrameworkLacks",
       {"predict", "--model", "gpt2-medium", "--topology", "dgx-h100", "--nodes", "1",
        "--framework", "megatron", "--recompute", "core_attn+mlp_act"},
       {"megatron has no recomputation core_attn+mlp_act",
        "hint: megatron has none, selective, mlp, full, any of core_attn+layernorm+mlp, full:N of",
        "--framework orrery offers", "^"}},
      {"ContextByAnotherName",
       {"--model", "gpt2-medium", "--cp", "4", "--cp-method", "a2a+p2p"},
       {"--cp-method: 'a2a+p2p' is called a2a_ring here", "hint: --cp-method a2a_ring", "^"}},
      {"RecipeByAnotherName",
       {"--model", "gpt2-medium", "--fp8", "tensorwise"},
       {"--fp8: 'tensorwise' is called current here", "--fp8 current", "^"}},
      {"FormatInThePlaceOfARecipe",
       {"--model", "gpt2-medium", "--fp8", "hybrid"},
       {"--fp8: 'hybrid' is a format", "--fp8 delayed", "^"}},
      {"LayoutOfOtherLayers",
       {"predict", "--model", "gpt2-medium", "--topology", "dgx-h100", "--nodes", "1",
        "--global-batch", "64", "--pp", "2", "--layout", "12,13"},
       {"the layout holds 25 layers, the model has 24", "hint: one number of layers per chunk",
        "^"}},
      {"LayoutOfOtherLayersInASearch",
       {"--model", "gpt2-medium", "--topology", "dgx-h100", "--nodes", "1", "--layout", "12,13"},
       {"the layout holds 25 layers, the model has 24", "hint: one number of layers per chunk",
        "^"}},
      {"RanksOfMoreNodes",
       {"predict", "--model", "gpt2-medium", "--topology", "dgx-h100", "--nodes", "2",
        "--global-batch", "64", "--dp", "32"},
       {"= 32 GPUs, but the cluster has 16", "hint: --nodes 4, or --dp 16", "^"}},
      {"FactOfNoKernel",
       {"predict", "--model", "gpt2-medium", "--fact", "attention=fa9"},
       {"attention: there is no 'fa9'", "command line:1", "^"}},
      {"PlanGivenTwice",
       {"predict", "--plan", "a.ir", "--plan", "b.ir"},
       {"--plan is given twice"}},
      {"FrameworkFileThatIsNotThere",
       {"predict", "--model", "gpt2-medium", "--framework", "./nowhere.yaml"},
       {"nowhere.yaml"}},
      {"NodesWithoutValue", {"--nodes", "--model", "bert-1.5b"}, {"--nodes needs a value"}},
      {"HelpInPlaceOfAValue",
       {"--model", "--help"},
       {"--model needs a value", "hint: --model NAME: a model"}},
      {"ShortHelpInPlaceOfAValue",
       {"predict", "--plan", "-h"},
       {"--plan needs a value", "hint: --plan FILE:"}},
      {"FlagAtTheEnd", {"--model", "bert-1.5b", "--nodes"}, {"--nodes needs a value"}},
      {"GivenTwice",
       {"--nodes", "1", "--nodes", "2", "--model", "bert-1.5b"},
       {"--nodes is given twice"}},
      {"NoLayers", {"--model", DataPath("zero-layers.yaml")}, {"zero-layers.yaml:3", "layers"}},
      {"HeadsDoNotDivide", {"--model", DataPath("odd-heads.yaml")}, {"odd-heads.yaml", "heads"}},
      {"UnknownFamily", {"--model", DataPath("unknown-family")}, {"config.json", "fancynet"}},
      {"MissingColumn",
       {"validate", DataPath("missing-column.csv")},
       {"missing-column.csv", "measured_step_s"}},
      {"MissingFile", {"validate", "no-such-file.csv"}, {"no-such-file.csv"}},
      {"NoSuchEngine", {"validate", "a.csv", "--engine", "clsed"}, {"'clsed'", "closed"}},
      {"AccuracyOfOneEngine",
       {"validate", "a.csv", "--engine", "event", "--accuracy"},
       {"--engine and --accuracy exclude each other", "both engines"}},
      {"FirstOfTwoMissing", {"compare", "no-such-1", "no-such-2"}, {"cannot open 'no-such-1'"}},
      {"OneOfTwo", {"compare", "no-such-1"}, {"two files are needed"}},
      {"UnknownModel",
       {"--model", "bert-1.5"},
       {"unknown model 'bert-1.5'", "did you mean 'bert-1.5b'"}},
      {"EmptyModel", {"--model", ""}, {"--model"}},
      {"UnknownTopology",
       {"--model", "bert-1.5b", "--topology", "aws-dl2"},
       {"aws-dl2", "did you mean 'aws-dl1'"}},
      {"UnknownFlag",
       {"--model", "bert-1.5b", "--node", "4"},
       {"unknown flag '--node'", "did you mean '--nodes'"}},
      {"UnknownCommand", {"prdict"}, {"no command 'prdict'", "did you mean 'predict'"}},
      {"UnknownPrecision",
       {"--model", "bert-1.5b", "--precision", "bf61"},
       {"'bf61'", "did you mean 'bf16'"}},
      {"RecipeAsPrecision",
       {"--model", "bert-1.5b", "--precision", "mxfp8"},
       {"'mxfp8' is how products are rounded", "--precision bf16 --fp8 mxfp8"}},
      {"ScheduleThatOverlapsSteps",
       Scheduled(kPipeline, "ZB-H2"),
       {"schedule 'ZB-H2' is not lowered", "begin the next step", "--schedule zero-bubble-v"}},
      {"ScheduleByAnotherName", Scheduled(kPipeline, "zb_h1"), {"is called zero-bubble here"}},
      {"UnknownFramework",
       {"--model", "bert-1.5b", "--framework", "deepspead"},
       {"did you mean 'deepspeed'"}},
      {"UnknownObjective",
       {"--model", "bert-1.5b", "--objective", "fun"},
       {"'fun'", "one of: time, cost"}},
      {"UnknownCatalogue", {"list", "modles"}, {"did you mean 'models'"}},
      {"UnknownGpuOfTopology",
       {"--model", "gpt2-small", "--topology", "mistral-2x8"},
       {"mistral-2x8 does not name its GPU", "--gpu"}},
      {"StrayWord", {"--model", "bert-1.5b", "fast"}, {"'fast' belongs to no flag"}},
      {"NoModel", {"--nodes", "4"}, {"which model?"}},
      {"NoShell", {"completion", "tcsh"}, {"'tcsh'", "bash"}},
      {"BatchThatNothingDivides",
       {"--nodes", "32", "--model", "bert-1.5b", "--global-batch", "7"},
       {"7 sequences", "--global-batch 256"}},
      {"EmptyRange", {"--model", "bert-1.5b", "--global-batch", "512..256"}, {"write 256..512"}},
      {"PrecisionThatTheChipLacks",
       {"--model", "gpt2-small", "--topology", "dgx1-v100", "--nodes", "1", "--precision", "bf16"},
       {"v100", "bf16", "--precision fp16"}},
      {"TooManyGpusPerNode", {"--model", "bert-1.5b", "--gpus-per-node", "9"}, {"9 GPUs per node"}},
      {"HeadsOverTensorRanks",
       {"predict", "--model", "bert-1.5b", "--tp", "8"},
       {"25 attention heads"}},
      {"DegreesThatDoNotDivide",
       {"predict", "--model", "bert-1.5b", "--tp", "3"},
       {"tp 3", "16 GPUs"}},
      {"DegreesThatAreNotTheCluster",
       {"predict", "--model", "bert-1.5b", "--dp", "4"},
       {"--dp 16"}},
      {"FrameworkThatLacksIt",
       {"predict", "--model", "bert-1.5b", "--framework", "fsdp", "--pp", "2"},
       {"fsdp has no pipeline"}},
      {"MicroStepsByEvents",
       {"predict", "--model", "bert-1.5b", "--engine", "event", "--window", "microstep"},
       {"whole steps only", "--engine closed"}},
      {"PriceWithoutUnit", {"--model", "bert-1.5b", "--node-price", "13"}, {"--node-price"}},
      {"MemoryWithoutUnit", {"--model", "bert-1.5b", "--memory-limit", "60"}, {"--memory-limit"}},
      {"JsonIntoNowhere",
       {"predict", "--model", "gpt2-micro", "--json", "/no/such/folder/x.json"},
       {"cannot write '/no/such/folder/x.json'", "there is no folder '/no/such/folder'"}},
      {"CostWithoutPrice",
       {"--model", "gpt3-175b", "--objective", "cost"},
       {"selene has no price", "--node-price"}},
      {"SeveralNodeCountsOfOneLayout",
       {"show", "--model", "bert-1.5b", "--nodes", "1,2"},
       {"not a whole number"}},
  };
}

INSTANTIATE_TEST_SUITE_P(Inputs, BadInputTest, testing::ValuesIn(All()),
                         [](const auto& test) { return test.param.name; });

TEST(BadInputFiles, BinaryGivenAsYaml) {
  const std::string path = ScratchFolder() + "/binary.yaml";
  WriteText(path, std::string("\x7f"
                              "ELF\x02\x01\x01\0\0\0\xff\xfe",
                              12));
  for (const char* flag : {"--model", "--topology"}) {
    const Outcome outcome = RunPlan({"--nodes", "1", "--model", "bert-1.5b", flag, path});
    EXPECT_EQ(outcome.code, 2) << outcome.err;
  }
  const Outcome outcome = RunPlan({"topo", path});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("binary.yaml"));
}

TEST(BadInputFiles, EveryBadFlagIsReportedAtOnce) {
  const Outcome outcome =
      RunPlan({"--nodes", "0", "--model", "bert-1.5b", "--precision", "fp61", "--seq-len", "x"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("--nodes"), HasSubstr("'fp61'"), HasSubstr("'x'")));
}

}  // namespace
}  // namespace orrery
