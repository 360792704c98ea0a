// SPDX-License-Identifier: Apache-2.0
// Calls in a Python program, with what their arguments are where these are literals or constants. Nothing of it is run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/base/yaml_tree.h"
#include "model/exchange/setting.h"

namespace orrery::exchange {

struct PythonArgument {
  std::string name;                 // "": by its place; "**": of a dictionary
  std::string code;                 // without comments
  std::shared_ptr<YamlTree> value;  // None, a scalar, a list, a dictionary; null: it is computed
  Location where;
};

struct PythonCall {
  std::string function;  // "LoraConfig" of "peft.LoraConfig(...)"
  std::string object;    // "trainer" of "trainer.train()"
  std::string variable;  // that it is assigned to; "": none
  std::string branch;    // the `if` or `else` that it stands in, as the file has it; "": none
  Location where;
  std::size_t begin = 0, end = 0;  // of its text, the brackets included
  std::vector<PythonArgument> arguments;

  const PythonArgument* Find(std::string_view name) const;
};

// "OBJECT.NAME = VALUE"; one with an operator ("+=") has no value.
struct PythonAssignment {
  std::string object;  // "args" of "args.bf16 = True"
  std::string branch;  // as of a call
  std::size_t begin = 0;
  PythonArgument set;  // `name`: NAME
};
// Assignments to attributes, in their order.
std::vector<PythonAssignment> AttributesSetIn(const SourcePtr& source);

// Those whose function is `asked` for, in their order, with those in arguments of others. Comments and texts hold none, and a
// class or function of that name is none. Throws InputError: one is never closed.
std::vector<PythonCall> CallsIn(const SourcePtr& source,
                                const std::function<bool(std::string_view function)>& asked);

}  // namespace orrery::exchange
