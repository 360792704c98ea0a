// SPDX-License-Identifier: Apache-2.0
// How HuggingFace's checkpoints hold the parameters of a plan: names of tensors, and the order of their rows.
//
// A family's YAML has the names (scenarios/families/README.md). The rows of a plan's parameters:
//   qkv   by key-value head: its queries, its key, its value (GPT-NeoX's order); xkv: by head its key, its value
//   fc1   gated: gate and up in turn; qkn.g: gains of queries, then of keys
// Rotary positions turn halves of a head, as Llama's tensors expect; families that turn neighbours (GPT-J) have their
// rows reordered.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/arch/lora.h"
#include "model/arch/model_spec.h"

namespace orrery {

// One row of a family's table: a parameter, and the tensors that hold it.
struct HfTensorRow {
  std::vector<std::string> names;  // "model.layers.*.self_attn.q_proj.weight", ...: * is the layer
  bool parts = false;       // one tensor: queries, keys, values (gate, up) one behind the other
  bool transposed = false;  // [in, out], as GPT-2's Conv1D
  bool pairs = false;       // rotary positions turn neighbours
  int64_t shift = 0;        // row 0 of the parameter is this row of the tensor (OPT's positions)
  double plus = 0;          // the parameter is the tensor plus this (gains of Nemotron's norms: 1)
};

struct HfTensors {
  std::string family;
  std::string differs;       // why this family's tensors cannot be read; empty: they can
  std::string base;          // prefix that files of the bare model leave out: "transformer."
  std::string architecture;  // of a config.json: "GPT2LMHeadModel"
  std::map<std::string, HfTensorRow>
      rows;  // by parameter: "wte.w", "l*.qkv.w", "d*.xq.w" (T5's decoder)
  std::map<std::string, std::string>
      copies;  // tensors that repeat a tied parameter: "lm_head.weight": "wte.w"
  std::vector<std::string> ignored;  // patterns of tensors without weights of the model
  std::vector<std::string> notes;    // what a reader of such tensors should know
};

// The first family whose config.json can say this very model; "": none can. For models that do not come from one.
std::string HfFamilyLike(const ModelSpec& model);
// Of a family of HfFamilyNames(). Throws InputError: its file is wrong.
// The modules to which PEFT gives adapters by itself, with commas; "": it wants them named.
std::string PeftTargets(const std::string& family);
// The linear maps of a layer by the names of their modules; none: they are not known.
LoraModules AdapterModules(const std::string& family, bool gated);
// Of a family of HfFamilyNames(). Throws InputError: its file is wrong.
HfTensors TensorsOf(const std::string& family);
// Families whose tensors are known: base families first, then those that extend them, sorted.
std::vector<std::string> HfTensorFamilies();

// Where one parameter lies in tensors of a file.
struct HeldParam {
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
  };
  struct Row {
    int32_t tensor;
    int64_t row;
  };
  std::vector<Tensor> tensors;
  std::vector<Row> rows;  // of each row of the parameter; empty: row r is row r of the one tensor
  bool transposed = false;
  int64_t width = 1;  // elements of a row
  double plus = 0;    // an element of the parameter is that of the tensor plus this

  // Element `index` of the parameter, row-major: the tensor and the element in it.
  Row At(int64_t index) const {
    const int64_t r = index / width, column = index % width;
    const Row row = rows.empty() ? Row{0, r} : rows[static_cast<std::size_t>(r)];
    const int64_t height =
        transposed ? tensors[static_cast<std::size_t>(row.tensor)].shape.back() : 0;
    return {row.tensor, transposed ? column * height + row.row : row.row * width + column};
  }
};

// Of a parameter as plans name it ("l3.qkv.w"), with its shape without padding. No tensors: the family has none for it.
// Throws InputError when the family's row does not fit the model.
HeldParam HeldIn(const HfTensors& table, const ModelSpec& model, const std::string& param,
                 const std::vector<int64_t>& shape);

// '*' stands for any characters.
bool MatchesPattern(const std::string& text, const std::string& pattern);

// What a config.json of the family, or else the default of its class, calls the activation ("gelu_new"); "": nothing.
std::string HfActivation(const std::string& family, const std::string& config);

// Whether two models train alike, whatever they are called.
bool SameModel(ModelSpec a, ModelSpec b);

// The value of rope_scaling in a config.json: {"rope_type": "llama3", "factor": 8, ...}.
std::string HfRopeScaling(const RopeScaling& rope);

// A config.json of the family that is read as this very model; "" when the family cannot say it.
std::string HfConfigText(const std::string& family, const ModelSpec& model);

}  // namespace orrery
