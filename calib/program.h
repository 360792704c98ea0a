// SPDX-License-Identifier: Apache-2.0
// What the programs of calib have in common: flags, then work that may throw InputError.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>

#include "model/input/diagnostics.h"

namespace orrery {

// Exit code: 0 done (or help), 2 bad flags or input.
inline int RunProgram(CLI::App* app, int argc, char** argv, const std::function<void()>& work) {
  constexpr int kInputErrorCode = 2;
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app->exit(error, std::cout, std::cerr) == 0 ? 0 : kInputErrorCode;
  }
  try {
    work();
  } catch (const InputError& error) {
    std::cerr << error.what();
    return kInputErrorCode;
  }
  return 0;
}

}  // namespace orrery
