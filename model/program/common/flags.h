// SPDX-License-Identifier: Apache-2.0
// The flags of one command: declared once, then parsed, shown by --help and completed by the shell.
//
// CLI11 does the parsing; its complaints come out as InputError with the place in the command line
// and the nearest right flag. Values arrive as text and are read by the Read* functions, which
// record what is wrong, so that one run reports every bad flag.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/base/node.h"
#include "model/base/text.h"
#include "model/hardware/cluster_file.h"
#include "model/program/common/command_line.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace orrery::cli {

struct Flag {
  std::string name;  // "--nodes", "-b", or the metavar of a positional argument
  std::string text;  // its value; "" for a switch, or when an optional value was left out
  bool given = false;
  Location where;  // of the value, or of the flag when it has none
};

std::vector<std::string> TextsOf(const std::vector<Flag>& flags);

// What may stand behind a flag, for completion and for messages.
enum class Words {
  kAny,
  kList,
  kModel,
  kTopology,
  kGpu,
  kFramework,
  kOffer,
  kScenario,
  kFile,
  kOutput,        // a file that is written: its folder has to be there
  kOutputFolder,  // made where it is missing, with those around it
};

struct FlagInfo {
  std::string name;   // "--nodes"
  std::string value;  // "N"; "": a switch; "[FILE]": may be left out
  std::string help;
  std::string group;  // title above it in --help
  Words words = Words::kAny;
  std::vector<std::string> list;  // kList
  bool positional = false;
  bool several = false;         // may be given several times
  std::string other_name = "";  // accepted, not shown: an old name, or a place of its own ("PLAN")
};

// What --help and completion know of a command.
struct Description {
  std::string help;
  std::vector<FlagInfo> flags;
};

// What traces of `plan run` and `plan simulate` begin with.
inline constexpr const char* kTraceHead = "{\n\"schemaVersion\": 1,\n\"digest\": ";

class FlagSet {
 public:
  // `usage` is what follows the program's name: "predict --model NAME [flags]".
  FlagSet(std::string usage, std::string purpose, std::vector<std::string> examples);
  ~FlagSet();

  void Group(std::string title) { group_ = std::move(title); }
  void Value(Flag* flag, const char* name, const char* value, std::string help,
             Words words = Words::kAny, std::vector<std::string> list = {},
             const char* other_name = "");
  // A file that is written: over none but its own kind, whose head holds this (WhyNotReplaced of write_file.h); "": the command asks.
  void Output(Flag* flag, const char* name, const char* value, std::string help, std::string holds);
  void Switch(Flag* flag, const char* name, std::string help);
  void Positional(Flag* flag, const char* name, std::string help, Words words = Words::kAny,
                  std::vector<std::string> list = {}, const char* other_name = "");
  // May be given several times; a `value` like "NAME,..." with several between commas, too.
  void Values(std::vector<Flag>* flags, const char* name, const char* value, std::string help,
              Words words = Words::kAny, const char* other_name = "");
  void Positionals(std::vector<Flag>* flags, const char* name, std::string help, Words words);

  // Parses the words from number `first` on. True: --help was asked for. Throws InputError. `outputs`: with CheckOutputs(),
  // which is for rank 0 alone where ranks elsewhere have the same words.
  bool Parse(const CommandLine& line, std::size_t first, bool outputs = true);
  // Before the work: throws InputError where a file or folder of the flags cannot be written.
  void CheckOutputs() const;
  void CheckOutput(const Flag& flag, Diagnostics* diagnostics) const;  // one of them
  Description Describe() const;

 private:
  struct Entry {
    Flag* flag;                  // null: several
    std::vector<Flag>* several;  // null: one
    CLI::Option* option;
    std::string holds = "";  // of Output()
  };
  void Add(Entry entry, FlagInfo info);
  std::string Help() const;
  bool NamesInput(const std::string& path) const;
  void RejectUnknown(const CommandLine& line, std::size_t first) const;
  void Place(const CommandLine& line, std::size_t first, std::size_t entry) const;
  void PlaceAll(const CommandLine& line, std::size_t first, std::size_t entry) const;
  std::vector<std::string> Names() const;

  std::string usage_, purpose_, group_ = "Flags";
  std::vector<std::string> examples_;
  std::unique_ptr<CLI::App> app_;
  std::vector<FlagInfo> infos_;
  std::vector<Entry> entries_;  // one for each of infos_
};

// nullopt: the flag was not given, or its value is wrong (then recorded). "1e9" is a whole number.
std::optional<int64_t> ReadInteger(const Flag& flag, int64_t min, int64_t max,
                                   Diagnostics* diagnostics);
// "8192" or "4096..16384" (both ends included).
std::optional<std::pair<int64_t, int64_t>> ReadRange(const Flag& flag, int64_t min, int64_t max,
                                                     Diagnostics* diagnostics);
// The numbers of "8", or with `several` of "8,16,32" or "4..16": a range stands for its first number, doubled up to its
// last, which is included. Empty: as nullopt.
std::vector<int64_t> ReadNumbers(const Flag& flag, bool several, int64_t min, int64_t max,
                                 Diagnostics* diagnostics);
void RecordBadValue(const Flag& flag, const TextError& error, Diagnostics* diagnostics);
// "60GiB", "13.1USD/h".
template <class Q>
std::optional<Q> ReadQuantity(const Flag& flag, Diagnostics* diagnostics) {
  if (!flag.given) return std::nullopt;
  TextError error;
  const std::optional<Q> quantity = ParseQuantity<Q>(flag.text, &error);
  if (!quantity) RecordBadValue(flag, error, diagnostics);
  return quantity;
}
// A flag without a value means true; else on or off.
std::optional<bool> ReadOnOff(const Flag& flag, Diagnostics* diagnostics);

// The index in `names`.
std::optional<std::size_t> ReadName(const Flag& flag, const std::vector<std::string>& names,
                                    Diagnostics* diagnostics);
template <class E>
using NameTable = std::span<const std::pair<const char*, E>>;
template <class E>
std::vector<std::string> NamesOf(NameTable<E> table) {
  std::vector<std::string> names;
  for (const auto& row : table) names.emplace_back(row.first);
  return names;
}
template <class E>
std::optional<E> ReadChoice(const Flag& flag, NameTable<E> table, Diagnostics* diagnostics) {
  const std::optional<std::size_t> index = ReadName(flag, NamesOf(table), diagnostics);
  if (!index) return std::nullopt;
  return table[*index].second;
}

inline constexpr const char* kTimesOfCollectives = "a file of collective times";

// Runs `load`; an InputError without a place then points at the flag that caused it.
void AtFlag(const Flag& flag, const std::function<void()>& load);

// The same of a flag that names a file of `wanted` ("a scenario"): one that describes machines is refused as that.
template <typename Load>
auto AtFile(const Flag& flag, const char* wanted, Load load) {
  try {
    return load();
  } catch (const InputError&) {
    AtFlag(flag, [&] {
      RefuseMachineFile(flag.text, wanted);
      throw;
    });
    throw;
  }
}

// "--global-batch" stands as `global_batch` below `section`, which may be absent. Flags that were
// given keep their values; the others take the file's, with their places. Unknown keys and empty
// values are recorded.
void FillFlags(const Node& root, const char* section, const std::vector<Flag*>& flags);

}  // namespace orrery::cli
