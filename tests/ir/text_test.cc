// SPDX-License-Identifier: Apache-2.0
// The text form of a plan: exact round trip of random plans, the digest, and errors with places.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "model/base/diagnostics.h"
#include "model/plan/ir/plan.h"
#include "random_plan.h"
#include "tests/from_environment.h"

namespace orrery::ir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A hand-written plan that shows the form.
constexpr char kExample[] = R"(orrery-plan 1
title "two stages"
mesh pp=2 dp=4 tp=1
program_axis pp
micro_batches 8
alignment 256
frame_pool on
group dp = dp
group "pp and dp" = pp,dp
group emb = pp where pp in 0 1
streams compute send_act
param wte [50304,64] dim=0 axis=tp partial=dp tie=0 real_rows=50257 std=0.015
param ln.g [64] init=ones decay=off
program 0 {
  unit u0 n=3219520 replicated_from=3219456 wte[0,3219456] ln.g[3219456,64]
  ring gather slots=2
  buf W.u0 param bf16[3219520] life=step unit=u0
  buf Gs.u0 grad f32[804880] life=step unit=u0 shard=dp
  buf tok act i32[128]
  buf x act bf16[8192] life=micro_batch extra=1
  buf Wg gathered bf16[3219520] ring=gather ring_index=1 space=host
  view W.u0
  view wte.w = W.u0[0,3219456]
  view tok
  view x
  block F0 {
    compute tok = load() @dp batch=2 seq=64 what=labels ; input
    compute x = embed(tok, wte.w) rows=128 h=64 vl=50304 axis=tp yields=tp ; forward embedding
    send_act send(x) to pp +1 tag=7 ; pipeline
  }
  block B0 {
    compute x = all_reduce(x) @"pp and dp" when=last ; grad_reduce layer 3
  }
  schedule {
    F0[0]
    for i in 0..2 { B0[i] F0[1+i] }
    for i in 0..1 {
      for j in 0..1 { F0[4+2i+j] }
      B0[3+2i]
    }
    B0[7]:last
  }
}
program 1 {
  schedule {
  }
}
)";

TEST(PlanText, ExampleIsCanonical) {
  const Plan plan = ParsePlan(kExample, "example");
  EXPECT_EQ(ToText(plan), kExample);
  EXPECT_EQ(plan.title, "two stages");
  ASSERT_EQ(plan.programs.size(), 2u);
  const Program& program = plan.programs[0];
  EXPECT_EQ(program.blocks[0].ops[0].attrs.Int(Attr::kWhat), int(LoadWhat::kLabels));
  EXPECT_EQ(program.blocks[0].ops[1].attrs.Int(Attr::kAxis), 2);
  EXPECT_EQ(program.blocks[0].ops[2].peer, (Peer{0, 1}));
  EXPECT_EQ(program.blocks[1].ops[0].layer, 3);
  EXPECT_EQ(plan.groups[2].allowed, (std::vector<int>{0, 1}));
  const std::vector<Call> calls = Expand(program.schedule);
  ASSERT_EQ(calls.size(), 14u);
  EXPECT_EQ(calls[10], (Call{0, 6, 0}));
  EXPECT_EQ(calls[13], (Call{1, 7, kWhenLast}));
}

TEST(PlanText, CommentsBlankLinesAndSpacesDoNotMatter) {
  std::string text = kExample;
  text.insert(text.find("mesh"), "\n\n# a remark \" = {\n   ");
  text.insert(text.find("streams"), "\t\r\n");
  EXPECT_EQ(ParsePlan(text, "example"), ParsePlan(kExample, "example"));
}

TEST(PlanText, RandomPlansComeBackFieldByField) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const Plan plan = RandomPlan(seed);
    const std::string text = ToText(plan);
    Plan read;
    try {
      read = ParsePlan(text, "random");
    } catch (const InputError& error) {
      FAIL() << "seed " << seed << ": " << error.what();
    }
    ASSERT_EQ(read, plan) << "seed " << seed;
    ASSERT_EQ(ToText(read), text) << "seed " << seed;
  }
}

TEST(PlanDigest, CoversEverythingButTheTitle) {
  Plan plan = ParsePlan(kExample, "example");
  const std::string digest = Digest(plan);
  EXPECT_EQ(digest.size(), 32u);
  EXPECT_EQ(digest.find_first_not_of("0123456789abcdef"), std::string::npos);
  plan.title = "another title";
  EXPECT_EQ(Digest(plan), digest);
  plan.params[1].decay = true;
  EXPECT_NE(Digest(plan), digest);
  plan.params[1].decay = false;
  EXPECT_EQ(Digest(plan), digest);
  plan.programs[0].units[0].segments[1].offset = 0;
  EXPECT_NE(Digest(plan), digest);
}

// Pinned: the digest identifies plans in stored results, so it must not move between versions.
TEST(PlanDigest, IsStable) {
  EXPECT_EQ(Digest(ParsePlan(kExample, "example")), "d5e57c16f0d2a1d290b1ee06c0bbddff");
}

struct Mistake {
  const char* what;
  std::string old_text, new_text;
  int line, column;
  const char* message;
};

TEST(PlanText, MistakesAreReportedWithTheirPlace) {
  const std::vector<Mistake> mistakes = {
      {"version", "orrery-plan 1", "orrery-plan 2", 1, 13, "out of range"},
      {"missing line", "micro_batches 8\n", "", 5, 1, "expected 'micro_batches'"},
      {"zero axis", "dp=4", "dp=0", 3, 14, "out of range"},
      {"too many ranks", "dp=4", "dp=2000000000", 3, 11, "more than 2^31 ranks"},
      {"alignment", "alignment 256", "alignment 100", 6, 11, "power of two"},
      {"unknown axis", "group dp = dp", "group dp = dq", 8, 12, "no axis is called 'dq'"},
      {"unknown key", "std=0.015", "stf=0.015", 12, 69, "unknown key 'stf'"},
      {"key twice", "std=0.015", "tie=0", 12, 69, "given twice"},
      {"not finite", "std=0.015", "std=inf", 12, 73, "finite number"},
      {"class", "buf tok act", "buf tok axt", 19, 11, "no buffer class"},
      {"view too long", "wte.w = W.u0[0,3219456]", "wte.w = W.u0[5,3219516]", 23, 23,
       "out of range"},
      {"unknown op", "embed(tok", "embet(tok", 28, 17, "no op is called 'embet'"},
      {"unknown view", "(tok, wte.w)", "(tok, wte.v)", 28, 28, "no view is called 'wte.v'"},
      {"operands", "(tok, wte.w)", "(tok)", 28, 5, "embed has 1 inputs"},
      {"no group", " @\"pp and dp\"", "", 32, 5, "needs a group"},
      {"no peer", " to pp +1", "", 29, 5, "needs a peer"},
      {"unknown attribute", "vl=50304", "vk=50304", 28, 49, "unknown key 'vk'"},
      {"phase", "; pipeline", "; pipelin", 29, 39, "no phase"},
      {"loop variable", "[1+i]", "[1+j]", 36, 30, "no loop variable"},
      {"factor", "B0[3+2i]", "B0[3+i]", 39, 10, "another factor"},
      {"micro-batch", "[1+i]", "[9+i]", 34, 3, "micro-batches 0 to 11"},
      {"unknown block", "B0[7]", "B1[7]", 41, 5, "no block is called 'B1'"},
      {"stage order", "program 1", "program 0", 44, 1, "stage 0 out of order"},
      {"unterminated", "\"two stages\"", "\"two stages", 2, 7, "does not end on its line"},
      {"character", "tp=1", "tp\x01=1", 3, 18, "cannot have"},
  };
  for (const Mistake& mistake : mistakes) {
    std::string text = kExample;
    const std::size_t at = text.find(mistake.old_text);
    ASSERT_NE(at, std::string::npos) << mistake.what;
    text.replace(at, mistake.old_text.size(), mistake.new_text);
    try {
      ParsePlan(text, "p.plan");
      ADD_FAILURE() << mistake.what << " was accepted";
    } catch (const InputError& error) {
      const Diagnostic& found = error.diagnostics().at(0);
      EXPECT_EQ(found.where.line, mistake.line) << mistake.what << "\n" << error.what();
      EXPECT_EQ(found.where.column, mistake.column) << mistake.what << "\n" << error.what();
      EXPECT_THAT(found.message, HasSubstr(mistake.message)) << mistake.what;
      EXPECT_THAT(error.what(), HasSubstr("p.plan:")) << mistake.what;
    }
  }
}

TEST(PlanText, NearestNameIsSuggested) {
  std::string text = kExample;
  text.replace(text.find("(tok, wte.w)"), 12, "(tok, wte.v)");
  try {
    ParsePlan(text, "p.plan");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("wte.w"));
  }
}

TEST(PlanText, HugeSchedulesAreRefusedWithoutUnfolding) {
  std::string loops = "F0[0]", text = kExample;
  for (int depth = 20; depth-- > 0;) {
    const std::string variable =
        depth < 6 ? std::string(1, "ijklmn"[depth]) : "v" + std::to_string(depth);
    loops = "for " + variable + " in 0..1000 { " + loops + " }";
  }
  text.replace(text.find("    F0[0]\n"), 10, loops + "\n");
  try {
    ParsePlan(text, "p.plan");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("more than 4194304 calls"));
  }
}

// Anything but an InputError (a crash, a hang, another exception) fails the test.
bool Accepted(const std::string& text) {
  try {
    const Plan plan = ParsePlan(text, "mutated");
    EXPECT_EQ(ParsePlan(ToText(plan), "again"), plan);
    for (const Program& program : plan.programs) Expand(program.schedule);
    return true;
  } catch (const InputError& error) {
    EXPECT_GT(error.diagnostics().at(0).where.line, 0) << error.what();
    return false;
  }
}

TEST(PlanTextFuzz, MutatedTextsAreReadOrRefused) {
  std::mt19937 random(static_cast<uint32_t>(FromEnvironment("ORRERY_MUTATION_SEED", 3)));
  const auto rounds = static_cast<int>(FromEnvironment("ORRERY_MUTATIONS", 3000));
  const std::string alphabet = " \n=,()[]{};#\"%\\+-.:@0123456789abiEF\t\xff";
  const std::vector<std::string> words = {"program", "%0",  "%99999999999", "-1", "for i in 0..9 {",
                                          "}",       "{",   "1e999",        "\"", "9999999999999",
                                          "param",   "buf", "nan",          "=",  "for"};
  int accepted = 0;
  for (int round = 0; round < rounds; ++round) {
    std::string text = round % 2 == 0 ? kExample : ToText(RandomPlan(random() % 50));
    for (int edits = 1 + int(random() % 3); edits > 0 && !text.empty(); --edits) {
      const std::size_t at = random() % text.size();
      const std::size_t length = std::min<std::size_t>(random() % 12, text.size() - at);
      switch (random() % 5) {
        case 0:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, words[random() % words.size()]);
          break;
        case 3:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
          break;
        case 4:
          text.resize(random() % 20 == 0 ? at : text.size());
          break;
      }
    }
    accepted += Accepted(text);
  }
  EXPECT_GT(accepted, rounds / 30);  // else the mutations are too crude to get past the first lines
  EXPECT_LT(accepted, rounds - rounds / 30);
}

TEST(PlanTextFuzz, EveryPrefixIsReadOrRefused) {
  const std::string text = kExample;
  for (std::size_t length = 0; length + 1 < text.size(); ++length) {
    EXPECT_FALSE(Accepted(text.substr(0, length))) << length;
  }
}

TEST(PlanText, LargePlansAreWrittenAndReadInLinearTime) {
  const Plan plan = WidePlan(5000);
  const auto start = std::chrono::steady_clock::now();
  const std::string text = ToText(plan);
  const auto written = std::chrono::steady_clock::now();
  const Plan read = ParsePlan(text, "large");
  const auto parsed = std::chrono::steady_clock::now();
  EXPECT_EQ(read, plan);
  const std::chrono::duration<double, std::milli> write = written - start, parse = parsed - written;
  std::printf("5000 ops: %zu bytes, written in %.2f ms, parsed in %.2f ms\n", text.size(),
              write.count(), parse.count());
  EXPECT_LT(write.count(), 400);  // 20 times the target: only a quadratic look-up is this slow
  EXPECT_LT(parse.count(), 1500);
}

}  // namespace
}  // namespace orrery::ir
