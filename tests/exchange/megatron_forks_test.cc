// SPDX-License-Identifier: Apache-2.0
// Megatron-LM's dumps by the names of their values, its forks, and NeMo 1.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/plan/lower/balance.h"
#include "tests/exchange/styles.h"

namespace orrery::exchange::styles {
namespace {

// Lines "name value" as Megatron prints them.
std::string Dump(const std::vector<std::pair<const char*, const char*>>& arguments) {
  std::string text = "------------------------ arguments ------------------------\n";
  for (const auto& [name, value] : arguments) text += fmt::format("  {} .... {}\n", name, value);
  return text + "-------------------- end of arguments ---------------------\n";
}
std::vector<std::pair<const char*, const char*>> With(
    const std::vector<std::pair<const char*, const char*>>& more) {
  std::vector<std::pair<const char*, const char*>> all = {{"hidden_size", "1024"},
                                                          {"num_attention_heads", "16"},
                                                          {"num_layers", "24"},
                                                          {"seq_length", "1024"},
                                                          {"micro_batch_size", "2"},
                                                          {"global_batch_size", "64"},
                                                          {"bf16", "True"},
                                                          {"world_size", "8"},
                                                          {"max_position_embeddings", "1024"},
                                                          {"padded_vocab_size", "50304"}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
Imported OfDump(const std::vector<std::pair<const char*, const char*>>& more) {
  return Read({{"train.log", Dump(With(more))}});
}
Imported OfScript(const std::string& flags) { return Read({{"x.sh", kGpt + flags}}); }
std::string ErrorOfScript(const std::string& flags) { return Error({{"x.sh", kGpt + flags}}); }

// The job was predicted in bf16.
TEST(MegatronDumps, NamesOfValuesAreTakenForTheirFlags) {
  const Imported fp8 =
      OfDump({{"fp8", "hybrid"}, {"fp8_recipe", "delayed"}, {"fp8_param", "True"}});
  EXPECT_EQ(Text(fp8, "fp8"), "delayed");
  EXPECT_EQ(Text(fp8, "fp8_weights"), "on");
  EXPECT_EQ(Text(OfDump({{"fp4", "e2m1"}}), "fp8"), "nvfp4");
  EXPECT_DOUBLE_EQ(OfDump({{"layernorm_epsilon", "1e-06"}}).model->spec.norm_epsilon, 1e-6);
  EXPECT_DOUBLE_EQ(
      OfDump({{"position_embedding_type", "rope"}, {"rope_theta", "500000"}}).model->spec.rope_base,
      500000);
  EXPECT_EQ(
      OfDump({{"position_embedding_type", "PositionEmbeddingType.alibi"}}).model->spec.positions,
      Positions::kAlibi);
  EXPECT_THAT(OfDump({{"nccl_ub", "True"}}).notes,
              Contains(HasSubstr("not modelled: buffers registered with NCCL")));
}

// A dump names all arguments of its release: which ones are there tells what it had.
TEST(MegatronDumps, ThatAttentionIsNotFusedIsRead) {
  const auto attention = [](const std::vector<std::pair<const char*, const char*>>& more) {
    return Text(OfDump(more), "flash_attention");
  };
  const auto local = std::pair{"transformer_impl", "local"};
  const auto engine = std::pair{"transformer_impl", "transformer_engine"};
  EXPECT_EQ(attention({local, {"use_flash_attn", "False"}}), "off");
  EXPECT_EQ(attention({local, {"use_flash_attn", "True"}}), "on");
  EXPECT_EQ(attention({local, {"attention_backend", "AttnBackend.auto"}}), "off");
  EXPECT_EQ(attention({engine, {"attention_backend", "AttnBackend.auto"}}), "");
  EXPECT_EQ(attention({engine, {"use_flash_attn", "False"}}), "");
  EXPECT_EQ(attention({engine, {"attention_backend", "AttnBackend.unfused"}}), "off");
  EXPECT_EQ(attention({{"checkpoint_activations", "False"}}), "off");  // of 2021
  EXPECT_EQ(Text(OfScript("--transformer-impl local"), "flash_attention"), "off");
  EXPECT_EQ(Text(OfScript("--transformer-impl local"), "dummy_weight_gradients"), "off");
  EXPECT_EQ(Text(OfScript(""), "flash_attention"), "");
}

TEST(MegatronDumps, ArgumentsOfLaterReleasesTellTheRelease) {
  EXPECT_EQ(OfDump({{"overlap_grad_reduce", "False"}}).framework, "megatron@2024");
  EXPECT_EQ(OfDump({{"attention_backend", "AttnBackend.unfused"}}).framework, "megatron@2024");
  EXPECT_EQ(OfDump({{"checkpoint_activations", "False"}}).framework, "megatron");
  EXPECT_EQ(OfScript("--overlap-grad-reduce").framework, "megatron@2024");
  EXPECT_EQ(OfScript("").framework, "megatron");
}

TEST(MegatronDumps, ThoseOfGptNeoxAreRefusedByName) {
  EXPECT_THAT(Error({{"n.log", Dump({{"num_layers", "24.......updated"}})}}),
              AllOf(HasSubstr("n.log:2"), HasSubstr("arguments of GPT-NeoX")));
}

// False of these is a flag, and was dropped.
TEST(MegatronDumps, WhatIsOffByItsFlagIsOff) {
  EXPECT_EQ(OfDump({{"bert_binary_head", "False"}}).model->spec.family, Family::kEncoder);
  EXPECT_EQ(OfDump({{"bert_binary_head", "True"}}).model->spec.family, Family::kDecoder);
  EXPECT_EQ(
      Text(OfDump({{"use_torch_fsdp2", "True"}, {"torch_fsdp2_reshard_after_forward", "False"}}),
           "zero"),
      "2");
  EXPECT_EQ(
      Text(OfDump({{"use_torch_fsdp2", "True"}, {"torch_fsdp2_reshard_after_forward", "True"}}),
           "zero"),
      "3");
  const auto notes = [](const std::vector<std::pair<const char*, const char*>>& more) {
    return OfDump(more).notes;
  };
  const auto named = Contains(HasSubstr("not modelled"));
  EXPECT_THAT(notes({{"gradient_accumulation_fusion", "False"}}), named);
  EXPECT_THAT(notes({{"bias_dropout_fusion", "False"}}), named);
  EXPECT_THAT(notes({{"bias_gelu_fusion", "False"}}), named);
  EXPECT_THAT(notes({{"swiglu", "True"}, {"bias_swiglu_fusion", "False"}}), named);
  // validate_args turns these off by itself.
  EXPECT_THAT(notes({{"apply_rope_fusion", "False"},
                     {"bias_swiglu_fusion", "False"},
                     {"overlap_p2p_comm", "False"},
                     {"async_tensor_model_parallel_allreduce", "False"}}),
              Not(named));
  EXPECT_THAT(notes({{"add_bias_linear", "False"}, {"bias_gelu_fusion", "False"}}), Not(named));
}

// Its default is a list of one expert: each of its dumps was refused.
TEST(MegatronDeepSpeed, OneExpertIsADenseLayer) {
  const Imported read = OfDump({{"deepspeed", "True"},
                                {"num_experts", "[1]"},
                                {"zero_stage", "1.0"},
                                {"num_key_value_heads", "16"},
                                {"gradient_accumulation_fusion", "False"}});
  EXPECT_EQ(read.framework, "megatron-deepspeed");
  EXPECT_EQ(Text(read, "zero"), "1");
  EXPECT_EQ(read.model->spec.kv_heads, 16);
  EXPECT_THAT(read.notes, Not(Contains(HasSubstr("not modelled"))));
  EXPECT_EQ(OfScript("--deepspeed --num-experts 1").framework, "megatron-deepspeed");
  EXPECT_THAT(ErrorOfScript("--deepspeed --num-experts 1 64"), HasSubstr("mixtures of experts"));
  // Megatron-LM routes to one, too.
  EXPECT_THAT(ErrorOfScript("--num-experts 1"), HasSubstr("mixtures of experts"));
  // Without DeepSpeed its stage is a default.
  EXPECT_EQ(Text(OfDump({{"deepspeed", "False"}, {"zero_stage", "1.0"}}), "zero"), "0");
}

TEST(MegatronDeepSpeed, ItsOwnArgumentsAreRead) {
  const std::string on = "--deepspeed --zero-stage 1 ";
  const Imported groups = OfScript(on +
                                   "--num-key-value-heads 4 --normalization rmsnorm "
                                   "--rotary-position-embeddings-theta 5000 "
                                   "--use-rotary-position-embeddings");
  EXPECT_EQ(groups.model->spec.kv_heads, 4);
  EXPECT_EQ(groups.model->spec.norm, Norm::kRmsNorm);
  EXPECT_DOUBLE_EQ(groups.model->spec.rope_base, 5000);
  EXPECT_EQ(
      Text(OfScript(on + "--pipeline-model-parallel-size 2 --enable-zbh1-pipeline"), "schedule"),
      "zero-bubble");
  EXPECT_EQ(Text(OfScript(on + "--cpu-optimizer"), "offload"), "optimizer");
  EXPECT_THAT(ErrorOfScript("--normalization L2Norm"), HasSubstr("is not modelled"));
  // No kernel of its profile fits the chip unless the file names one.
  for (const char* flash : {"--use-flash-attn-v2", "--use-flash-attn"}) {
    const Imported read = OfScript(on + flash);
    EXPECT_EQ(Text(read, "attention_kernel"), "fa2") << flash;
    EXPECT_EQ(Text(read, "flash_attention"), "on") << flash;
  }
  EXPECT_THAT(OfScript(on + "--use-flash-attn").notes,
              Contains(HasSubstr("predicted as flash attention 2")));
  EXPECT_EQ(Text(OfScript("--use-flash-attn"), "attention_kernel"), "");
  const Resolved job =
      Predict({{"fa2.sh", "deepspeed --num_gpus 8 --num_nodes 1 " + std::string(kGpt) + on +
                              "--bf16 --use-flash-attn-v2"}},
              {"--topology", "aws-p5"});
  EXPECT_TRUE(job.strategy.flash_attention);
}

TEST(MegatronBigScience, ItsOwnArgumentsAreRead) {
  const Imported rows = OfScript("--pad-vocab-size-to 250880");
  EXPECT_EQ(rows.model->spec.vocab, 250880);
  EXPECT_THAT(rows.notes, Not(Contains(HasSubstr("vocabulary of 50257 assumed"))));
  const ModelSpec swiglu = OfScript("--glu-activation swiglu").model->spec;
  EXPECT_EQ(swiglu.activation, Activation::kSwiglu);
  EXPECT_TRUE(swiglu.gated);
  EXPECT_EQ(swiglu.ffn, 4 * 768);  // Megatron-LM's --swiglu takes two thirds
  EXPECT_TRUE(OfScript("--glu-activation geglu").model->spec.gated);
  EXPECT_THAT(ErrorOfScript("--glu-activation liglu"), HasSubstr("'liglu' is not modelled"));
}

// BLOOM's stages: the ends hold a layer less. They were taken for equal ones.
TEST(MegatronBigScience, TheTokenTableCountsAsALayerOfStages) {
  const std::string on = "--deepspeed --zero-stage 0 --pp-partition-method ";
  const auto ends = [&](const std::string& rest) {
    const Imported read = OfScript(on + rest);
    return Text(read, "count_embedding") + Text(read, "count_head");
  };
  EXPECT_EQ(ends("'type:transformer|embedding' --pipeline-model-parallel-size 4"), "onon");
  EXPECT_EQ(ends("'type:transformer|embedding' --pipeline-model-parallel-size 2"), "");
  EXPECT_EQ(ends("type:transformer --pipeline-model-parallel-size 4"), "");
  EXPECT_THAT(OfScript(on + "parameters --pipeline-model-parallel-size 4").notes,
              Contains(HasSubstr("not modelled: stages cut by weights of modules")));
  const Resolved job =
      Predict({{"bloom.sh",
                "deepspeed --num_gpus 8 --num_nodes 1 pretrain_gpt.py --num-layers 14 "
                "--hidden-size 768 --num-attention-heads 12 --seq-length 1024 "
                "--max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 8 " +
                    on + "'type:transformer|embedding' --pipeline-model-parallel-size 4"}},
              {"--topology", "dgx-a100-80"});
  std::vector<int64_t> layers;
  for (const LayerRange& range : BalanceLayers(14, job.strategy)) layers.push_back(range.count);
  EXPECT_THAT(layers, testing::ElementsAre(3, 4, 4, 3));
}

// A script and its log were told apart by their spelling.
TEST(Megatron, AScriptAndItsLogAddUp) {
  const std::string script = std::string(kGpt) +
                             "--bf16 --clip-grad 1.0 --attention-dropout 0 --hidden-dropout 0 --lr "
                             "3e-4 --fp8-format hybrid --cp-comm-type p2p --window-size 511,0 "
                             "--data-path $DATA --optimizer adam";
  const std::vector<std::pair<const char*, const char*>> log = {{"num_layers", "12"},
                                                                {"hidden_size", "768"},
                                                                {"num_attention_heads", "12"},
                                                                {"seq_length", "1024"},
                                                                {"micro_batch_size", "4"},
                                                                {"global_batch_size", "128"},
                                                                {"clip_grad", "1"},
                                                                {"attention_dropout", "0.0"},
                                                                {"hidden_dropout", "0.0"},
                                                                {"lr", "0.0003"},
                                                                {"fp8", "hybrid"},
                                                                {"cp_comm_type", "['p2p']"},
                                                                {"window_size", "(511, 0)"},
                                                                {"data_path", "['/d/a']"},
                                                                {"optimizer", "adam"},
                                                                {"bf16", "True"},
                                                                {"world_size", "8"}};
  const Imported read = Read({{"x.sh", script}, {"x.log", Dump(log)}});
  EXPECT_EQ(Text(read, "fp8"), "delayed");
  EXPECT_EQ(Text(read, "dropout"), "0");
  auto other = log;
  other.emplace_back("tensor_model_parallel_size", "2");
  EXPECT_THAT(Error({{"x.sh", script + " --tensor-model-parallel-size 4"}, {"x.log", Dump(other)}}),
              HasSubstr("tensor-model-parallel-size is '2' here and '4' in x.sh:1"));
}

TEST(Megatron, PartsThatAreNotTrainedAndFilesOfArgumentsAreRefused) {
  EXPECT_THAT(ErrorOfScript("--freeze-LM"), HasSubstr("freeze-LM: a part of the model"));
  EXPECT_THAT(ErrorOfScript("--yaml-cfg gpt.yaml"), HasSubstr("stand in gpt.yaml"));
  EXPECT_THAT(ErrorOfScript("--skip-train"), HasSubstr("evaluates, and trains nothing"));
  EXPECT_THAT(ErrorOfScript("--bitfit"), HasSubstr("bitfit: a part of the model"));
  for (const char* flags :
       {"--step-batch-size-schedule 0:16", "--use-checkpoint-args", "--fsdp-double-buffer",
        "--partition-activations", "--checkpoint-in-cpu", "--use-bnb-optimizer",
        "--no-masked-softmax-fusion", "--delay-wgrad-compute", "--embed-layernorm"})
    EXPECT_THAT(OfScript(flags).notes, Contains(HasSubstr("x.sh:1: not modelled: "))) << flags;
  EXPECT_EQ(OfScript("--no-position-embedding").model->spec.positions, Positions::kNone);
  EXPECT_THAT(ErrorOfScript("--kd"), HasSubstr("another model's answers"));
}

// They were predicted as GPT.
TEST(Programs, SayTheFamilyOfTheModel) {
  const std::string sizes =
      " --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 512 "
      "--max-position-embeddings 512 --micro-batch-size 4 --global-batch-size 32 ";
  const ModelSpec bert = Read({{"x.sh", "python ../pretrain_bert.py" + sizes}}).model->spec;
  EXPECT_EQ(bert.family, Family::kEncoder);
  EXPECT_TRUE(bert.pooler);
  EXPECT_FALSE(
      Read({{"x.sh", "python pretrain_bert.py --bert-no-binary-head" + sizes}}).model->spec.pooler);
  const ModelSpec t5 = Read({{"x.sh", "python pretrain_t5.py" + sizes}}).model->spec;
  EXPECT_EQ(t5.family, Family::kEncoderDecoder);
  EXPECT_EQ(t5.decoder_layers, 12);
  EXPECT_EQ(Read({{"x.sh", "python pretrain_gpt.py" + sizes}}).model->spec.family,
            Family::kDecoder);
  EXPECT_EQ(OfDump({{"tokenizer_type", "BertWordPieceLowerCase"}}).model->spec.family,
            Family::kEncoder);
  EXPECT_THAT(Read({{"x.sh", "python pretrain_bert.py" + sizes}}).notes,
              Not(Contains(HasSubstr("PROGRAM"))));
}

// They were predicted as training.
TEST(Programs, ThatTrainNothingAreRefusedByName) {
  const std::string sizes =
      " --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 "
      "--max-position-embeddings 1024 --micro-batch-size 4\n";
  for (const char* program :
       {"tools/run_text_generation_server.py", "../tasks/main.py --task LAMBADA",
        "tasks/eval_harness/evaluate.py", "examples/inference/gpt/gpt_dynamic_inference.py",
        "pretrain_vision_classify.py", "/opt/NeMo/examples/nlp/megatron_gpt_eval.py"})
    EXPECT_THAT(Error({{"x.sh", "torchrun --nproc_per_node 8 " + std::string(program) + sizes}}),
                AllOf(HasSubstr("x.sh:1"), HasSubstr(".py ")))
        << program;
  // One that trains next to it is read.
  const Imported read = Read({{"x.sh",
                               "python tools/preprocess_data.py --input a --json-keys b"
                               " --workers 8 --append-eod\n" +
                                   std::string(kGpt) + "--bf16\n"}});
  EXPECT_EQ(Text(read, "micro_batch"), "4");
}

// Its keys were taken for those of Megatron-Bridge.
TEST(Nemo, OverridesOfItsFirstReleaseAreMegatronsArguments) {
  const Imported read = Read({{"n.sh", R"sh(
python /opt/NeMo/examples/nlp/language_modeling/megatron_gpt_pretraining.py --config-name=x \
  trainer.num_nodes=4 trainer.devices=8 trainer.precision=bf16-mixed \
  model.micro_batch_size=1 model.global_batch_size=256 model.tensor_model_parallel_size=2 \
  model.virtual_pipeline_model_parallel_size=null model.encoder_seq_length=4096 \
  model.sequence_parallel=True model.num_layers=32 model.hidden_size=4096 \
  model.num_attention_heads=32 model.num_query_groups=8 model.ffn_hidden_size=14336 \
  model.activation=fast-swiglu model.normalization=rmsnorm model.bias=False \
  model.share_embeddings_and_output_weights=False model.position_embedding_type=rope \
  model.optim.name=distributed_fused_adam model.activations_checkpoint_granularity=full \
  model.activations_checkpoint_method=uniform model.activations_checkpoint_num_layers=1 \
  ++model.fp8=true ++model.fp8_hybrid=true exp_manager.create_wandb_logger=False
)sh"}});
  EXPECT_EQ(read.framework, "megatron");
  for (const auto& [field, text] : {std::pair{"nodes", "4"},
                                    {"gpus_per_node", "8"},
                                    {"tp", "2"},
                                    {"micro_batch", "1"},
                                    {"global_batch", "256"},
                                    {"seq_len", "4096"},
                                    {"sequence_parallel", "on"},
                                    {"precision", "bf16"},
                                    {"zero", "1"},
                                    {"recompute", "full"},
                                    {"fp8", "delayed"}})
    EXPECT_EQ(Text(read, field), text) << field;
  ASSERT_TRUE(read.model);
  EXPECT_EQ(read.model->spec.kv_heads, 8);
  EXPECT_FALSE(read.model->spec.linear_bias);
  EXPECT_FALSE(read.model->spec.tied_embeddings);
  EXPECT_THAT(read.notes, Contains(HasSubstr("own configuration")));
  EXPECT_THAT(Error({{"n.sh",
                      "python megatron_gpt_finetuning.py model.micro_batch_size=1 "
                      "model.peft.peft_scheme=lora"}}),
              HasSubstr("adapters of NeMo 1"));
}

TEST(Bridge, TruthsAreThoseOfPythonToo) {
  const Imported read = Read({{"b.sh",
                               "python run.py recipe=llama3_8b_pretrain_config "
                               "model.tensor_model_parallel_size=2 model.sequence_parallel=True "
                               "train.micro_batch_size=1 train.global_batch_size=8 "
                               "ddp.overlap_grad_reduce=False"}});
  EXPECT_EQ(Text(read, "sequence_parallel"), "on");
  EXPECT_EQ(Text(read, "reduce_in_backward"), "off");
}

}  // namespace
}  // namespace orrery::exchange::styles
