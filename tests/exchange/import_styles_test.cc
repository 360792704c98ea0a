// SPDX-License-Identifier: Apache-2.0
// Scripts and configurations in the styles of public repositories: the Trainer, DeepSpeed, Megatron, torchtitan.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/exchange/styles.h"

namespace orrery::exchange::styles {
namespace {

// --- DeepSpeed and the Trainer

const Named kAutoJson = {"ds.json", R"({
  // filled in by the Trainer
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto", /* as all of it */
  "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto",
  "bf16": {"enabled": "auto"},
  "fp16": {"enabled": "auto"},  # both
  "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
})"};

TEST(ImportTrainer, AutoIsWhatTheFlagsSay) {
  const Resolved r =
      Predict({kAutoJson}, {"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "2",
                            "--micro-batch", "4", "--global-batch", "128", "--precision", "bf16"});
  EXPECT_EQ(r.strategy.micro_batch, 4);
  EXPECT_EQ(r.strategy.zero, 2);
  EXPECT_EQ(r.job.request.work.precision, Precision::kBf16);
  EXPECT_THAT(
      ErrorOf([] {
        Predict({kAutoJson}, {"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "2"});
      }),
      AllOf(HasSubstr("filled in at run time"), HasSubstr("ds.json:")));
}

// What `accelerate config` writes for FSDP; TrainingArguments that say nothing of sharding, no precision, words as a list.
TEST(ImportTrainer, SwitchesThatAreOffSayWhatTheirAbsenceSays) {
  const char* fsdp =
      "distributed_type: FSDP\nnum_processes: 16\nfsdp_config:\n  fsdp_offload_params: false\n"
      "  fsdp_sharding_strategy: FULL_SHARD\n";
  EXPECT_EQ(Text(Read({{"a.yaml", fsdp}}), "zero"), "3");
  const Imported plain = Read({{"t.json", R"({"per_device_train_batch_size": 4, "bf16": true})"}});
  EXPECT_EQ(Text(plain, "zero"), "0");
  EXPECT_THAT(plain.notes, Contains(HasSubstr("DistributedDataParallel")));
  const Imported list = Read(
      {{"t.json",
        R"({"per_device_train_batch_size": 4, "bf16": false, "fsdp": ["full_shard", "offload"]})"}});
  EXPECT_EQ(Text(list, "zero"), "3");
  EXPECT_THAT(Text(list, "offload"), HasSubstr("weights"));
  EXPECT_EQ(Text(list, "precision"), "fp32");
}

TEST(ImportTrainer, AutoIsWhatTheTrainingArgumentsSay) {
  const std::string run =
      "torchrun --nproc_per_node 8 --nnodes=2 run_clm.py --model_name_or_path gpt2 "
      "--per_device_train_batch_size 4 --gradient_accumulation_steps 2 --bf16 True --block_size "
      "512 "
      "--deepspeed ds.json\n";
  const Imported read = Read({kAutoJson, {"run.sh", run}});
  EXPECT_EQ(read.framework, "huggingface");
  EXPECT_EQ(Text(read, "zero"), "2");
  EXPECT_EQ(Text(read, "micro_batch"), "4");
  EXPECT_EQ(Text(read, "global_batch"), "128");
  EXPECT_EQ(Text(read, "precision"), "bf16");
  EXPECT_EQ(Text(read, "seq_len"), "512");
  EXPECT_THAT(Error({{"run.sh", run}}), HasSubstr("names ds.json"));
}

TEST(ImportTrainer, TruthsAreSpelledInManyWays) {
  EXPECT_EQ(Text(Read({{"x.sh",
                        "torchrun --nproc_per_node=8 run_clm.py "
                        "--per_device_train_batch_size 2 --fp16 False --bf16 True"}}),
                 "precision"),
            "bf16");
  for (const char* fp16 : {"--fp16 True", "--fp16", "--fp16=true"}) {
    const Imported read = Read(
        {{"x.sh", fmt::format("torchrun --nproc_per_node=8 --nnodes 1 run_clm.py "
                              "--per_device_train_batch_size 2 {} --gradient_checkpointing True",
                              fp16)}});
    EXPECT_EQ(Text(read, "precision"), "fp16") << fp16;
    EXPECT_EQ(Text(read, "recompute"), "full");
    EXPECT_EQ(Text(read, "global_batch"), "16");
    EXPECT_EQ(read.framework, "ddp");
  }
}

// DeepSpeedExamples: applications/DeepSpeed-Chat, shortened.
TEST(ImportTrainer, ExamplesOfDeepSpeedHaveArgumentsOfTheirOwn) {
  const Imported read =
      Read({{"x.sh",
             "ZERO_STAGE=$2\nif [ \"$ZERO_STAGE\" == \"\" ]; then\n  ZERO_STAGE=3\nfi\n"
             "STAGE=2\ndeepspeed --num_gpus=8 main.py --data_path a \\\n"
             "  --per_device_train_batch_size 8 --max_seq_len 512 \\\n"
             "  --gradient_accumulation_steps 2 --zero_stage $STAGE --deepspeed \\\n"
             "  --output_dir $OUTPUT &> $OUTPUT/training.log\n"}});
  EXPECT_EQ(read.framework, "huggingface");
  EXPECT_EQ(Text(read, "zero"), "2");
  EXPECT_EQ(Text(read, "seq_len"), "512");
  EXPECT_EQ(Text(read, "global_batch"), "128");
}

TEST(ImportTrainer, FlagsOfAccelerateWinOverItsFile) {
  const Named file = {"acc.yaml",
                      "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n"
                      "  fsdp_sharding_strategy: FULL_SHARD\nmixed_precision: bf16\n"
                      "num_machines: 1\nnum_processes: 8\n"};
  const Named run = {"x.sh",
                     "accelerate launch --config_file conf/acc.yaml --num_machines 2 "
                     "--num_processes=16 --mixed_precision fp16 train.py --output_dir out\n"};
  const Imported read = Read({file, run});
  EXPECT_EQ(Text(read, "nodes"), "2");
  EXPECT_EQ(Text(read, "gpus_per_node"), "8");
  EXPECT_EQ(Text(read, "precision"), "fp16");
  EXPECT_EQ(Text(read, "zero"), "3");
  EXPECT_THAT(read.notes,
              AllOf(Contains(HasSubstr("mixed_precision fp16 replaces bf16 of acc.yaml:5")),
                    Not(Contains(HasSubstr("add --from")))));
  // Nothing else says whether the job shards: it was predicted as FSDP.
  EXPECT_THAT(Error({run}),
              AllOf(HasSubstr("x.sh:1"), HasSubstr("conf/acc.yaml, which is not found"),
                    HasSubstr("--from acc.yaml")));
  Named says = run;
  says.text.insert(says.text.find("--num_machines"), "--use_fsdp ");
  EXPECT_THAT(Read({says}).notes, Contains(HasSubstr("config_file names conf/acc.yaml")));
}

TEST(ImportTrainer, HybridShardsLieInANode) {
  const std::string yaml =
      "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\n"
      "fsdp_config:\n  fsdp_version: 1\n  fsdp_sharding_strategy: ";
  const std::string size = "\nnum_machines: 4\nnum_processes: 32\n";
  const auto degrees = [&](const std::string& strategy) {
    const Imported read = Read({{"a.yaml", yaml + strategy + size}});
    return Text(read, "zero") + " over " + Text(read, "dp_outer");
  };
  EXPECT_EQ(degrees("HYBRID_SHARD"), "3 over 4");
  EXPECT_EQ(degrees("4"), "3 over 4");
  EXPECT_EQ(degrees("HYBRID_SHARD_ZERO2"), "2 over 4");
  // A flag's nodes are those that hold copies.
  const Values two = {{"nodes", {"2", {SourceOf("command line", "2"), 1, 1}, "--nodes"}}};
  EXPECT_EQ(Text(Read({{"a.yaml", yaml + "HYBRID_SHARD\nnum_machines: 4\n"}}, two), "dp_outer"),
            "2");
  EXPECT_EQ(degrees("FULL_SHARD"), "3 over 1");
  EXPECT_THAT(Error({{"a.yaml", yaml + "HYBRID_SHARD\n"}}),
              AllOf(HasSubstr("a.yaml:6"), HasSubstr("--nodes N")));
  const Named trainer = {"x.sh",
                         "torchrun --nnodes 2 --nproc-per-node 8 t.py --fsdp \"hybrid_shard_zero2 "
                         "auto_wrap\" --per_device_train_batch_size 1 --bf16\n"};
  EXPECT_EQ(Text(Read({trainer}), "dp_outer"), "2");
  EXPECT_EQ(Text(Read({trainer}), "zero"), "2");
}

// Since 2025 `accelerate config` asks for reshard_after_forward in both releases of FSDP.
TEST(ImportTrainer, OneKeyHoldsTheStrategiesOfBothReleasesOfFsdp) {
  const auto yaml = [](const std::string& version, const std::string& reshard) {
    return Named{"a.yaml",
                 "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n" +
                     version + "  fsdp_reshard_after_forward: " + reshard +
                     "\nmixed_precision: bf16\nnum_machines: 4\nnum_processes: 32\n"};
  };
  const std::string first = "  fsdp_version: 1\n", second = "  fsdp_version: 2\n";
  const auto degrees = [&](const std::string& version, const std::string& reshard) {
    const Imported read = Read({yaml(version, reshard)});
    return Text(read, "zero") + " over " + Text(read, "dp_outer");
  };
  for (const std::string& version : {first, std::string()}) {
    EXPECT_EQ(degrees(version, "FULL_SHARD"), "3 over 1");
    EXPECT_EQ(degrees(version, "SHARD_GRAD_OP"), "2 over 1");
    EXPECT_EQ(degrees(version, "NO_SHARD"), "0 over 1");
    EXPECT_EQ(degrees(version, "HYBRID_SHARD"), "3 over 4");
    EXPECT_EQ(degrees(version, "hybrid_shard_zero2"), "2 over 4");
    EXPECT_EQ(degrees(version, "5"), "2 over 4");
  }
  EXPECT_EQ(degrees(second, "\"True\""), "3 over 1");
  EXPECT_EQ(degrees(second, "\"no\""), "2 over 1");
  // What names the strategy by its own key goes first, as in Accelerate.
  const Imported both = Read({yaml("  fsdp_sharding_strategy: SHARD_GRAD_OP\n", "FULL_SHARD")});
  EXPECT_EQ(Text(both, "zero"), "2");
  EXPECT_THAT(both.notes, Contains(HasSubstr("goes before FULL_SHARD")));
  EXPECT_THAT(Read({yaml(first, "SHARD_GRAD_OP")}).notes,
              Contains(HasSubstr("gives FSDP 1 FULL_SHARD unless")));
  EXPECT_THAT(Error({yaml(first, "HALF_SHARD")}),
              AllOf(HasSubstr("a.yaml:5"), HasSubstr("'HALF_SHARD' is no choice of FSDP 1")));
  EXPECT_THAT(Error({yaml(second, "SHARD_GRAD_OP")}),
              AllOf(HasSubstr("a.yaml:5"), HasSubstr("true or false")));
  EXPECT_THAT(Error({{"a.yaml", "distributed_type: MEGATRON_LM\nnum_processes: 8\n"}}),
              AllOf(HasSubstr("'MEGATRON_LM'"), HasSubstr("FSDP")));
}

TEST(ImportTrainer, AccelerateStartsOneMachineUnlessToldOtherwise) {
  const Named run = {"x.sh",
                     "accelerate launch --use_fsdp --num_processes 8 train.py "
                     "--per_device_train_batch_size 1\n"};
  EXPECT_EQ(Text(Read({run}), "nodes"), "1");
  EXPECT_EQ(Text(Read({run}), "gpus_per_node"), "8");
  EXPECT_EQ(Text(Read({run}, Flags({{"nodes", "2"}})), "gpus_per_node"), "4");
}

TEST(ImportTrainer, ArgumentsComeFromYamlAndFromPython) {
  const Named yaml = {"sft.yaml",
                      "### model\nmodel_name_or_path: m\nper_device_train_batch_size: 2\n"
                      "gradient_accumulation_steps: 8\nlearning_rate: 1.0e-5\nbf16: true\n"
                      "cutoff_len: 2048\ndeepspeed: examples/z3.json\nfsdp_config:\n  x: 1\n"};
  EXPECT_THAT(Error({yaml}), AllOf(HasSubstr("sft.yaml:8"), HasSubstr("names examples/z3.json")));
  const Imported from_yaml = Read({yaml}, Flags({{"zero", "3"}}));
  EXPECT_EQ(Text(from_yaml, "micro_batch"), "2");
  EXPECT_EQ(Text(from_yaml, "precision"), "bf16");
  EXPECT_EQ(Text(from_yaml, "seq_len"), "2048");
  const Named python = {"train.py",
                        "from transformers import Trainer, TrainingArguments\n\n"
                        "args = TrainingArguments(\n    output_dir=f\"out-{name}\",\n"
                        "    per_device_train_batch_size=4,  # of each GPU, not all (8)\n"
                        "    gradient_accumulation_steps=8, gradient_checkpointing=True,\n"
                        "    bf16=True, learning_rate=lr(1, 2), report_to=[\"none\", \"a,b\"])\n"};
  const Imported from_python = Read({python,
                                     {"x.sh",
                                      "accelerate launch --num_machines 2 "
                                      "--num_processes 16 train.py\n"}});
  EXPECT_EQ(Text(from_python, "micro_batch"), "4");
  EXPECT_EQ(Text(from_python, "recompute"), "full");
  EXPECT_EQ(Text(from_python, "global_batch"), "512");
  EXPECT_THAT(Error({{"t.py", "import x\nargs = TrainingArguments(\n  bf16=True\n"}}),
              HasSubstr("never closed"));
}

TEST(ImportDeepSpeedFiles, SwitchesThatAreOffMeanNothing) {
  const Imported read = Read({{"ds.json", R"({"train_batch_size": 8, "bf16": {"enabled": false},
      "zero_optimization": {"stage": 1}})"}});
  EXPECT_EQ(Text(read, "precision"), "fp32");
}

TEST(ImportDeepSpeedFiles, BatchesThatDisagreeWithTheFlagsHaveTheirLine) {
  const Named file = {"ds.json",
                      "{\n\"train_batch_size\": 128,\n"
                      "\"train_micro_batch_size_per_gpu\": 5,\n"
                      "\"zero_optimization\": {\"stage\": 1}}"};
  EXPECT_THAT(Error({file}, Flags({{"nodes", "2"}, {"gpus_per_node", "8"}})),
              AllOf(HasSubstr("ds.json:2"), HasSubstr("micro-batch 5"), HasSubstr("ds.json:3")));
  const Named steps = {"ds.json",
                       "{\n\"train_batch_size\": 128,\n"
                       "\"train_micro_batch_size_per_gpu\": 4,\n"
                       "\"gradient_accumulation_steps\": 3}"};
  EXPECT_THAT(Error({steps}, Flags({{"nodes", "2"}, {"gpus_per_node", "8"}})),
              AllOf(HasSubstr("ds.json:2"), HasSubstr("train_batch_size 128 is not 4")));
  // Half of the ranks hold other parts of the tensors.
  const Named halves = {"ds.json",
                        "{\n\"train_batch_size\": 128,\n"
                        "\"train_micro_batch_size_per_gpu\": 4,\n"
                        "\"gradient_accumulation_steps\": 4}"};
  EXPECT_EQ(Error({halves}, Flags({{"nodes", "2"}, {"gpus_per_node", "8"}, {"tp", "2"}})), "");
}

TEST(ImportDeepSpeedFiles, ShardsOfMicsAreReplicated) {
  const Named file = {"ds.json", R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,
      "bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "mics_shard_size": 8}})"};
  const Resolved r =
      Predict({file}, {"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "2"});
  EXPECT_EQ(r.strategy.dp_outer, 2);
  EXPECT_EQ(r.strategy.dp, 8);
}

// --- Megatron

// Its log holds the arguments and DeepSpeed's file; the world size of the file is that of its replicas.
TEST(ImportMegatronKin, ALogHoldsArgumentsAndDeepSpeedsFile) {
  const std::string arguments =
      "---- arguments ----\n  deepspeed ............ True\n  deepspeed_config ..... ds.json\n"
      "  hidden_size .......... 1024\n  num_attention_heads .. 16\n  num_layers ........... 24\n"
      "  seq_length ........... 1024\n  padded_vocab_size .... 50304\n"
      "  max_position_embeddings .. 1024\n"
      "  micro_batch_size ..... 2\n  global_batch_size .... 64\n"
      "  tensor_model_parallel_size .. 2\n  world_size ........... 16\n"
      "---- end of arguments ----\n";
  const auto file = [](const char* micro) {
    return fmt::format(
        "[config.py:1012:print]   world_size ................... 8\n"
        "[config.py:1000:print_user_config]   json = {{\n    "
        "\"train_micro_batch_size_per_gpu\":{},\n"
        "    \"train_batch_size\": 64,\n    \"zero_optimization\": {{\n        \"stage\": 1\n    "
        "}}\n}}\n",
        micro);
  };
  const Imported read = Read({{"train.log", file("2") + arguments}});
  EXPECT_EQ(read.framework, "megatron-deepspeed");
  EXPECT_EQ(Text(read, "zero") + " " + Text(read, "tp"), "1 2");
  EXPECT_THAT(read.notes, Not(Contains(HasSubstr("without effect"))));
  EXPECT_THAT(Error({{"train.log", file("4") + arguments}}),
              AllOf(HasSubstr("micro_batch is 4 here"), HasSubstr("2 in train.log:")));
  // Without it the file is named.
  EXPECT_THAT(Read({{"train.log", arguments}}).notes,
              Contains(HasSubstr("deepspeed_config names ds.json")));
}

TEST(ImportMegatronKin, ZeroStagesAreOfMegatronDeepSpeed) {
  const std::string front = std::string("deepspeed --num_nodes 2 --num_gpus 8 ") + kGpt +
                            "--bf16 --deepspeed --deepspeed_config ds.json --zero-stage ";
  const Imported one = Read({{"x.sh", front + "1 --deepspeed-activation-checkpointing "
                                              "--checkpoint-activations"}});
  EXPECT_EQ(one.framework, "megatron-deepspeed");
  EXPECT_EQ(Text(one, "zero"), "1");
  EXPECT_EQ(Text(one, "recompute"), "full");
  EXPECT_EQ(Text(Read({{"x.sh", front + "3"}}), "zero"), "3");
  const Imported ulysses = Read({{"x.sh", front + "1 --ds-sequence-parallel-size 2"}});
  EXPECT_EQ(Text(ulysses, "cp"), "2");
  EXPECT_EQ(Text(ulysses, "context"), "ulysses");
}

// tr11-176B of BigScience, shortened.
TEST(ImportMegatronKin, TheJobOfBloomIsRead) {
  const Imported read = Read({{"bloom.slurm", R"sh(#!/bin/bash
#SBATCH --nodes=48
#SBATCH --ntasks-per-node=1          # crucial - only 1 task per dist per node!
#SBATCH --gres=gpu:8                 # number of gpus
GPUS_PER_NODE=8
NNODES=$SLURM_NNODES
PP_SIZE=12
TP_SIZE=4
MICRO_BATCH_SIZE=2
GLOBAL_BATCH_SIZE=2048
config_json="./ds_config.$SLURM_JOBID.json"
cat <<EOT > $config_json
{ "train_micro_batch_size_per_gpu": $MICRO_BATCH_SIZE }
EOT
GPT_ARGS=" \
    --num-layers 70 --hidden-size 14336 --num-attention-heads 112 \
    --seq-length 2048 --max-position-embeddings 2048 \
    --micro-batch-size $MICRO_BATCH_SIZE \
    --rampup-batch-size 192 16 9_765_625 \
    --global-batch-size $GLOBAL_BATCH_SIZE \
    --bf16 --checkpoint-activations --position-embedding-type alibi \
    --pp-partition-method 'type:transformer|embedding' \
    "
DEEPSPEED_ARGS=" \
    --deepspeed --deepspeed_config ${config_json} --zero-stage 0 \
    --deepspeed-activation-checkpointing "
export LAUNCHER="python -u -m torch.distributed.run \
    --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --rdzv_backend c10d --max_restarts 0 --tee 3 "
export CMD=" \
    `pwd`/pretrain_gpt.py \
    --tensor-model-parallel-size $TP_SIZE --pipeline-model-parallel-size $PP_SIZE \
    $GPT_ARGS --save $CHECKPOINT_PATH $DEEPSPEED_ARGS "
srun --wait=60 --kill-on-bad-exit=1 bash -c "$LAUNCHER --node_rank \$SLURM_PROCID $CMD" 2>&1 | tee x
)sh"}});
  EXPECT_EQ(read.framework, "megatron-deepspeed");
  EXPECT_EQ(Text(read, "nodes"), "48");
  EXPECT_EQ(Text(read, "gpus_per_node"), "8");
  EXPECT_EQ(Text(read, "tp"), "4");
  EXPECT_EQ(Text(read, "pp"), "12");
  EXPECT_EQ(Text(read, "global_batch"), "2048");
  EXPECT_EQ(Text(read, "recompute"), "full");
  EXPECT_EQ(Text(read, "zero"), "0");
  EXPECT_THAT(read.notes, Contains(HasSubstr("not modelled: a batch that grows")));
}

TEST(ImportMegatronKin, ADumpThatIsCutOffIsNoWholeOne) {
  const std::string dump =
      "------------------------ arguments ------------------------\n"
      "  bf16 ............................................ True\n"
      "  global_batch_size ............................... 64\n";
  EXPECT_THAT(Error({{"train.log", dump}}),
              AllOf(HasSubstr("train.log:3"), HasSubstr("'end of arguments' never comes")));
}

// --- torchtitan

TEST(ImportTitan, OldReleasesHadOtherSections) {
  if (!WithoutToml().empty()) GTEST_SKIP() << WithoutToml();
  const Imported read = Read({{"old.toml", R"([model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 8
seq_len = 4096
tensor_parallel_degree = 2
data_parallel_degree = -1
compile = true
[experimental]
pipeline_parallel_degree = 2
pipeline_parallel_split_points = ["layers.15"]
pipeline_parallel_schedule = "1F1B"
pipeline_parallel_microbatches = 4
[activation_checkpoint]
mode = "full"
)"},
                              {"run.sh",
                               "torchrun --nnodes 2 --nproc_per_node 8 train.py "
                               "--job.config_file old.toml --training.seq_len=2048\n"}});
  EXPECT_EQ(Text(read, "tp"), "2");
  EXPECT_EQ(Text(read, "pp"), "2");
  EXPECT_EQ(Text(read, "layout"), "15,17");
  EXPECT_EQ(Text(read, "micro_batch"), "2");
  EXPECT_EQ(Text(read, "global_batch"), "32");
  EXPECT_EQ(Text(read, "seq_len"), "2048");
  EXPECT_THAT(read.notes, Contains(HasSubstr("training.seq_len 2048 replaces 4096 of old.toml")));
}

TEST(ImportTitan, WhatChangesAJobIsNotWithoutEffect) {
  if (!WithoutToml().empty()) GTEST_SKIP() << WithoutToml();
  const auto notes = [](const std::string& section) {
    return Read({{"t.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n" + section}}).notes;
  };
  for (const char* section :
       {"[optimizer]\nearly_step_in_backward = true\n",
        "[optimizer]\nimplementation = \"foreach\"\n",
        "[parallelism]\ndisable_loss_parallel = true\n",
        "[parallelism]\npipeline_parallel_schedule_csv = \"s.csv\"\n",
        "[activation_checkpoint]\nearly_stop = true\n", "[fault_tolerance]\nenable = true\n"})
    EXPECT_THAT(notes(section), Contains(HasSubstr("t.toml:5: not modelled: "))) << section;
  for (const char* section :
       {"[optimizer]\nearly_step_in_backward = false\n",
        "[optimizer]\nimplementation = \"fused\"\n", "[fault_tolerance]\nenable = false\n"})
    EXPECT_THAT(notes(section), Not(Contains(HasSubstr("not modelled")))) << section;
}

TEST(ImportTitan, ItsRunScriptNamesAConfiguration) {
  const Imported read = Read({{"run_train.sh", R"sh(#!/usr/bin/bash
set -ex
NGPU=${NGPU:-"8"}
export LOG_RANK=${LOG_RANK:-0}
CONFIG_FILE=${CONFIG_FILE:-"./torchtitan/models/llama3/train_configs/debug_model.toml"}
TRAIN_FILE=${TRAIN_FILE:-"torchtitan.train"}
PYTORCH_ALLOC_CONF="expandable_segments:True" \
torchrun --nproc_per_node=${NGPU} --rdzv_backend c10d --rdzv_endpoint="localhost:0" \
--local-ranks-filter ${LOG_RANK} --role rank --tee 3 \
-m ${TRAIN_FILE} --job.config_file ${CONFIG_FILE} "$@"
)sh"}});
  EXPECT_EQ(Text(read, "gpus_per_node"), "8");
  EXPECT_THAT(read.notes, Contains(HasSubstr("add --from debug_model.toml")));
}

// --- records of this project

TEST(ImportRecords, FactsAndPlacementsComeBack) {
  const Imported read =
      Read({{"p.json", R"({"schema": "orrery.predict/1", "prediction": {"nodes": 4,
      "strategy": {"tp": 2, "placement": "tp-cp-pp-dp"}},
      "workload": {"framework": "megatron with compile off, tp_async on"}})"}});
  EXPECT_EQ(read.framework, "megatron");
  EXPECT_EQ(read.facts, "compile=off,tp_async=on");
  EXPECT_EQ(Text(read, "placement"), "tp-cp-pp-dp");
}

// transformers refuses both kinds of checkpoints in one job (training_args.py), and either recomputes all layers.
TEST(Trainer, RecomputesByFsdpOrByItself) {
  const auto read = [](const char* own, const char* fsdp) {
    return std::vector<Named>{
        {"ta.json",
         fmt::format("{{\"output_dir\": \"o\", \"bf16\": true, \"fsdp\": \"full_shard\",\n"
                     " \"gradient_checkpointing\": {},\n"
                     " \"fsdp_config\": {{\"activation_checkpointing\": {}}}}}",
                     own, fsdp)}};
  };
  EXPECT_EQ(Text(Read(read("false", "true")), "recompute"), "full");
  EXPECT_EQ(Text(Read(read("true", "false")), "recompute"), "full");
  EXPECT_EQ(Text(Read(read("false", "false")), "recompute"), "none");
  EXPECT_THAT(Error(read("true", "true")),
              AllOf(HasSubstr("ta.json:2"), HasSubstr("activation_checkpointing in ta.json:3"),
                    HasSubstr("the Trainer refuses both")));
}

}  // namespace
}  // namespace orrery::exchange::styles
