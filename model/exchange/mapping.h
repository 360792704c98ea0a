// SPDX-License-Identifier: Apache-2.0
// The one table between the fields of a layout and the settings of other programs. Writers and readers follow it.
//
// A row is a field: a member of Strategy or Workload, by its name there, and for each target a cell that says how the
// target spells it, or why it cannot. To add a field: one row in a fields_*.cc. A cell of kAnyTarget
// stands for all targets that no cell before it names.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/exchange/case.h"
#include "model/exchange/setting.h"
#include "model/exchange/target.h"

namespace orrery::exchange {

// What became of a field in an export.
enum class Status {
  kWritten,       // settings say it
  kFollows,       // the target derives it from what is written
  kFixed,         // the target does so unless told otherwise
  kNoEffect,      // means nothing in this layout
  kOwn,           // concerns buffers of Orrery's runtime alone
  kNear,          // the nearest setting is written, it does not mean the same
  kNotExpressed,  // the target has no setting for this value
};
const char* NameOf(Status status);  // "written"
// kNear and kNotExpressed: the job that the target runs is not the one that was predicted.
inline bool Differs(Status status) {
  return status == Status::kNear || status == Status::kNotExpressed;
}

// A value of a field and the settings that stand for it; none: the target's behaviour without a setting. The first of them
// tells the choice when a file is read, others may be missing there.
struct Choice {
  std::string value;
  std::vector<std::pair<std::string, std::string>> settings;
  std::string near = "";  // why the settings only come near
};

// What a rule makes of a field.
struct Written {
  Status status = Status::kWritten;
  Settings settings = {};
  std::string why = "";
};
using WriteRule = std::function<Written(const Case&)>;
using ReadRule = std::function<std::optional<Value>(const SettingIndex&, const Values&)>;

struct Cell {
  enum class Kind { kKey, kChoices, kFollows, kOwn, kRule };
  Kind kind = Kind::kOwn;
  std::string key;      // kKey
  std::string neutral;  // kKey: a value that is not written; absent means it; "": there is none
  std::vector<Choice> choices;
  std::string why;  // kFollows: from what; kChoices: why other values cannot be expressed
  WriteRule write;  // kRule; kChoices: goes before them, unless it says kOwn
  ReadRule read;    // null: what is written is read by other rows
};

Cell Key(std::string key, std::string neutral = "");
Cell Choices(std::vector<Choice> choices, std::string why = "");
// The target always does `value`.
Cell Fixed(std::string value, std::string why);
Cell Follows(std::string from);
Cell Own();
Cell Rule(WriteRule write, ReadRule read = nullptr);

struct Field {
  const char* name;  // of the member
  // "": the field means nothing in this layout.
  std::function<std::string(const Case&)> text;
  // The flag that sets it: "--tp"; "fact KEY": by --fact; "": there is none.
  const char* flag;
  std::vector<std::pair<unsigned, Cell>> cells;  // by targets

  const Cell* Of(Target target) const;  // null: there is none
};

// All rows, the layout's first. A row may use the values of rows before it when it is read.
std::span<const Field> Fields();
const std::vector<Field>& LayoutFields();
const std::vector<Field>& ComputeFields();
const std::vector<Field>& WorkFields();
const std::vector<Field>& FactFields();

struct FieldReport {
  std::string field, value;
  Status status = Status::kOwn;
  std::string how;  // the settings, or the reason
};
struct Export {
  Settings settings;
  std::vector<FieldReport> fields;
};
// The settings of a target, and what became of each field. Settings of the model come from model_arguments.h.
Export ToSettings(const Case& c, Target target);

// The values that settings of a target give to fields. Throws InputError: a value that a setting cannot have, settings that
// contradict each other. `given`: values of flags, which other fields follow in the place of the files' (those without a key
// are the cluster's, and stand behind the files'); what is wrong with a setting that a flag replaces is no error. `known`: the values with those of the flags in their place.
Values FromSettings(const SettingIndex& settings, Target target, const Values& given = {},
                    Values* known = nullptr);

// Schedules of pipelines that the target can be told.
std::vector<PipelineSchedule> SchedulesOf(Target target);

// As --layout takes it ("5,10x6,5"), "even", or "" without a pipeline.
std::string LayoutText(const Case& c);
// Layers by chunk, in the order chunk x stages + stage.
std::vector<int> LayersByChunk(const Case& c);

}  // namespace orrery::exchange
