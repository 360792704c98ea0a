// SPDX-License-Identifier: Apache-2.0
// Commands of programs around HuggingFace's Trainer whose flags are their own: adapters, preferences, evaluations, batches.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/exchange/styles.h"

namespace orrery::exchange::styles {
namespace {

constexpr const char* kBatch =
    " --model_name_or_path gpt2-xl --per_device_train_batch_size 2 --bf16 True ";

Named Script(const std::string& command) { return {"run.sh", command + "\n"}; }
Imported OfFlags(const std::string& flags, const Values& given = {}) {
  return Read({Script("torchrun --nproc_per_node 8 train.py" + (kBatch + flags))}, given);
}
std::string FlagsError(const std::string& flags) {
  return ErrorOf([&] { OfFlags(flags); });
}
std::string AdaptersOf(const Imported& read) {
  return fmt::format("{} {} {} {}", Text(read, "lora"), Text(read, "lora_alpha"),
                     Text(read, "lora_targets"), Text(read, "lora_base"));
}

// They were full fine-tunings, and their flags "without effect".
TEST(OwnAdapters, AreReadWhereRankAlphaAndTargetsAreSaid) {
  EXPECT_EQ(AdaptersOf(OfFlags("--lora_enable True --lora_r 16 --lora_alpha 32 "
                               "--lora_target_modules q_proj,v_proj")),
            "16 32 q_proj,v_proj ");
  EXPECT_EQ(AdaptersOf(OfFlags("--use_lora --lora_rank 64 --lora_alpha 16 --lora_modules all")),
            "64 16 all-linear ");
  EXPECT_EQ(AdaptersOf(OfFlags("--full_finetune False --bits 4 --lora_r 64 --lora_alpha 16 "
                               "--lora_modules all")),
            "64 16 all-linear nf4");
  EXPECT_EQ(AdaptersOf(OfFlags("--use_peft_lora True --use_8bit_quantization True --lora_r 8 "
                               "--lora_alpha 16 --lora_target_modules q_proj v_proj")),
            "8 16 q_proj,v_proj int8");
  EXPECT_EQ(AdaptersOf(OfFlags("--peft_type lora --r 8 --lora_alpha 8 --lora_target q_proj")),
            "8 8 q_proj ");
  const Imported read =
      OfFlags("--lora_enable True --lora_r 16 --lora_alpha 32 --lora_modules all --seed 4");
  EXPECT_THAT(read.notes,
              Contains(HasSubstr("run.sh:1: adapters (lora_enable True) of a program")));
  EXPECT_THAT(read.notes, Contains(HasSubstr("frozen weights are taken in 16 bits")));
  EXPECT_THAT(read.notes, Contains("without effect on time and memory: args.seed"));
  EXPECT_EQ(AdaptersOf(Read({{"sft.yaml",
                              "per_device_train_batch_size: 1\noutput_dir: o\nuse_lora: true\n"
                              "use_qlora: true\nlora_rank: 64\nlora_alpha: 16\n"
                              "lora_target_modules: [q_proj, v_proj]\n"}})),
            "64 16 q_proj,v_proj nf4");
}

TEST(OwnAdapters, AreRefusedWhereTheirProgramKnowsTheRest) {
  EXPECT_THAT(FlagsError("--lora_enable True --lora_r 16 --lora_alpha 32"),
              AllOf(HasSubstr("run.sh:1"),
                    HasSubstr("adapters by flags of a program that is not known here (lora_enable "
                              "True): it does not say their targets"),
                    HasSubstr("--lora-rank 16 --lora-targets MAPS")));
  for (const char* flags :
       {"--use_lora True", "--use_lora", "--lora_r 8 --lora_alpha 16 --q_lora False",
        "--train_mode lora", "--tuner_type lora", "--train_type lora --lora_rank 8",
        "--use_peft_lora True", "--lora_rank 64", "--lora_dim 128 --only_optimize_lora",
        "--train_type adalora --lora_r 8 --lora_alpha 8 "
        "--lora_target q_proj"})
    EXPECT_THAT(FlagsError(flags), HasSubstr("adapters by flags")) << flags;
  EXPECT_THAT(FlagsError("--use_lora --q_lora True --lora_r 64"),
              HasSubstr("--lora-rank 64 --lora-targets MAPS --lora-base nf4"));
  // Weights in few bits are trained by adapters alone.
  EXPECT_THAT(FlagsError("--load_in_8bit True"), HasSubstr("--lora-base int8"));
  EXPECT_THAT(FlagsError("--bits 4"), HasSubstr("--lora-base nf4"));
}

TEST(OwnAdapters, ThatAreOffOrGivenBesidesAreNotAskedFor) {
  for (const char* flags :
       {"--lora_enable False --lora_r 16 --lora_dropout 0.05", "--use_lora False --lora_rank 8",
        "--use_peft false --lora_r 8 --lora_dropout 0.1", "--full_finetune True --lora_r 64",
        "--train_type full --lora_rank 8", "--bits 16", "--load_in_8bit False", "--lora_dim 0"}) {
    const Imported full = OfFlags(flags);
    EXPECT_EQ(Text(full, "lora"), "") << flags;
    EXPECT_THAT(full.notes, Not(Contains(HasSubstr("dropout in front of adapters")))) << flags;
  }
  const Imported given = OfFlags("--use_lora --q_lora True --lora_r 64 --lora_dropout 0.1",
                                 Flags({{"lora", "8"}, {"lora_targets", "q"}}));
  EXPECT_EQ(Text(given, "lora"), "");  // the flags'
  EXPECT_THAT(given.notes,
              Contains(HasSubstr(
                  "adapters (use_lora): those given by flags or another file are predicted")));
  EXPECT_THAT(given.notes, Contains(HasSubstr("q_lora True: frozen weights in few bits")));
  EXPECT_THAT(given.notes, Contains(HasSubstr("dropout in front of adapters")));
  EXPECT_THAT(given.notes, Not(Contains(HasSubstr("lora_r"))));
}

TEST(OwnAdapters, AreTrainedByProgramsThatAreNamedSo) {
  const auto read = [](const std::string& flags, const Values& given = {}) {
    return Read({Script("torchrun --nproc_per_node 8 qlora.py" + (kBatch + flags))}, given);
  };
  EXPECT_THAT(ErrorOf([&] { read(""); }),
              HasSubstr("(qlora.py): it does not say their rank, alpha, targets"));
  const Imported full = read("--full_finetune True --seed 4");
  EXPECT_EQ(Text(full, "lora"), "");
  EXPECT_THAT(full.notes, Not(Contains(HasSubstr("PROGRAM"))));
  EXPECT_THAT(read("", Flags({{"lora", "8"}})).notes,
              AllOf(Contains(HasSubstr(
                        "adapters (qlora.py): those given by flags or another file are predicted")),
                    Not(Contains(HasSubstr("PROGRAM")))));
}

// The catalogue's batch was taken.
TEST(TrainerFlags, EightIsTheBatchOfACommandWithArgumentsOfTheTrainer) {
  const auto read = [](const std::string& flags) {
    return Read({Script("accelerate launch --num_processes 8 run_clm.py " + flags)});
  };
  const Imported own = read("--model_name_or_path gpt2-xl --bf16 --block_size 1024 --do_train");
  EXPECT_EQ(Text(own, "micro_batch") + " " + Text(own, "global_batch"), "8 64");
  EXPECT_THAT(own.notes,
              Contains("run.sh:1: per_device_train_batch_size 8, the Trainer's default"));
  EXPECT_EQ(Text(read("--model_name_or_path gpt2-xl --learning_rate 1e-5"), "micro_batch"), "8");
  EXPECT_EQ(Text(read("--model_name_or_path gpt2-xl --batch 4"), "micro_batch"), "");
}

// They were steps of plain sequences without a word.
TEST(TrainerFlags, ProgramsThatTrainOnPreferencesAreNamed) {
  const auto notes = [](const std::string& program) {
    return Read({Script("accelerate launch --num_processes 8 " + program + kBatch)}).notes;
  };
  const auto pairs = Contains(HasSubstr("run.sh:1: not modelled: training on preferences"));
  for (const char* program : {"dpo.py", "trl/scripts/kto.py", "reward_modeling.py", "run_orpo.py",
                              "dpo_tune_cache.py", "train.py --beta 0.1"})
    EXPECT_THAT(notes(program), pairs) << program;
  for (const char* program : {"sft.py", "rewarded_text/sft.py", "train.py --adam_beta1 0.9"})
    EXPECT_THAT(notes(program), Not(pairs)) << program;
  for (const char* program : {"grpo.py", "open_instruct/grpo_fast.py", "ppo.py", "rloo.py",
                              "train.py --num_generations 8"})
    EXPECT_THAT(ErrorOf([&] { notes(program); }), HasSubstr("learns by reinforcement")) << program;
}

// They were predicted as trainings.
TEST(TrainerFlags, AnEvaluationIsNoTraining) {
  EXPECT_THAT(FlagsError("--do_eval"),
              AllOf(HasSubstr("run.sh:1"), HasSubstr("do_eval without do_train: evaluates a model, "
                                                     "and trains nothing")));
  EXPECT_THAT(FlagsError("--do_train false"), HasSubstr("do_train false: evaluates a model"));
  EXPECT_THAT(FlagsError("--do_eval --do_train False"), HasSubstr("trains nothing"));
  EXPECT_EQ(Text(OfFlags("--do_eval --do_train"), "micro_batch"), "2");
  EXPECT_EQ(Text(OfFlags("--do_eval False"), "micro_batch"), "2");
  // TRL's own programs take a file without do_train, and train.
  const std::string yaml = "per_device_train_batch_size: 1\noutput_dir: o\ndo_eval: true\n";
  EXPECT_EQ(Text(Read({{"sft.yaml", yaml}}), "micro_batch"), "1");
  EXPECT_THAT(Error({{"sft.yaml", yaml + "stage: sft\ncutoff_len: 2048\n"}}),
              HasSubstr("trains nothing"));
}

TEST(TrainerFlags, OfAttentionEpochsAndOptimizersAreKnown) {
  const Imported read =
      OfFlags("--num_train_epochs 3 --use_flash_attn False --num_warmup_steps 5 --optim adamw_hf");
  EXPECT_THAT(read.notes, Not(Contains(HasSubstr("not known here"))));
  EXPECT_THAT(
      read.notes,
      Contains("without effect on time and memory: args.num_train_epochs, args.use_flash_attn, "
               "args.num_warmup_steps"));
  EXPECT_EQ(Text(read, "optimizer"), "adamw");
  EXPECT_THAT(FlagsError("--tune_mm_mlp_adapter True"), HasSubstr("a projector of images alone"));
  EXPECT_EQ(Text(OfFlags("--use_flash_attn True"), "flash_attention"), "on");
  EXPECT_THAT(FlagsError("--optim adafactor"),
              AllOf(HasSubstr("run.sh:1"),
                    HasSubstr("optim adafactor: Adafactor's factored moments: not modelled")));
}

}  // namespace
}  // namespace orrery::exchange::styles
