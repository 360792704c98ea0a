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
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/report/page.h"

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

void DeclareHtml(Flag* html, FlagSet* set) {
  set->Value(html, "--html", "FILE",
             "also as a page with figures: one file for any browser, nothing is loaded",
             Words::kFile);
}

namespace {

[[noreturn]] void CannotWrite(const Flag& html, const std::string& why) {
  throw InputError({{html.where, fmt::format("cannot write '{}': {}", html.text, why),
                     "--html names a file in a folder that exists"}});
}

std::string PartOf(const Flag& html) { return html.text + ".part"; }

}  // namespace

void CheckHtml(const Flag& html, const Flag& json) {
  if (!html.given) return;
  std::error_code error;
  if (json.given && std::filesystem::weakly_canonical(html.text, error) ==
                        std::filesystem::weakly_canonical(json.text, error))
    CannotWrite(html, "--json writes to it");
  if (std::filesystem::is_directory(html.text, error)) CannotWrite(html, "it is a folder");
  if (html.text == "-") CannotWrite(html, "pages go to files alone");
  // The page is renamed into its place: a device, a pipe or a link would be lost.
  const auto status = std::filesystem::symlink_status(html.text, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    CannotWrite(html, "it is no regular file");
  errno = 0;
  const bool opens = std::ofstream(PartOf(html), std::ios::binary).good();
  const int reason = errno;
  std::filesystem::remove(PartOf(html), error);
  if (!opens) CannotWrite(html, std::strerror(reason));
  // An old page that may not be replaced.
  if (std::filesystem::exists(html.text, error) && access(html.text.c_str(), W_OK) != 0)
    CannotWrite(html, std::strerror(errno));
}

Answer Deliver(ExitCode code, std::string text, const nlohmann::ordered_json& json,
               const Flag& flag, const Flag& html) {
  if (html.given) {
    std::error_code error;
    errno = 0;
    std::ofstream file(PartOf(html), std::ios::binary);
    file << report::Page(json);
    file.close();
    if (!file) error.assign(errno, std::generic_category());
    if (file) std::filesystem::rename(PartOf(html), html.text, error);
    if (!file || error) {
      std::error_code ignored;
      std::filesystem::remove(PartOf(html), ignored);
      CannotWrite(html, error.message());
    }
  }
  return Deliver(code, std::move(text), json, flag);
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
