// SPDX-License-Identifier: Apache-2.0
// What the tests of discovery share: samples and a run over several of them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "model/discover/topology_text.h"

namespace orrery::discover {

inline SourcePtr Sample(const std::string& name) {
  return ReadSource(std::string(ORRERY_SOURCE_DIR) + "/tests/discover/data/" + name);
}

inline SourcePtr Made(std::string name, std::string text) {
  return std::make_shared<const Source>(Source{std::move(name), std::move(text)});
}

inline Discovered Discover(const std::vector<SourcePtr>& files, const Choices& choices = {}) {
  Observed seen;
  for (const SourcePtr& file : files) ReadClusterFile(file, &seen);
  return WriteTopology(seen, choices);
}

inline std::string ErrorOf(const std::vector<SourcePtr>& files, const Choices& choices = {}) {
  try {
    Discover(files, choices);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace orrery::discover
