// SPDX-License-Identifier: Apache-2.0
// Export and import are inverse: random legal layouts come back the same, or the export says what it could not write.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "model/plan/lower/lower.h"
#include "tests/exchange/exported.h"
#include "tests/from_environment.h"

namespace orrery::exchange {
namespace {

constexpr int kLayouts = 120;  // of all targets together; exchange_round_trip_test_full: 500

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  std::string Of(const std::vector<std::string>& words) { return words[random_() % words.size()]; }
  bool Chance(int of) { return random_() % static_cast<uint64_t>(of) == 0; }

  // Flags of a job and a layout; many are illegal.
  std::vector<std::string> Words(const std::string& framework, unsigned target) {
    std::vector<std::string> words = {"--model",
                                      Of({"llama3-8b", "gpt3-175b", "gpt2-xl", "llama2-70b",
                                          "bert-large", "llama2-13b", "llama3-8b"}),
                                      "--topology",
                                      Of({"dgx-h100", "aws-p4d"}),
                                      "--nodes",
                                      Of({"1", "2", "4", "8"}),
                                      "--framework",
                                      framework};
    const auto add = [&](const char* flag, const std::vector<std::string>& values) {
      words.insert(words.end(), {flag, Of(values)});
    };
    add("--global-batch", {"64", "128", "256", "512"});
    add("--seq-len", {"128", "512", "1024"});
    add("--precision", {"bf16", "bf16", "fp16", "fp32", "tf32"});
    add("--optimizer", {"adamw", "adamw", "adam", "sgd", "lamb", "adam8bit", "muon"});
    add("--dropout", {"0", "0.1", "0.1/0", "0/0.2"});
    // Degrees that the target has; that it refuses others is another test.
    const std::string tp = (target & kTorch) != 0 ? "1" : Of({"1", "1", "2", "4", "8"});
    const bool stages = (target & (kMegatron | kBridge | kTitans)) != 0;
    const std::string pp = stages ? Of({"1", "1", "2", "4", "8"}) : "1";
    words.insert(words.end(), {"--tp", tp, "--pp", pp});
    add("--zero", {"0", "1", "2", "3"});
    add("--micro-batch", {"1", "2", "4", "8"});
    add("--recompute", {"none", "none", "selective", "full", "layernorm+mlp", "full:3", "full/2",
                        (target & kTitans) != 0 ? "op" : "mlp"});
    if (tp != "1") add("--sequence-parallel", {"on", "off"});
    if (Chance(3)) add("--dp-outer", {"2", "4"});
    if (pp != "1" && Chance(2)) {
      add("--vpp", {"2", "3", "4"});
    } else if (pp != "1" && Chance(3)) {
      add("--schedule", {"gpipe", "1f1b", "zero-bubble", "zero-bubble-v"});
    }
    if ((target & kTorch) == 0 && Chance(4)) {
      add("--cp", {"2", "4"});
      if (Chance(2)) add("--cp-method", {"allgather", "ring", "ulysses"});
    }
    if ((target & (kMegatron | kBridge)) != 0 && Chance(5))
      add("--fp8", {"delayed", "current", "blockwise"});
    if (words.back() == "delayed" || words.back() == "current" || words.back() == "blockwise") {
      const auto held = adapters_() % 3;
      if (held > 0) words.insert(words.end(), {"--fp8-weights", held == 1 ? "on" : "off"});
    }
    if ((target & (kMegatron | kBridge | kDeepSpeed | kTitans)) != 0 && Chance(4))
      add("--offload", {"optimizer", "optimizer:0.25", "activations", "optimizer+weights"});
    if (Chance(3)) add("--attention", {"flash", "standard"});
    if (Chance(3))
      add("--fact", {"overlap_param_gather=off", "reduce_in_backward=off", "scatter_gather=off",
                     "scatter_gather=on", "tp_async=on", "recompute_unread=on", "prefetch=2",
                     "bucket_layers=2", "overlap_grad_reduce=off", "reduce_once=on"});
    // Facts of the target's own release, whose defaults come back with it.
    const bool own = framework == InfoOf(static_cast<Target>(target)).framework;
    const bool stated = std::ranges::find(words, "--fact") != words.end();
    if (own && !stated && facts_() % 2 == 0) {
      static const std::vector<std::string> kFacts = {
          "attention=fa2",   "attention=cudnn", "attention=triton",   "compile=on",
          "compile=off",     "compile_loss=on", "padded_vocab=off",   "padded_vocab=on",
          "autocast=on",     "fused_norm=off",  "sequence_copies=on", "tp_overlap=on",
          "gathers_kept=off"};
      words.insert(words.end(), {"--fact", kFacts[facts_() % kFacts.size()]});
    }
    if ((target & kBridge) != 0 && words[1] != "bert-large") AddAdapters(&words);
    return words;
  }

 private:
  void AddAdapters(std::vector<std::string>* words) {
    switch (adapters_() % 6) {
      case 0:
        words->insert(words->end(), {"--lora-rank", "8"});
        break;
      case 1:
        words->insert(words->end(), {"--lora-rank", "16", "--lora-alpha", "32.5", "--lora-targets",
                                     "linear_qkv,linear_proj"});
        break;
      default:
        break;
    }
  }

  std::mt19937_64 random_;
  std::mt19937_64 adapters_{15}, facts_{16};  // leave the other draws as they are
};

// nullopt: no legal layout.
std::optional<Resolved> Legal(const std::vector<std::string>& words) {
  try {
    Resolved resolved = Resolve(words);
    const Strategy& s = resolved.strategy;
    // Shards of one rank, as the command line refuses them.
    if ((s.dp_outer > 1 && s.dp == 1) || (s.zero > 0 && s.shards() == 1)) return std::nullopt;
    if (CheckStrategy(resolved.job.request.model, resolved.job.request.work, s))
      return std::nullopt;
    return resolved;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word + " ";
  return text;
}

const Field& FieldOf(const std::string& name) {
  return *std::ranges::find_if(Fields(), [&](const Field& field) { return name == field.name; });
}

// What differs after the way back without having been said; "": nothing.
std::string Difference(const Case& before, const Case& after, const Bundle& bundle) {
  std::string text;
  for (const Field& field : Fields()) {
    const auto report = std::ranges::find(bundle.settings.fields, field.name, &FieldReport::field);
    if (Differs(report->status) || report->status == Status::kOwn) continue;
    // What means nothing without a field that the target cannot be told.
    const auto untold = [&](const char* name) {
      return Differs(std::ranges::find(bundle.settings.fields, name, &FieldReport::field)->status);
    };
    if (field.name == std::string("attention_kernel") && untold("flash_attention")) continue;
    if (field.name == std::string("fused_norm") && untold("compile")) continue;
    // Where what comes back shards nothing, it says nothing on sharded gradients.
    if (field.name == std::string("reduce_once") && field.text(after).empty()) continue;
    // Weights come back to the GPU where the target cannot move them, and those may be held in 8 bits.
    if (field.name == std::string("fp8_weights") && field.text(before).empty() && untold("offload"))
      continue;
    // Where states come back to the GPU, nothing is said on the way of their gradients.
    if (field.name == std::string("gradients_on_host") && field.text(after).empty() &&
        untold("offload"))
      continue;
    // One rank has nothing to share out, but Megatron asserts shards of states on the CPU.
    if (field.name == std::string("gradients_on_host") && field.text(before).empty() &&
        FieldOf("zero").text(before).empty())
      continue;
    if (field.text(before) != field.text(after))
      text += fmt::format("{}: {} became {}; ", field.name, field.text(before), field.text(after));
  }
  return text;
}

TEST(RoundTrip, RandomLegalLayoutsComeBackOrTheExportSaysWhy) {
  const uint64_t seed = FromEnvironment("ORRERY_MUTATION_SEED", 16);
  const int wanted = static_cast<int>(FromEnvironment("ORRERY_ROUND_TRIPS", kLayouts));
  Draw draw(seed);
  std::map<std::string, int> whole, all;
  int tried = 0, layouts = 0;
  while (layouts < wanted) {
    ASSERT_LT(++tried, 400 * wanted) << "hardly any layout is legal";
    const TargetInfo& target = Targets()[static_cast<std::size_t>(layouts) % Targets().size()];
    if (target.target == kTitanToml && !WithoutToml().empty()) {
      ++layouts;
      continue;
    }
    const std::string framework =
        draw.Chance(2) ? std::string(target.framework) : std::string("orrery");
    const std::vector<std::string> words = draw.Words(framework, target.target);
    const auto before = Legal(words);
    if (!before) continue;
    const Bundle bundle = MakeBundle(CaseOf(*before), target.target);
    ASSERT_EQ(bundle.Refusal(), "");
    ++layouts;
    std::vector<std::string> back = {"--framework", framework, "--topology",
                                     words[3],      "--model", words[1]};
    for (const std::string& path : Write(FilesOf(bundle)))
      if (!path.ends_with("run_orrery.py")) back.insert(back.end(), {"--from", path});
    // Fields that the target cannot be told have to come from the user.
    for (const FieldReport& field : bundle.settings.fields) {
      for (const char* name : {"seq_len", "dp_outer", "zero", "sequence_parallel", "schedule",
                               "precision", "recompute"}) {
        if (field.field == name && Differs(field.status))
          back.insert(back.end(), {FieldOf(name).flag, field.value});
        // What means nothing without it.
        if (field.field == name && field.field == "recompute" && Differs(field.status))
          back.insert(back.end(),
                      {"--fact", fmt::format("recompute_unread={}",
                                             before->strategy.recompute_unread ? "on" : "off")});
      }
    }
    SCOPED_TRACE(fmt::format("seed {}, {}: {}", seed, target.name, Joined(words)));
    try {
      const Resolved after = Resolve(back);
      EXPECT_EQ(Difference(bundle.layout, CaseOf(after), bundle), "") << Joined(back);
    } catch (const InputError& error) {
      ADD_FAILURE() << error.what() << Joined(back);
    }
    ++all[target.name];
    whole[target.name] += bundle.Missing().empty() ? 1 : 0;
  }
  fmt::print("{} layouts were drawn, {} legal\n", tried, layouts);
  for (const auto& [name, count] : all)
    fmt::print("{}: {} layouts, {} of them expressed in full\n", name, count, whole[name]);
}

}  // namespace
}  // namespace orrery::exchange
