// SPDX-License-Identifier: Apache-2.0
// Whatever stands on the command line, the answer is text, an InputError or nothing that fits.
#include <gtest/gtest.h>

#include <random>

#include "model/program/plan/commands.h"
#include "tests/from_environment.h"

namespace orrery::cli {
namespace {

constexpr uint64_t kRuns = 400;

const std::vector<std::string> kValues = {
    "0",
    "1",
    "2",
    "3",
    "4",
    "8",
    "16",
    "-1",
    "1e9",
    "1e400",
    "2.5",
    "0x10",
    "",
    " ",
    "--",
    "-",
    "on",
    "off",
    "none",
    "full",
    "1..4",
    "4..1",
    "1,2,4",
    ",",
    "..",
    "bf16",
    "fp32",
    "adam",
    "1f1b",
    "time",
    "gpt2-micro",
    "linear-20-1",
    "aws-g5-1gpu",
    "localhost",
    "a100-sxm4-80gb",
    "ddp",
    "fsdp",
    "orrery",
    "60GiB",
    "1B",
    "13USD/h",
    "\xff\xfe",
    "\x01",
    "99999999999999999999",
    "1048576",
    "interleaved",
    "selective",
    "flash",
    "closed",
    "event",
    "models",
    "bash",
    "--nodes=2",
    "--model",
    "%s%n",
    "/",
    ".",
};

std::string Pick(const std::vector<std::string>& from, std::mt19937* random) {
  return from[std::uniform_int_distribution<std::size_t>(0, from.size() - 1)(*random)];
}

std::vector<std::string> RandomWords(std::mt19937* random) {
  const std::span<const Command> commands = Commands();
  const Command& command = commands[(*random)() % commands.size()];
  std::vector<std::string> words = {"plan"};
  if (command.run == nullptr) return words;
  if (command.name[0] != '\0') words.emplace_back(command.name);
  const std::vector<FlagInfo> flags = command.describe().flags;
  // Half of the time a job that is sound but for what follows.
  if ((*random)() % 2 == 0 && flags.size() > 6) {
    for (const char* word : {"--model", "gpt2-micro", "--topology", "aws-g5-1gpu"})
      words.emplace_back(word);
  }
  for (auto more = (*random)() % 5; more > 0 && !flags.empty(); --more) {
    const FlagInfo& flag = flags[(*random)() % flags.size()];
    // A random value would name a file to write.
    if (flag.name == "--json" || flag.name == "--html" ||
        (flag.name == "--out" && command.name == std::string("discover")))
      continue;
    if (!flag.positional) words.push_back(flag.name);
    if (flag.positional || !flag.value.empty())
      words.push_back(
          Pick(flag.list.empty() || (*random)() % 3 == 0 ? kValues : flag.list, random));
  }
  return words;
}

TEST(RandomArguments, NeverBreakTheProgram) {
  const uint64_t runs = FromEnvironment("ORRERY_MUTATIONS", kRuns);
  std::mt19937 random(static_cast<uint32_t>(FromEnvironment("ORRERY_MUTATION_SEED", 20240607)));
  uint64_t answered = 0, refused = 0;
  for (uint64_t run = 0; run < runs; ++run) {
    const std::vector<std::string> words = RandomWords(&random);
    std::string line;
    for (const std::string& word : words) line += word + " ";
    SCOPED_TRACE(line);
    try {
      const Answer answer = cli::Run(CommandLine(words));
      EXPECT_FALSE(answer.text.empty());
      EXPECT_TRUE(answer.code == ExitCode::kOk || answer.code == ExitCode::kInfeasible);
      ++answered;
    } catch (const InputError& error) {
      EXPECT_FALSE(error.diagnostics().empty());
      ++refused;
    }
  }
  EXPECT_GT(answered, runs / 20);
  EXPECT_GT(refused, runs / 5);
}

}  // namespace
}  // namespace orrery::cli
