// SPDX-License-Identifier: Apache-2.0
// Runs a reader on bad input and hands back the message that the user would see.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "model/base/diagnostics.h"

namespace orrery {

inline SourcePtr Text(std::string name, std::string text) {
  return std::make_shared<const Source>(Source{std::move(name), std::move(text)});
}

// The rendered InputError, or "" (and a test failure) when nothing was thrown.
template <class F>
std::string ErrorOf(F read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error was reported";
  return "";
}

}  // namespace orrery
