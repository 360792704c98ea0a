// SPDX-License-Identifier: Apache-2.0
// Python programs around HuggingFace's Trainer: which call trains, adapters, frozen weights in few bits, types.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/arch/catalogue.h"
#include "tests/exchange/styles.h"

namespace orrery::exchange::styles {
namespace {

constexpr const char* kImports =
    "from peft import LoraConfig, get_peft_model\n"
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n";
constexpr const char* kArguments =
    "args = TrainingArguments(output_dir=\"o\", per_device_train_batch_size=2, bf16=True,\n"
    "                         gradient_accumulation_steps=4)\n";

Imported OfProgram(const std::string& text, const Values& given = {}) {
  return Read({{"train.py", kImports + text}}, given);
}
std::string ProgramError(const std::string& text, const Values& given = {}) {
  return ErrorOf([&] { OfProgram(text, given); });
}

// All but the TrainingArguments fell away, so that these were full fine-tunings.
TEST(PythonAdapters, AreThoseOfLoraConfig) {
  const std::string program = std::string("TARGETS = [\n  \"q_proj\",  # and\n  \"v_proj\",\n]\n") +
                              kArguments +
                              "def build(model):\n"
                              "    config = LoraConfig(\n"
                              "        r=64, lora_alpha=16, lora_dropout=0.05, bias=\"none\",\n"
                              "        task_type=TaskType.CAUSAL_LM, target_modules=TARGETS)\n"
                              "    return get_peft_model(model, config)\n";
  const Imported read = OfProgram(program);
  EXPECT_EQ(Text(read, "lora"), "64");
  EXPECT_EQ(Text(read, "lora_alpha"), "16");
  EXPECT_EQ(Text(read, "lora_targets"), "q_proj,v_proj");
  EXPECT_EQ(Text(read, "micro_batch"), "2");
  EXPECT_THAT(read.notes,
              Contains(HasSubstr("train.py:11: not modelled: dropout in front of adapters")));
  EXPECT_THAT(read.notes, Not(Contains(HasSubstr("task_type"))));
  // A rank of PEFT's own, in the call that trains.
  const Imported trl = Read(
      {{"sft.py",
        "from trl import SFTConfig, SFTTrainer\n"
        "trainer = SFTTrainer(\n    model=\"meta-llama/Llama-2-7b-hf\",\n"
        "    args=SFTConfig(output_dir=\"o\", per_device_train_batch_size=4, max_length=2048),\n"
        "    peft_config=LoraConfig(lora_alpha=32, target_modules=\"all-linear\"),\n)\n"}});
  EXPECT_EQ(Text(trl, "lora") + " " + Text(trl, "lora_targets"), "8 all-linear");
  EXPECT_EQ(Text(trl, "micro_batch") + " " + Text(trl, "seq_len"), "4 2048");
  EXPECT_EQ(trl.model_name, "llama2-7b");
}

TEST(PythonAdapters, AreThoseOfTrlsModelConfig) {
  const Imported read = OfProgram(
      std::string(kArguments) +
      "m = ModelConfig(use_peft=True, lora_r=64, lora_target_modules=[\"q_proj\", \"v_proj\"],\n"
      "                load_in_4bit=True)\n");
  EXPECT_EQ(Text(read, "lora") + " " + Text(read, "lora_targets"), "64 q_proj,v_proj");
  EXPECT_EQ(Text(read, "lora_base"), "nf4");
  EXPECT_EQ(Text(OfProgram(std::string(kArguments) + "m = ModelConfig(lora_r=64)\n"), "lora"), "");
}

TEST(PythonAdapters, FrozenWeightsInFewBitsAreTheirBase) {
  const auto base = [](const std::string& more) {
    return OfProgram(kArguments + more + "\nmodel = get_peft_model(m, LoraConfig(r=8))\n");
  };
  const Imported nf4 = base(
      "bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=\"nf4\",\n"
      "                         bnb_4bit_compute_dtype=torch.bfloat16)");
  EXPECT_EQ(Text(nf4, "lora_base"), "nf4");
  EXPECT_THAT(nf4.notes, Not(Contains(HasSubstr("frozen weights in fp32"))));
  const Imported fp4 = base("bnb = BitsAndBytesConfig(load_in_4bit=True)");
  EXPECT_EQ(Text(fp4, "lora_base"), "nf4");
  EXPECT_THAT(fp4.notes, Contains(HasSubstr("predicted as nf4")));
  EXPECT_EQ(
      Text(base("m = AutoModelForCausalLM.from_pretrained(name, load_in_8bit=True)"), "lora_base"),
      "int8");
  EXPECT_EQ(Text(base("bnb = BitsAndBytesConfig(load_in_4bit=False)"), "lora_base"), "");
  EXPECT_THAT(base("m = 1").notes, Contains(HasSubstr("frozen weights in fp32")));
  EXPECT_THAT(
      OfProgram(std::string(kArguments) + "b = BitsAndBytesConfig(load_in_4bit=True)\n").notes,
      Contains(AllOf(HasSubstr("train.py:5"), HasSubstr("without adapters"))));
}

TEST(PythonAdapters, WhatIsComputedIsRefusedOrNamed) {
  const std::string front = kArguments;
  const std::string rank = front + "c = LoraConfig(r=opts.rank, target_modules=[\"q_proj\"])\n";
  EXPECT_THAT(ProgramError(rank),
              AllOf(HasSubstr("train.py:5"), HasSubstr("LoraConfig's r is computed"),
                    HasSubstr("--lora-rank N")));
  EXPECT_EQ(Text(OfProgram(rank, Flags({{"lora", "16"}})), "lora_targets"), "q_proj");
  EXPECT_THAT(ProgramError(front + "c = LoraConfig(r=8, target_modules=find(model))\n"),
              HasSubstr("LoraConfig's target_modules is computed"));
  EXPECT_THAT(OfProgram(front + "c = LoraConfig(r=8, modules_to_save=extra)\n").notes,
              Contains(AllOf(HasSubstr("train.py:5"), HasSubstr("modules_to_save is computed"))));
  EXPECT_THAT(ProgramError(front + "c = LoraConfig(**options)\n"),
              HasSubstr("LoraConfig's r is computed"));
  EXPECT_THAT(ProgramError(front + "c = LoraConfig(r=8, use_dora=True)\n"),
              HasSubstr("DoRA's magnitudes"));
  EXPECT_THAT(ProgramError(front + "m = get_peft_model(m, made(opts))\n"),
              HasSubstr("get_peft_model makes adapters of a configuration"));
  EXPECT_THAT(ProgramError(front + "c = IA3Config(task_type=\"CAUSAL_LM\")\n"),
              HasSubstr("adapters of the kind IA3Config are not modelled"));
  EXPECT_THAT(OfProgram(front + "t = Trainer(args=args, peft_config=get_peft_config(m))\n").notes,
              Contains(HasSubstr("all weights are taken to be trained")));
  EXPECT_EQ(Text(OfProgram(front + "t = Trainer(args=args, peft_config=None)\n"), "lora"), "");
  EXPECT_THAT(OfProgram(front + "if opts.lora:\n    c = LoraConfig(r=8)\n").notes,
              Contains(HasSubstr("LoraConfig stands in a branch (`if opts.lora:`)")));
  // In a text and in a comment there is none.
  EXPECT_EQ(Text(OfProgram("\"\"\"LoraConfig(r=8)\"\"\"\n# LoraConfig(r=8)\n" + front), "lora"),
            "");
}

TEST(PythonAdapters, OfSeveralTheOneThatIsHandedOn) {
  const std::string two =
      std::string(kArguments) + "small = LoraConfig(r=4)\nlarge = LoraConfig(r=128)\n";
  EXPECT_THAT(ProgramError(two),
              AllOf(HasSubstr("train.py:6"), HasSubstr("2 calls of LoraConfig")));
  EXPECT_EQ(Text(OfProgram(two + "model = get_peft_model(model, large)\n"), "lora"), "128");
}

// The first won without a word.
TEST(PythonArguments, OfSeveralTheOneWhoseTrainerTrains) {
  const std::string two =
      "a = TrainingArguments(output_dir=\"eval\", per_device_train_batch_size=1, fp16=True)\n"
      "b = TrainingArguments(output_dir=\"o\", per_device_train_batch_size=4, bf16=True)\n";
  EXPECT_THAT(ProgramError(two),
              AllOf(HasSubstr("train.py:4"), HasSubstr("2 calls"), HasSubstr("(lines 3, 4)"),
                    HasSubstr("which of them trains")));
  const Imported read =
      OfProgram(two +
                "judge = Trainer(model=m, args=a)\njudge.evaluate()\n"
                "trainer = Trainer(model=m, args=b)\ntrainer.train(resume_from_checkpoint=x)\n");
  EXPECT_EQ(Text(read, "micro_batch") + Text(read, "precision"), "4bf16");
  EXPECT_THAT(read.notes, Contains(AllOf(HasSubstr("train.py:4"), HasSubstr("of 2 calls"),
                                         HasSubstr("whose Trainer trains"))));
  EXPECT_EQ(Text(OfProgram(two + "Trainer(model=m, args=b).train()\n"), "micro_batch"), "4");
  EXPECT_THAT(ProgramError(two + "s = Trainer(m, a)\ns.train()\nt = Trainer(m, b)\nt.train()\n"),
              HasSubstr("which of them trains"));
  EXPECT_THAT(OfProgram(std::string(kArguments) + "x = TrainingArguments\n").notes,
              Not(Contains(HasSubstr("calls"))));
}

TEST(PythonArguments, DictionariesAreRead) {
  const auto part = [](const std::string& text) {
    return OfProgram(
        "args = TrainingArguments(output_dir=\"o\", per_device_train_batch_size=1,\n"
        "    bf16=True, fsdp=[\"full_shard\", \"auto_wrap\"],\n    fsdp_config=" +
        text + ")\n");
  };
  EXPECT_EQ(Text(part("{\"activation_checkpointing\": True, \"x\": f(1)}"), "recompute"), "full");
  EXPECT_EQ(Text(part("{\"activation_checkpointing\": False}"), "recompute"), "none");
  const Imported second = part("{\"version\": 2, \"reshard_after_forward\": False}");
  EXPECT_EQ(Text(second, "zero"), "2");
  EXPECT_THAT(second.notes, Contains(HasSubstr("reshard_after_forward false replaces FULL_SHARD")));
  EXPECT_THAT(ErrorOf([&] { part("options()"); }), HasSubstr("train.py:5"));
  const Imported deepspeed = OfProgram(
      "args = TrainingArguments(output_dir=\"o\", per_device_train_batch_size=1, bf16=True,\n"
      "    deepspeed={\"zero_optimization\": {\"stage\": 3}, \"bf16\": {\"enabled\": "
      "\"auto\"}})\n");
  EXPECT_EQ(Text(deepspeed, "zero") + deepspeed.framework, "3huggingface");
}

// Recomputation was passed over, and with it a third of the time.
TEST(PythonEffects, RecomputationIsThatOfTheModel) {
  const auto recompute = [](const std::string& more, const std::string& said = "") {
    return Text(OfProgram("args = TrainingArguments(output_dir=\"o\", bf16=True,\n"
                          "    per_device_train_batch_size=2" +
                          said + ")\n" + more),
                "recompute");
  };
  const std::string bits =
      "m = AutoModelForCausalLM.from_pretrained(\"meta-llama/Llama-2-7b-hf\", load_in_4bit=True)\n"
      "p = get_peft_model(m, LoraConfig(r=8))\n";
  EXPECT_EQ(recompute(""), "none");
  EXPECT_EQ(recompute("model.gradient_checkpointing_enable()\n"), "full");
  EXPECT_EQ(recompute("# model.gradient_checkpointing_enable()\n"), "none");
  EXPECT_EQ(
      recompute("model.gradient_checkpointing_enable()\nmodel.gradient_checkpointing_disable()\n"),
      "none");
  EXPECT_EQ(recompute("model.gradient_checkpointing_enable()\n", ", gradient_checkpointing=False"),
            "none");
  EXPECT_THAT(OfProgram("args = TrainingArguments(output_dir=\"o\", gradient_checkpointing=False)\n"
                        "m.gradient_checkpointing_enable()\n")
                  .notes,
              Contains(AllOf(HasSubstr("train.py:4"), HasSubstr("--recompute full"))));
  const Imported both = OfProgram(
      "args = TrainingArguments(output_dir=\"o\", bf16=True, per_device_train_batch_size=2,\n"
      "    fsdp=\"full_shard\", fsdp_config={\"activation_checkpointing\": True})\n"
      "m.gradient_checkpointing_enable()\n");
  EXPECT_EQ(Text(both, "recompute") + " " + Text(both, "recompute_unread"), "full off");
  EXPECT_THAT(both.notes, Contains(AllOf(HasSubstr("train.py:5"), HasSubstr("FSDP's alone"))));
  // PEFT's own default, which holds for weights in few bits alone.
  EXPECT_EQ(recompute(bits + "m = prepare_model_for_kbit_training(m)\n"), "full");
  EXPECT_EQ(recompute("m = prepare_model_for_kbit_training(m)\n"), "none");
  EXPECT_EQ(recompute(bits + "m = prepare_model_for_kbit_training(m, False)\n"), "none");
  const std::string same = bits +
                           "m = prepare_model_for_kbit_training(m, "
                           "use_gradient_checkpointing=args.gradient_checkpointing)\n";
  EXPECT_EQ(recompute(same), "none");
  EXPECT_EQ(recompute(same, ", gradient_checkpointing=True"), "full");
  EXPECT_THAT(
      ErrorOf([&] {
        recompute(bits + "prepare_model_for_kbit_training(m, use_gradient_checkpointing=opts.gc)");
      }),
      AllOf(HasSubstr("train.py:7"), HasSubstr("use_gradient_checkpointing is computed")));
  EXPECT_EQ(recompute("if args.gradient_checkpointing:\n  m.gradient_checkpointing_enable()\n"),
            "none");
  const std::string front = kArguments;
  const Imported how = OfProgram(
      front +
      "if opts.gc:\n"
      "    m.gradient_checkpointing_enable(gradient_checkpointing_kwargs={\"use_reentrant\": "
      "False})\n");
  EXPECT_EQ(Text(how, "recompute") + " " + Text(how, "recompute_unread"), "full off");
  EXPECT_THAT(how.notes, Contains(AllOf(HasSubstr("train.py:6"), HasSubstr("`if opts.gc:`"))));
  EXPECT_EQ(Text(OfProgram(front + "m.gradient_checkpointing_enable()\n"), "recompute_unread"),
            "on");
}

TEST(PythonEffects, FrozenPartsAreNamed) {
  const std::string front = kArguments;
  const auto frozen = [](const char* place) {
    return Contains(AllOf(HasSubstr(place), HasSubstr("not modelled: parts of the model that are "
                                                      "frozen")));
  };
  EXPECT_THAT(OfProgram(front + "for p in model.model.layers[:16].parameters():\n"
                                "    p.requires_grad = False\n")
                  .notes,
              frozen("train.py:6"));
  EXPECT_THAT(OfProgram(front + "for p in m.parameters(): p.requires_grad = False\n").notes,
              frozen("train.py:5"));
  EXPECT_THAT(OfProgram(front + "model.lm_head.requires_grad_(False)\n").notes,
              frozen("train.py:5"));
  EXPECT_THAT(OfProgram(front + "p.requires_grad = \"head\" in name\n").notes,
              frozen("train.py:5"));
  for (const char* other : {"p.requires_grad = True\n", "model.requires_grad_()\n",
                            "# p.requires_grad = False\n", "if p.requires_grad == False: pass\n"})
    EXPECT_THAT(OfProgram(front + other).notes, Not(frozen("train.py"))) << other;
  // The base of adapters is frozen as it is.
  EXPECT_THAT(
      OfProgram(front + "m.requires_grad_(False)\nm = get_peft_model(m, LoraConfig(r=8))\n").notes,
      Not(frozen("train.py")));
}

TEST(PythonEffects, AttentionIsThatOfTheModel) {
  const auto attention = [](const std::string& argument) {
    return Text(OfProgram(kArguments + ("m = AutoModelForCausalLM.from_pretrained(\"meta-llama/"
                                        "Llama-2-7b-hf\", " +
                                        argument + ")\n")),
                "flash_attention");
  };
  EXPECT_EQ(attention("attn_implementation=\"eager\""), "off");
  EXPECT_EQ(attention("attn_implementation=\"sdpa\""), "on");
  EXPECT_EQ(attention("use_flash_attention_2=True"), "on");
  EXPECT_EQ(attention("use_cache=False"), "");
  EXPECT_THAT(
      OfProgram(std::string(kArguments) +
                "m = AutoModel.from_pretrained(n, attn_implementation=opts.attn)\n")
          .notes,
      Contains(AllOf(HasSubstr("train.py:5"), HasSubstr("attn_implementation is computed"))));
}

// Of TRL before 0.13; the length was that of the model.
TEST(PythonEffects, TheTrainersOwnArgumentsAreRead) {
  const Imported read = OfProgram(std::string(kArguments) +
                                  "SFTTrainer(\"meta-llama/Llama-2-7b-hf\", args=args, "
                                  "max_seq_length=1024, packing=True).train()\n");
  EXPECT_EQ(Text(read, "seq_len"), "1024");
  EXPECT_EQ(read.model_name, "llama2-7b");
  EXPECT_EQ(Text(OfProgram("c = SFTConfig(per_device_train_batch_size=2, max_seq_length=512)\n"
                           "t = SFTTrainer(model=m, args=c, max_seq_length=2048)\n"),
                 "seq_len"),
            "2048");
  EXPECT_THAT(ProgramError(std::string(kArguments) +
                           "t = SFTTrainer(model=m, args=args, max_seq_length=opts.length)\n"),
              AllOf(HasSubstr("train.py:5"), HasSubstr("max_seq_length")));
}

TEST(PythonEffects, ArgumentsThatAreSetLaterReplaceThoseOfTheCall) {
  const std::string front = std::string("args.bf16 = False\n") + kArguments;
  const auto batch = [&](const std::string& more) {
    return Text(OfProgram(front + more, Flags({{"nodes", "1"}, {"gpus_per_node", "8"}})),
                "global_batch");
  };
  EXPECT_EQ(batch("other.gradient_accumulation_steps = 8\n"), "64");
  EXPECT_EQ(batch("args.gradient_accumulation_steps = 8\n"), "128");
  const Imported read = OfProgram(front +
                                  "args.per_device_train_batch_size = 8\n"
                                  "if a.b <= 3: args.fsdp = \"full_shard auto_wrap\"\n"
                                  "t = Trainer(model=m, args=args)\n"
                                  "t.args.max_seq_length = (\n    512)\n");
  EXPECT_EQ(Text(read, "micro_batch") + " " + Text(read, "zero") + " " + Text(read, "seq_len"),
            "8 3 512");
  EXPECT_EQ(Text(read, "precision"), "bf16");
  EXPECT_THAT(read.notes, Contains(AllOf(HasSubstr("train.py:7"), HasSubstr("`if a.b <= 3:`"))));
  EXPECT_THAT(ProgramError(front + "args.per_device_train_batch_size //= n\n"),
              AllOf(HasSubstr("train.py:6"), HasSubstr("per_device_train_batch_size")));
}

TEST(PythonArguments, DictionariesThatAreHandedOnAreRead) {
  const auto read = [](const std::string& before, const std::string& handed = "**kw") {
    return OfProgram(before + "a = TrainingArguments(\"o\", " + handed + ")\n");
  };
  const auto text = [](const Imported& of) {
    return Text(of, "micro_batch") + Text(of, "precision");
  };
  EXPECT_EQ(text(read("kw = dict(per_device_train_batch_size=4, bf16=True)\n")), "4bf16");
  EXPECT_EQ(text(read("def main():\n  kw = {\n    \"bf16\": True,  # and\n"
                      "    \"per_device_train_batch_size\": 2,\n  }\n")),
            "2bf16");
  EXPECT_EQ(text(read("", "**{\"per_device_train_batch_size\": 2}, fp16=True")), "2fp16");
  // What else is done to it is not followed.
  for (const char* changed :
       {"kw = options()\n", "kw = dict(bf16=True)\nkw[\"per_device_train_batch_size\"] = 4\n",
        "kw = {}\nkw.update(more)\n", "kw = {}\nkw = dict(bf16=True)\n", "kw = dict(**kw)\n",
        "kw = {**more}\n", "kw = dict(**more)\n"})
    EXPECT_THAT(ErrorOf([&] { read(changed); }),
                AllOf(HasSubstr("per_device_train_batch_size"), HasSubstr("may say it")))
        << changed;
  EXPECT_EQ(text(read("kw = options()\n", "**kw, per_device_train_batch_size=2, bf16=True")),
            "2bf16");
  EXPECT_EQ(
      Text(OfProgram(std::string(kArguments) + "kw = dict(r=16)\nc = LoraConfig(**kw)\n"), "lora"),
      "16");
  EXPECT_THAT(ErrorOf([&] { read("", "**"); }), HasSubstr("may say it"));
}

}  // namespace
}  // namespace orrery::exchange::styles
