// SPDX-License-Identifier: Apache-2.0
// What the tests of plan compare share: a prediction beside a measurement, as texts of files.
#pragma once

#include <memory>
#include <string>

#include "calib/compare/compare.h"

namespace orrery::compare {

inline SourcePtr Named(const std::string& name, const std::string& text) {
  return std::make_shared<Source>(Source{name, text});
}

inline Comparison Beside(const std::string& predicted, const std::string& measured) {
  return Compare(measured::ReadTrainingLog(Named("predicted.json", predicted)),
                 measured::ReadTrainingLog(Named("measured.json", measured)));
}

// "": they are compared.
inline std::string ErrorOf(const std::string& predicted, const std::string& measured) {
  try {
    Beside(predicted, measured);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace orrery::compare
