// SPDX-License-Identifier: Apache-2.0
// Files of other programs as settings: one reader per syntax, chosen by content.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/exchange/hostfile.h"
#include "model/exchange/setting.h"
#include "model/exchange/target.h"

namespace orrery {
struct YamlTree;
}

namespace orrery::exchange {

struct Document {
  SourcePtr source;
  std::string kind;              // "a shell script with Megatron's arguments"
  std::optional<Target> target;  // whose settings these are; empty: a launcher's alone
  Settings settings;             // NNODES and GPUS_PER_NODE are the launcher's
  std::vector<std::string> notes;
  Settings files = {};                            // configurations that a command names
  std::map<std::string, SourcePtr> written = {};  // texts of `files` that the script itself writes
  Settings counts = {};  // of nodes and processes: those that are not understood, with the reason
  std::vector<Hostfile> hostfiles = {};
  Settings unread = {};  // words that only a shell knows, each with the reason
  Settings gpus = {};    // kinds that a scheduler is asked for, "h100"; `key`: the option
  Settings off = {};     // said to be off: None or False, of those that decide a layout
};

// `open`: files that a script takes in. By content; by the name's ending where the content tells nothing. Throws InputError: nothing that is known, or text that its syntax does not allow.
Document ReadDocument(const SourcePtr& source, const OpenNamed& open = nullptr);
// Throws the InputError that names the right command for a file that describes machines.
void RefuseClusterFile(const SourcePtr& source);

// What this build cannot read; "": it reads everything.
std::string WithoutToml();

// A parsed adapter_config.json of PEFT, whose LoRA is what --lora-rank, --lora-alpha and --lora-targets say. Throws InputError:
// what it trains or computes besides.
bool IsAdapterConfig(const YamlTree& root);
Document ReadAdapters(const SourcePtr& source, const YamlTree& root);
// Whether a key of it changes what is trained, or is not known here.
bool AdapterKeyMatters(std::string_view key);
// A model of the catalogue by its name on HuggingFace's hub; "": none is known by that name.
std::string CatalogueModel(const std::string& path);

// The readers. Each throws InputError with the line.
Document ReadScript(const SourcePtr& source, const OpenNamed& open = nullptr);
Document ReadArgumentDump(const SourcePtr& source);
Document ReadTree(const SourcePtr& source);  // JSON and YAML
// TrainingArguments' part for FSDP, a file of its own (fsdp_config) or its text in a command.
Document ReadFsdpPart(const SourcePtr& source);
Document ReadLoggedSettings(const SourcePtr& source);  // a log with HasLoggedSettings()
// DeepSpeed reads its JSON with comments (hjson): blanks in their places. Throws InputError: one is never closed.
SourcePtr WithoutJsonComments(const SourcePtr& source);
Document ReadTrainingArguments(const SourcePtr& source);  // a call in a Python program
Document ReadToml(const SourcePtr& source);
Document ReadPython(const SourcePtr& source);

// Of plan export, around the script with the layout.
bool IsAroundTrainScript(const Source& source);
// A program of plan export, whose constants are its settings.
bool IsOwnProgram(const Source& source);
// Throws the InputError that names that script.
[[noreturn]] void RefuseAroundTrainScript(const SourcePtr& source);

// A literal of Python as other formats spell it; "": it is none.
std::string PythonLiteral(std::string_view text);
// The line of Megatron's dump of arguments that begins it.
bool HasArgumentDump(std::string_view text);
// A configuration of torchtitan or DeepSpeed as JSON in its log.
bool HasLoggedJson(std::string_view text);
bool HasLoggedSettings(std::string_view text);  // or the lines that DeepSpeed prints of it
bool LooksLikeToml(std::string_view text);
bool LooksLikePython(std::string_view text);
bool CallsTrainingArguments(std::string_view text);

}  // namespace orrery::exchange
