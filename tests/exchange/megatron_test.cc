// SPDX-License-Identifier: Apache-2.0
// What Megatron's own parser and dumps do with lists, two levels of context parallelism, FSDP, and models that are no GPT.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "model/arch/parameters.h"
#include "model/exchange/document.h"
#include "model/exchange/import.h"
#include "model/plan/lower/names.h"
#include "tests/exchange/exported.h"

namespace orrery::exchange::megatron {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSmall =
    "pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 "
    "--max-position-embeddings 1024 --vocab-size 50257 ";

Imported Read(const std::string& name, const std::string& text) {
  return Import({SourceOf(name, text)}, std::nullopt);
}
std::string Value(const std::string& flags, const char* field) {
  const Imported read = Read("x.sh", kSmall + flags);
  const auto at = read.values.find(field);
  return at == read.values.end() ? "" : at->second.text;
}
std::string Error(const std::string& flags) {
  return ErrorOf([&] { Read("x.sh", kSmall + flags); });
}
// train.sh, and where it lies.
std::pair<std::string, std::string> Script(const std::vector<std::string>& words, Target target) {
  for (const std::string& path : Write(FilesOf(MakeBundle(CaseOf(Resolve(words)), target)))) {
    if (path.ends_with("train.sh")) return {ReadAll(path), path};
  }
  return {};
}
// What bash makes of the array `layout` of a script, one word per line.
std::vector<std::string> WordsOfLayout(const std::string& script) {
  const std::size_t begin = script.find("\nlayout=(");
  const std::string array = script.substr(begin, script.find("\n)", begin) + 3 - begin);
  const std::string path = testing::TempDir() + "/layout.sh";
  std::ofstream(path) << array << "printf '%s\\n' \"${layout[@]}\"\n";
  FILE* pipe = popen(("bash " + path).c_str(), "r");
  std::string text;
  char chunk[4096];
  while (const std::size_t got = fread(chunk, 1, sizeof chunk, pipe)) text.append(chunk, got);
  pclose(pipe);
  std::vector<std::string> words;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) words.push_back(line);
  return words;
}
// Words behind one, up to the next option.
std::vector<std::string> Behind(const std::vector<std::string>& words, const std::string& option) {
  auto at = std::ranges::find(words, option);
  std::vector<std::string> values;
  while (at != words.end() && ++at != words.end() && !at->starts_with("--")) values.push_back(*at);
  return values;
}
std::vector<std::string> With(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
const std::vector<std::string> kJob = {"--model",       "llama3-8b", "--topology",     "dgx-h100",
                                       "--nodes",       "4",         "--global-batch", "256",
                                       "--micro-batch", "1"};

// Lists are printed as Python has them, and each argument has its default there.
TEST(Megatron, ADumpOfTodayIsReadWithoutFalseAlarms) {
  const std::string log =
      std::string(ORRERY_SOURCE_DIR) + "/tests/exchange/samples/megatron-core.log";
  const Resolved read = Resolve({"--from", log, "--topology", "dgx-h100"});
  EXPECT_EQ(read.job.model.spec.name, "gpt2-xl");
  EXPECT_EQ(read.strategy.zero, 0);
  EXPECT_EQ(read.strategy.cp, 1);
  EXPECT_EQ(RecomputeText(read.strategy.recompute), "core_attn+mlp");
  EXPECT_THAT(read.job.notes, Not(Contains(HasSubstr("not modelled"))));
}

TEST(Megatron, WaysToShareSequencesAreOneForAllLayers) {
  const std::string shared = "--context-parallel-size 4 --cp-comm-type ";
  EXPECT_EQ(Value(shared + "a2a", "context"), "ulysses");
  EXPECT_EQ(Value(shared + "a2a a2a a2a", "context"), "ulysses");
  EXPECT_THAT(Error(shared + "a2a p2p"),
              AllOf(HasSubstr("x.sh:1"), HasSubstr("a2a and p2p"), HasSubstr("not modelled")));
  EXPECT_THAT(Error(shared + "a3a"), HasSubstr("known: p2p, all_gather, a2a, a2a+p2p"));
  EXPECT_EQ(Value("--cp-comm-type a2a p2p", "context"), "");  // of one rank each
}

TEST(Megatron, TwoLevelsAreRanksOfBoth) {
  const std::vector<std::string> words =
      With(kJob, {"--cp", "8", "--cp-method", "a2a_ring", "--cp-inner", "4"});
  const auto [script, path] = Script(words, kMegatron);
  EXPECT_EQ(Behind(WordsOfLayout(script), "--hierarchical-context-parallel-sizes"),
            (std::vector<std::string>{"4", "2"}));
  const Resolved back = Resolve({"--from", path, "--topology", "dgx-h100"});
  EXPECT_EQ(back.strategy.context.method, CpMethod::kA2aRing);
  EXPECT_EQ(back.strategy.context.inner, 4);
  const Bundle bridge = MakeBundle(CaseOf(Resolve(words)), kBridge);
  EXPECT_THAT(Script(words, kBridge).first,
              HasSubstr("model.hierarchical_context_parallel_sizes=[4,2]"));
  for (const FieldReport& field : bridge.settings.fields) {
    if (field.field == "cp_inner") {
      EXPECT_EQ(field.status, Status::kWritten);
    }
  }
  const std::string levels =
      "--context-parallel-size 8 --cp-comm-type a2a+p2p "
      "--hierarchical-context-parallel-sizes ";
  EXPECT_EQ(Value(levels + "2 4", "cp_inner"), "2");
  EXPECT_THAT(Error(levels + "4 4"), AllOf(HasSubstr("x.sh:1"), HasSubstr("two levels of 8")));
  EXPECT_THAT(Error(levels + "2 2 2"), HasSubstr("two levels of 8"));
}

// Quoted as one word they would be one module that Megatron does not know.
// Its data-parallel group holds the ranks that share a sequence: with one replica their gradients are reduced, too.
TEST(Megatron, RanksOfOneReplicaThatShareSequencesReduceToo) {
  for (const char* reduced : {"on", "off"}) {
    const auto [script, path] =
        Script({"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "1", "--cp", "8", "--dp",
                "1", "--zero", "1", "--micro-batch", "1", "--global-batch", "4", "--fact",
                std::string("reduce_in_backward=") + reduced},
               Target::kMegatron);
    const bool on = std::string(reduced) == "on";
    EXPECT_EQ(script.find("  --overlap-grad-reduce") != std::string::npos, on) << script;
    const Imported back = Read(path, script);
    EXPECT_EQ(back.values.at("reduce_in_backward").text, reduced);
  }
}

// As its arguments and its OptimizerConfig assert.
TEST(Megatron, StatesOnTheCpuComeWithWhatItAsserts) {
  for (const char* ranks : {"1", "2"}) {
    const auto [script, path] =
        Script({"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "1", "--gpus-per-node",
                ranks, "--dp", ranks, "--zero", "1", "--micro-batch", "1", "--global-batch", "4",
                "--offload", "optimizer:0.5"},
               Target::kMegatron);
    for (const char* flag : {"  --optimizer-cpu-offload", "--use-precision-aware-optimizer",
                             "--use-distributed-optimizer"})
      EXPECT_THAT(script, HasSubstr(flag)) << ranks;
    EXPECT_EQ(Read(path, script).values.at("offload").text, "optimizer:0.5");
  }
  const std::string offload = "--optimizer-cpu-offload --optimizer-offload-fraction 0.5 ";
  EXPECT_THAT(Error(offload + "--use-distributed-optimizer"),
              AllOf(HasSubstr("x.sh:1:"), HasSubstr("without use-precision-aware-optimizer")));
  EXPECT_THAT(Error(offload + "--use-precision-aware-optimizer"),
              HasSubstr("without use-distributed-optimizer"));
  EXPECT_EQ(
      Value(offload + "--use-precision-aware-optimizer --use-distributed-optimizer", "offload"),
      "optimizer:0.5");
}

TEST(Megatron, ModulesAreAWordEach) {
  const auto [script, path] =
      Script(With(kJob, {"--tp", "2", "--recompute", "core_attn+layernorm+mlp"}), kMegatron);
  EXPECT_EQ(Behind(WordsOfLayout(script), "--recompute-modules"),
            (std::vector<std::string>{"core_attn", "layernorm", "mlp"}));
  EXPECT_EQ(RecomputeText(Resolve({"--from", path, "--topology", "dgx-h100"}).strategy.recompute),
            "core_attn+layernorm+mlp");
}

TEST(Megatron, ShardedWeightsAndGroupsOfShardsArePredicted) {
  const std::string fsdp = "--use-megatron-fsdp --data-parallel-sharding-strategy ";
  EXPECT_EQ(Value(fsdp + "optim_grads_params", "zero"), "3");
  EXPECT_EQ(Value(fsdp + "optim_grads", "zero"), "2");
  EXPECT_EQ(Value(fsdp + "optim", "zero"), "1");
  EXPECT_EQ(Value(fsdp + "no_shard", "zero"), "0");
  EXPECT_EQ(Value("--use-custom-fsdp --data-parallel-sharding-strategy optim_grads", "zero"), "2");
  EXPECT_EQ(Value("--use-torch-fsdp2", "zero"), "3");
  EXPECT_EQ(Value("--use-torch-fsdp2", "overlap_param_gather"), "on");
  // The strategy is that of FSDP alone.
  EXPECT_EQ(Value("--data-parallel-sharding-strategy optim_grads_params", "zero"), "0");
  EXPECT_EQ(Value("--use-distributed-optimizer --data-parallel-sharding-strategy no_shard", "zero"),
            "1");
  EXPECT_THAT(Error("--use-megatron-fsdp \\\n --use-torch-fsdp2"),
              AllOf(HasSubstr("x.sh:2"), HasSubstr("contradicts"), HasSubstr("x.sh:1")));
  EXPECT_THAT(Error(fsdp + "all"), HasSubstr("no_shard, optim, optim_grads, optim_grads_params"));

  const auto [script, path] =
      Script(With(kJob, {"--zero", "3", "--dp-outer", "4", "--framework", "orrery"}), kMegatron);
  const Resolved back = Resolve({"--from", path, "--topology", "dgx-h100"});
  EXPECT_EQ(back.strategy.zero, 3);
  EXPECT_EQ(back.strategy.dp_outer, 4);
  EXPECT_THAT(back.job.request.framework, HasSubstr("megatron@sharded"));
  const std::string instances = testing::TempDir() + "/instances.sh";
  std::ofstream(instances) << "torchrun --nnodes 4 --nproc-per-node 8 " << kSmall
                           << "--micro-batch-size 1 --global-batch-size 64 "
                              "--use-distributed-optimizer "
                              "--num-distributed-optimizer-instances 4\n";
  const Resolved groups = Resolve({"--from", instances, "--topology", "dgx-h100"});
  EXPECT_EQ(groups.strategy.zero, 1);
  EXPECT_EQ(groups.strategy.dp_outer, 4);
}

// Its configuration asserts the format of snapshots and the order of ranks, which recipes and plans may have otherwise.
TEST(Bridge, ShardsComeWithWhatItsConfigurationAsserts) {
  const auto job = [](const char* zero) {
    return std::vector<std::string>{
        "--model", "llama3-8b",   "--topology",  "dgx-h100",    "--nodes", "4",      "--pp",
        "2",       "--placement", "tp-cp-pp-dp", "--framework", "orrery",  "--zero", zero};
  };
  for (const char* zero : {"2", "3"}) {
    const Bundle bundle = MakeBundle(CaseOf(Resolve(job(zero))), kBridge);
    EXPECT_EQ(bundle.Get("dist.use_megatron_fsdp"), "true");
    EXPECT_EQ(bundle.Get("ddp.use_megatron_fsdp"), "true");
    EXPECT_EQ(bundle.Get("ddp.average_in_collective"), "false");
    EXPECT_EQ(bundle.Get("checkpoint.ckpt_format"), "fsdp_dtensor");
    EXPECT_EQ(bundle.Get("dist.use_tp_pp_dp_mapping"), "");
    EXPECT_THAT(bundle.Missing(), Contains(AllOf(HasSubstr("placement tp-cp-pp-dp"),
                                                 HasSubstr("no other order of ranks"))));
    const Resolved back = Resolve({"--from", Script(job(zero), kBridge).second, "--topology",
                                   "dgx-h100", "--framework", "orrery"});
    EXPECT_EQ(back.strategy.zero, zero[0] - '0');
    for (const std::string& note : back.job.notes)
      EXPECT_THAT(note, Not(AnyOf(HasSubstr("ckpt_format"), HasSubstr("fsdp"))));
  }
  const Bundle optimizer = MakeBundle(CaseOf(Resolve(job("1"))), kBridge);
  EXPECT_EQ(optimizer.Get("dist.use_tp_pp_dp_mapping"), "true");
  EXPECT_EQ(optimizer.Get("checkpoint.ckpt_format"), "");
}

// The line of the script, as the flag itself, and what to do.
TEST(Megatron, AFrameworkWithoutShardsNamesTheLineThatAsksForThem) {
  const std::string path = testing::TempDir() + "/fsdp.sh";
  std::ofstream(path) << "torchrun --nnodes 4 --nproc-per-node 8 " << kSmall
                      << "\\\n--micro-batch-size 1 --global-batch-size 64 --use-megatron-fsdp \\\n"
                         " --data-parallel-sharding-strategy optim_grads_params\n";
  const auto error = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--topology", "dgx-h100", "--framework", "megatron"});
    return ErrorOf([&] { Resolve(words); });
  };
  EXPECT_THAT(error({"--from", path}),
              AllOf(HasSubstr(path + ":3:2: error: megatron"), HasSubstr("has no ZeRO stage 3"),
                    HasSubstr("--framework megatron@sharded")));
  EXPECT_THAT(error({"--model", "gpt2-xl", "--zero", "2"}),
              AllOf(HasSubstr("command line:1:"), HasSubstr("has no ZeRO stage 2"),
                    HasSubstr("--framework megatron@sharded")));
  // What no release of it offers.
  EXPECT_THAT(error({"--model", "gpt2-xl", "--pp", "4", "--schedule", "zero-bubble"}),
              AllOf(HasSubstr("command line:1:"), HasSubstr("megatron lacks"),
                    HasSubstr("--framework orrery"), Not(HasSubstr("sharded"))));
}

// pretrain_t5.py asserts a length of the decoder, and no masked data set is generated.
TEST(Megatron, BertAndT5NeedADataSetAndT5ALengthOfItsDecoder) {
  const auto script = [](const char* model) {
    return Script({"--model", model, "--topology", "aws-p4d", "--nodes", "1"}, kMegatron).first;
  };
  const std::string t5 = script("t5-small"), bert = script("bert-large"), gpt = script("gpt2-xl");
  EXPECT_EQ(Behind(WordsOfLayout(t5), "--decoder-seq-length"),
            Behind(WordsOfLayout(t5), "--seq-length"));
  EXPECT_THAT(t5, HasSubstr("--vocab-extra-ids 100"));
  EXPECT_THAT(bert, AllOf(Not(HasSubstr("decoder-seq-length")), Not(HasSubstr("extra-ids"))));
  for (const std::string& text : {t5, bert}) {
    EXPECT_THAT(text, AllOf(Not(HasSubstr("--mock-data")), Not(HasSubstr("NullTokenizer")),
                            HasSubstr("BertWordPieceLowerCase")));
  }
  EXPECT_THAT(gpt, AllOf(HasSubstr("--mock-data"), Not(HasSubstr("decoder-seq-length"))));
}

TEST(Megatron, AScriptOfT5ComesBackWithBothStacks) {
  const std::string path = Script({"--model", "t5-small", "--topology", "aws-p4d", "--nodes", "1",
                                   "--global-batch", "64"},
                                  kMegatron)
                               .second;
  const Resolved again = Resolve({"--from", path, "--topology", "aws-p4d", "--nodes", "1"});
  const ModelSpec was = LoadModel("t5-small").spec, &now = again.job.request.model;
  EXPECT_EQ(now.family, Family::kEncoderDecoder);
  EXPECT_EQ(now.layers, was.layers);
  EXPECT_EQ(now.decoder_layers, was.decoder_layers);
  EXPECT_EQ(CountParameters(now).total, CountParameters(was).total);
  EXPECT_THAT(again.job.notes, Not(Contains(HasSubstr("num-layers"))));
}

// examples/t5/train_t5_220m_distributed.sh: 220 M parameters of a BERT-base in each stack.
TEST(Megatron, ItsExampleOfT5IsRead) {
  const auto read = [](const std::string& layers) {
    return Read("t5.sh",
                "torchrun --nproc_per_node 8 --nnodes 1 pretrain_t5.py " + layers +
                    " --hidden-size 768 --num-attention-heads 12 --kv-channels 64 "
                    "--ffn-hidden-size 3072 --encoder-seq-length 512 --decoder-seq-length 128 "
                    "--max-position-embeddings 512 --micro-batch-size 64 --global-batch-size 512 "
                    "--bf16 --vocab-size 29096 --tensor-model-parallel-size 1\n");
  };
  const Imported t5 = read("--encoder-num-layers 12 --decoder-num-layers 12");
  ASSERT_TRUE(t5.model.has_value());
  const ModelSpec& spec = t5.model->spec;
  EXPECT_EQ(spec.family, Family::kEncoderDecoder);
  EXPECT_EQ(spec.decoder_layers, 12);
  EXPECT_NEAR(static_cast<double>(CountParameters(spec).total), 220e6, 5e6);
  EXPECT_EQ(t5.values.at("seq_len").text, "512");
  EXPECT_THAT(t5.notes, Contains(HasSubstr("another length of the decoder's sequences")));
  // Its decoder has config.num_layers, which is the encoder's number; GPT's program has one stack.
  EXPECT_EQ(read("--encoder-num-layers 12").model->spec.decoder_layers, 12);
  EXPECT_EQ(Read("x.sh",
                 "pretrain_gpt.py --encoder-num-layers 12 --hidden-size 768 "
                 "--num-attention-heads 12 --seq-length 512 --micro-batch-size 1")
                .model->spec.family,
            Family::kDecoder);
  EXPECT_THAT(ErrorOf([&] { read("--num-layers 6 --encoder-num-layers 12"); }),
              AllOf(HasSubstr("t5.sh:1"), HasSubstr("num-layers 6")));
}

// A run trains with what a prediction does not need.
TEST(Training, SettingsOfARunAreReadWhereOneTrains) {
  const std::string text = std::string(kSmall) +
                           "--lr 3e-3 --lr-decay-style cosine --min-lr 1e-4 --lr-warmup-iters 5 "
                           "--weight-decay 0.1 --train-iters 60 --foo-bar 3";
  const Imported run = Import({SourceOf("x.sh", text)}, std::nullopt, {}, nullptr, true);
  std::map<std::string, std::string> flags;
  for (const auto& [flag, value] : run.training) flags[flag] = value.text;
  EXPECT_EQ(flags, (std::map<std::string, std::string>{{"--lr", "3e-3"},
                                                       {"--lr-end", "1e-4"},
                                                       {"--lr-schedule", "cosine"},
                                                       {"--lr-steps", "60"},
                                                       {"--steps", "60"},
                                                       {"--warmup", "5"},
                                                       {"--weight-decay", "0.1"}}));
  EXPECT_THAT(run.notes, Contains("not known here: foo-bar"));
  EXPECT_TRUE(Read("x.sh", text).training.empty());
  EXPECT_THAT(Read("x.sh", text).notes,
              Contains(HasSubstr("without effect on time and memory: lr, lr-decay-style")));
  // Megatron's own default, and a schedule that a run has not.
  const auto shape = [](const std::string& more) {
    const Imported read =
        Import({SourceOf("x.sh", kSmall + more)}, std::nullopt, {}, nullptr, true);
    const auto at = read.training.find("--lr-schedule");
    return at == read.training.end() ? "" : at->second.text;
  };
  EXPECT_EQ(shape("--lr 1e-4"), "polynomial");
  EXPECT_EQ(shape("--lr 1e-4 --lr-decay-style constant"), "constant");
  EXPECT_EQ(shape("--lr 1e-4 --lr-decay-style WSD"), "");
}

// It was said that units of several layers need less.
TEST(Megatron, UnitsOfSeveralLayersNeedMoreMemoryThanPredicted) {
  const std::string full = "--micro-batch-size 1 --recompute-granularity full ";
  const auto notes = [&](const std::string& more) {
    return Read("x.sh", kSmall + full + more).notes;
  };
  const auto more = [](const char* layers) {
    return Contains(AllOf(HasSubstr("needs more memory than predicted"), HasSubstr(layers)));
  };
  const std::string uniform = "--recompute-method uniform --recompute-num-layers ";
  EXPECT_THAT(notes(uniform + "4"), more("the activations of 3 more layers"));
  EXPECT_THAT(notes(uniform + "2"), more("the activations of 1 more layer while"));
  EXPECT_THAT(notes(uniform + "1"), Not(more("")));
  EXPECT_THAT(notes("--recompute-method block --recompute-num-layers 4"), Not(more("")));
  EXPECT_EQ(Value(full + uniform + "4", "recompute"), "full");
}

// Those of the catalogue's model were taken: 2048 tokens "exceed the 1024 learned positions".
TEST(Megatron, LearnedPositionsAreThoseOfTheFile) {
  const auto predicted = [](const std::string& more) {
    const std::string path = testing::TempDir() + "/positions.sh";
    std::ofstream(path) << "torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py --num-layers 24 "
                           "--hidden-size 1024 --num-attention-heads 16 --micro-batch-size 1 "
                        << more << "\n";
    return Resolve({"--from", path, "--topology", "dgx-h100"}).job;
  };
  const auto spec = [&](const std::string& more) { return predicted(more).model.spec; };
  const std::string longer = "--seq-length 2048 --max-position-embeddings 2048 ";
  EXPECT_EQ(spec(longer + "--vocab-file gpt2-vocab.json").max_positions, 2048);
  EXPECT_EQ(spec(longer + "--vocab-size 50257").max_positions, 2048);
  EXPECT_EQ(spec("--seq-length 2048").max_positions, 2048);
  EXPECT_EQ(spec("--seq-length 512 --max-position-embeddings 512").max_positions, 512);
  EXPECT_EQ(spec("--seq-length 512").max_positions, 1024);
  EXPECT_THAT(predicted(longer).notes,
              Contains(HasSubstr("has the dimensions of gpt2-medium, but 2048 positions of its")));
  EXPECT_THAT(predicted("--seq-length 1024 --max-position-embeddings 1024").notes,
              Contains(testing::EndsWith("has the dimensions of gpt2-medium")));
}

// They were those of gpt2-medium: learned.
TEST(Megatron, PositionsAreThoseOfTheFileOrRefused) {
  const auto model = [](const std::string& more) {
    return Read("x.sh", kSmall + more).model.value();
  };
  const std::string type = "--position-embedding-type ";
  EXPECT_EQ(model("").spec.positions, Positions::kLearned);
  EXPECT_EQ(model(type + "alibi").spec.positions, Positions::kAlibi);
  EXPECT_EQ(model(type + "rotary").spec.positions, Positions::kRotary);
  EXPECT_EQ(model(type + "PositionEmbeddingType.absolute").spec.positions, Positions::kLearned);
  EXPECT_THAT(Error(type + "mrope"), AllOf(HasSubstr("x.sh:1:"), HasSubstr("'mrope' is not")));
  // And so is a norm of queries and keys.
  EXPECT_EQ(model("--qk-layernorm").spec.qk_norm, QkNorm::kHead);
}

TEST(Megatron, MomentumOfSgdIsNamed) {
  const auto notes = [](const std::string& more) { return Read("x.sh", kSmall + more).notes; };
  const auto said = [](const char* what) {
    return Contains(AllOf(HasSubstr("predicted without momentum"), HasSubstr(what)));
  };
  EXPECT_THAT(notes("--optimizer sgd"), said("sgd-momentum is 0.9 unless the file"));
  EXPECT_THAT(notes("--optimizer sgd --sgd-momentum 0.5"), said("sgd-momentum is 0.5:"));
  EXPECT_THAT(notes("--optimizer sgd --sgd-momentum 0"), Not(said("")));
  EXPECT_THAT(notes("--optimizer adam"), Not(said("")));
  // What is exported is what was predicted.
  EXPECT_THAT(Script(With(kJob, {"--optimizer", "sgd"}), kMegatron).first,
              HasSubstr("--sgd-momentum 0"));
}

TEST(MegatronArguments, ThatContradictEachOtherAreNamedByTheirLines) {
  const auto error = [](const std::string& more) {
    return ErrorOf([&] {
      Import(
          {SourceOf("m.sh",
                    "A=\"" + more +
                        "\"\ntorchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py --num-layers 8 "
                        "--hidden-size 1024 --num-attention-heads 16 --seq-length 1024 "
                        "--max-position-embeddings 1024 --micro-batch-size 1 "
                        "--global-batch-size 64 --bf16 $A\n")},
          std::nullopt, {});
    });
  };
  EXPECT_THAT(error("--context-parallel-size 3"),
              AllOf(HasSubstr("m.sh:1:"),
                    HasSubstr("tp 1 x pp 1 x cp 3 does not divide 1 node of 8 GPUs")));
  EXPECT_THAT(error("--group-query-attention --num-query-groups 4 --tensor-model-parallel-size 8"),
              AllOf(HasSubstr("m.sh:1:"), HasSubstr("tp 8 does not divide 4 key-value heads")));
  EXPECT_THAT(error("--tensor-model-parallel-size 8 --tp-comm-overlap"),
              AllOf(HasSubstr("m.sh:1:"), HasSubstr("tp-comm-overlap overlaps the gathers"),
                    HasSubstr("which is off")));
  EXPECT_EQ(error("--tensor-model-parallel-size 8 --tp-comm-overlap --sequence-parallel"), "");
}

}  // namespace
}  // namespace orrery::exchange::megatron
