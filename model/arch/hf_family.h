// SPDX-License-Identifier: Apache-2.0
// Families of HuggingFace configurations: data that says where a config.json keeps a model's description.
//
// scenarios/families/README.md explains the files. Each key of a config.json is used by a rule, has no effect for a
// reason that a file names, or is refused by name.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/arch/description.h"
#include "model/arch/hf_tensors.h"
#include "model/base/node.h"

namespace orrery {

std::vector<std::string> HfFamilyNames();  // values of model_type that can be planned, sorted

// One family's rules: its file, the files that it extends, and the common one, nearest first.
class HfFamily {
 public:
  // What is wrong with the files themselves goes to `diagnostics` too. Throws InputError: no such file.
  static HfFamily Load(const std::string& name, Diagnostics* diagnostics);

  const std::string& name() const { return name_; }
  std::string Text(const std::string& key) const;  // "class", "inside"; "": not set
  std::vector<std::string> Notes() const;

  // Where `config` keeps a key of the description: the file, the default of the HuggingFace class, or a constant.
  Place Find(const Node& config, const std::string& key) const;

  // The value of a key of config.json: the file's, or the default of the HuggingFace class; nullopt: neither has one.
  std::optional<Place> Value(const Node& config, const std::string& name) const;

  // Reports every key of `config` that no rule uses and no reason excuses; returns the excused ones with their reasons.
  // `outer`: the map around the part that holds the model: rules do not read it.
  std::map<std::string, std::string> Account(const Node& config, bool outer) const;

  // What a key of the description rests on where `config` says nothing: keys of a config.json and what the class takes for
  // them; "": nothing of its own, it follows from other keys.
  std::vector<std::pair<std::string, std::string>> Assumed(const Node& config,
                                                           const std::string& key) const;

  HfTensors Tensors() const;                           // hf_tensors.h
  std::size_t depth() const { return files_.size(); }  // itself, and the files that it extends
  // The inverse of Find() for those keys of the description that one key of a config.json holds; "" for others.
  std::string ConfigText(const std::map<std::string, std::string>& description,
                         const HfTensors& tensors) const;

 private:
  std::string ValueText(const Node& config, const std::string& name) const;
  bool IsFlag(const std::string& name) const;
  bool Applies(const Node& config, const Node& when) const;
  std::map<std::string, Node> Rules() const;  // by key of the description, the nearest file's
  std::optional<Node> Applying(const Node& config, const Node& rule) const;
  Place FromRule(const Node& config, const Node& rule) const;
  Place Mapped(const Node& rule, const Place& value) const;
  std::set<std::string> UsedKeys() const;
  void CheckOnly(const Node& config) const;
  void CheckNames(const Node& config) const;
  static bool Same(const Place& a, const Place& b);
  bool IsDense(const Node& config, const std::string& key) const;

  std::string name_;
  std::vector<Node> files_;
};

// The family by `model_type`, else by `architectures`, else by the keys that are there; what was inferred goes to
// `notes`. nullopt: unknown, and recorded in the node's diagnostics.
std::optional<HfFamily> FindHfFamily(const Node& config, std::vector<std::string>* notes);

}  // namespace orrery
