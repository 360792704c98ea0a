// SPDX-License-Identifier: Apache-2.0
// Property: whatever bytes a reader gets, it ends with a value or with diagnostics, never a crash.
//
// Seeded mutations of small documents: truncation, bit flips, splices of two documents, runs of one
// character, shuffled lines, random bytes. ORRERY_MUTATIONS sets the number of cases per reader,
// ORRERY_MUTATION_SEED the seed; a crash is reproduced from the case number on stderr with
// ORRERY_MUTATION_ONLY.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "model/base/csv.h"
#include "model/base/node.h"
#include "tests/from_environment.h"

namespace orrery {
namespace {

const std::vector<std::string> kYaml = {
    "# a cluster\nname: dgx\nnodes: 16\ngpu: {memory: 80GiB, peak: \"312TFLOP/s\"}\n"
    "links:\n  - from: gpu0\n    to: nic0\n    bandwidth: 25GB/s\n  - {from: 'a', to: b}\n",
    "--- # one\na: &x [1, 2, -3.5e-7, true, ~, null]\nb: >-\n  folded\n  text\nc: |\n  kept\n   "
    "text\n? d\n"
    ": - e\n  - - f\n    - g: h\n...\n",
    "a:\n- b: {c: [d, {e: f}], g: \"h\\n\\u00e9\\x41\\\n  i\"}\n- *x\n- !!str 12\n- 'it''s'\n%TAG "
    "! x\n",
};
const std::vector<std::string> kJson = {
    "{\n\t\"model_type\": \"gpt2\",\n\t\"n_embd\": 1600, \"n_head\":25,\n\t\"eps\": 1e-05,\n"
    "\t\"tied\": true, \"x\": null,\n\t\"a\": [1, [2, {}], {\"b\": \"\\u00e9\\\"\\/\"}]\n}\n",
    "[{\"hidden_size\":4096,\"layers\":[]},[[[[\"deep\"]]]],false,-0.5E+3]",
};
const std::vector<std::string> kCsv = {
    "case,nodes,time_s,note\r\na,1,2.5,\"x, \"\"y\"\"\"\r\nb,2,,\"two\nlines\"\r\n",
    "case,nodes,time_s\na,1,1e-3\nb,-2,3\n\n",
};

using Random = std::mt19937_64;

std::size_t Below(Random& random, std::size_t bound) { return bound == 0 ? 0 : random() % bound; }

const std::string& Pick(Random& random, const std::vector<std::string>& seeds) {
  return seeds[Below(random, seeds.size())];
}

void FlipBits(Random& random, std::string* text) {
  for (std::size_t n = 1 + Below(random, 4); n > 0 && !text->empty(); --n) {
    (*text)[Below(random, text->size())] ^= static_cast<char>(1u << Below(random, 8));
  }
}

void InsertRun(Random& random, std::string* text) {
  static constexpr std::array<const char*, 28> kTokens = {
      "[",  "]", "{",  "}", ",", ":", ": ", "- ", "? ", "\"", "'",     "|",     ">",  "&a ",
      "*a", "!", "!!", "#", "%", "@", "`",  "\t", "\n", "\r", "---\n", "...\n", "  ", "\\"};
  std::string run;
  const char* token = kTokens[Below(random, kTokens.size())];
  for (std::size_t n = 1 + Below(random, Below(random, 8) == 0 ? 300 : 3); n > 0; --n) run += token;
  text->insert(Below(random, text->size() + 1), run);
}

void RandomBytes(Random& random, std::string* text) {
  std::string bytes(Below(random, 24), ' ');
  for (char& c : bytes) c = static_cast<char>(random());
  text->insert(Below(random, text->size() + 1), bytes);
}

void RemovePart(Random& random, std::string* text) {
  const std::size_t start = Below(random, text->size() + 1);
  text->erase(start, Below(random, 12));
}

std::string Mutated(Random& random, const std::vector<std::string>& seeds) {
  std::string text = Pick(random, seeds);
  for (std::size_t rounds = 1 + Below(random, 5); rounds > 0; --rounds) {
    const std::string& other = Pick(random, seeds);
    switch (Below(random, 7)) {
      case 0:
        text.resize(Below(random, text.size() + 1));
        break;
      case 1:
        FlipBits(random, &text);
        break;
      case 2:
        text = text.substr(0, Below(random, text.size() + 1)) +
               other.substr(Below(random, other.size()));
        break;
      case 3:
        InsertRun(random, &text);
        break;
      case 4:
        RandomBytes(random, &text);
        break;
      case 5:
        RemovePart(random, &text);
        break;
      default:
        text.insert(Below(random, text.size() + 1), other.substr(0, Below(random, 20)));
        break;
    }
  }
  return text;
}

// Asks every question that a Node answers, over the whole tree.
void ReadEverything(const Node& node) {
  for (const std::string& key : node.Keys()) {
    node.String(key, "");
    node.Integer(key, 0, 100, 1);
    node.Number(key, 0, 1, 0.5);
    node.Bool(key, false);
    node.ReadBytes(key);
    node.ReadBytesPerSecond(key);
    if (const std::optional<Node> child = node.Find(key)) ReadEverything(*child);
  }
  if (node.IsSequence()) {
    for (const Node& element : node.Elements()) ReadEverything(element);
  }
  node.AsString();
  node.RejectUnknownKeys();
}

// Runs `read` on every case; it returns whether the input was taken without complaint.
template <class Read>
void ForEachMutation(const std::vector<std::string>& seeds, std::size_t count, Read read) {
  const std::size_t cases = FromEnvironment("ORRERY_MUTATIONS", count);
  const std::size_t seed = FromEnvironment("ORRERY_MUTATION_SEED", 20240511);
  const std::size_t only = FromEnvironment("ORRERY_MUTATION_ONLY", cases);
  std::size_t taken = 0;
  for (std::size_t i = only < cases ? only : 0; i < cases; ++i) {
    Random random(seed * 1000003 + i);
    auto source = std::make_shared<Source>(Source{"mutated", Mutated(random, seeds)});
    if (only < cases) std::fprintf(stderr, "%s\n", source->text.c_str());
    Diagnostics diagnostics;
    SCOPED_TRACE(i);
    const bool ok = read(source, &diagnostics);
    EXPECT_EQ(ok, diagnostics.ok());
    taken += ok;
    if (only < cases) return;
    try {
      diagnostics.ThrowIfAny();
    } catch (const InputError& error) {
      ASSERT_NE(std::string(error.what()).find("error:"), std::string::npos);
    }
  }
  // The mutations must neither all break the text nor leave it whole.
  EXPECT_GT(taken, cases / 200);
  EXPECT_LT(taken, cases);
}

bool ReadTree(const SourcePtr& source, Diagnostics* diagnostics) {
  Node::Parse(source, diagnostics);
  const bool ok = diagnostics->ok();
  Diagnostics fresh;
  ReadEverything(Node::Parse(source, &fresh));
  return ok;
}

TEST(Mutations, YamlReaderNeverCrashes) { ForEachMutation(kYaml, 8000, ReadTree); }
TEST(Mutations, JsonReaderNeverCrashes) { ForEachMutation(kJson, 8000, ReadTree); }

TEST(Mutations, CsvReaderNeverCrashes) {
  ForEachMutation(kCsv, 8000, [](const SourcePtr& source, Diagnostics* diagnostics) {
    const CsvTable table = CsvTable::Parse(source, {"case", "nodes"}, diagnostics);
    for (std::size_t row = 0; row < table.rows(); ++row) {
      table.Text(row, "note");
      table.Number(row, "time_s", 0, 1e9);
      table.Integer(row, "nodes", -100, 100);
    }
    return diagnostics->ok();
  });
}

}  // namespace
}  // namespace orrery
