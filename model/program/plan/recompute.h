// SPDX-License-Identifier: Apache-2.0
// Bundles computed again by this program, from their own files alone.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/program/common/bundle.h"

namespace orrery::cli {

// What the program said.
struct Recomputed {
  int code = 0;
  nlohmann::ordered_json answer;  // an error too is a document: schema orrery.error/1
};

// An empty folder that stands for the catalogue, gone with this object. Throws InputError when there is no room for it.
class BundleFolder {
 public:
  BundleFolder();
  ~BundleFolder();
  BundleFolder(const BundleFolder&) = delete;
  BundleFolder& operator=(const BundleFolder&) = delete;

  void Write(const std::string& path, const std::string& text);
  void WriteAll(const Bundle& bundle);
  // The question, asked there, by this program or one that stands beside it.
  Recomputed Ask(const std::vector<std::string>& question) const;

 private:
  std::string folder_;
};

}  // namespace orrery::cli
