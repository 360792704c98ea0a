// SPDX-License-Identifier: Apache-2.0
// Writes answers out, and survives readers that leave early.
#include "model/program/common/answer.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace orrery::cli {

Answer Deliver(ExitCode code, std::string text, const nlohmann::ordered_json& json,
               const Flag& flag) {
  if (!flag.given) return {code, std::move(text)};
  // Names come from user files: bytes that are no UTF-8 are replaced, never thrown on.
  const std::string document =
      json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (flag.text.empty()) return {code, document};
  errno = 0;
  std::ofstream file(flag.text, std::ios::binary);
  file << document;
  file.close();
  if (!file) {
    throw InputError(
        {{flag.where, fmt::format("cannot write '{}': {}", flag.text, std::strerror(errno)),
          "--json without a file name prints to standard output"}});
  }
  return {code, std::move(text)};
}

ExitCode WriteOut(const Answer& answer) {
  signal(SIGPIPE, SIG_IGN);
  std::string_view rest = answer.text;
  while (!rest.empty()) {
    const ssize_t written = write(STDOUT_FILENO, rest.data(), rest.size());
    if (written >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      break;
    } else if (errno != EINTR) {
      fmt::print(stderr, "plan: cannot write the answer: {}\n", std::strerror(errno));
      return ExitCode::kFailure;
    }
  }
  return answer.code;
}

bool ColourOnErrors() {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(STDERR_FILENO) != 0 && (no_colour == nullptr || *no_colour == '\0');
}

}  // namespace orrery::cli
