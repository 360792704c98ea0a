// SPDX-License-Identifier: Apache-2.0
// Writes answers out, and survives readers that leave early.
#include "model/program/common/answer.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/base/input_files.h"
#include "model/base/write_file.h"
#include "model/program/common/public_paths.h"
#include "model/program/common/terminal.h"
#include "model/program/common/wide_lines.h"
#include "model/report/page.h"

namespace orrery::cli {

Answer Deliver(ExitCode code, std::string text, const nlohmann::ordered_json& json,
               const Flag& flag) {
  if (!flag.given) return {code, std::move(text)};
  // Names come from user files: bytes that are no UTF-8 are replaced, never thrown on.
  const std::string document =
      WithPublicPaths(json).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
      "\n";
  if (flag.text.empty() || flag.text == "-") return {code, document, "", true};
  if (const std::string why = WriteTextFile(flag.text, document); !why.empty()) {
    throw InputError({{flag.where, fmt::format("cannot write '{}': {}", flag.text, why),
                       "--json without a file name prints to standard output"}});
  }
  return {code, std::move(text)};
}

void DeclareJson(Flag* json, FlagSet* set, std::string_view command, std::string_view what) {
  set->Output(json, "--json", "[FILE]",
              fmt::format("{}{}as JSON, schema orrery.{}/1, instead of text or into FILE", what,
                          what.empty() ? "" : " ", command),
              "\"orrery.");
}

void DeclareHtml(Flag* html, FlagSet* set) {
  set->Output(html, "--html", "FILE",
              "also as a page with figures: one file for any browser, nothing is loaded",
              "<!doctype html>\n<html lang=en>\n<head>\n");
}

void DeclareBundle(Flag* bundle, FlagSet* set) {
  set->Output(
      bundle, "--bundle", "FILE",
      "also the question, all files that were read, and the answer: `plan open` computes it "
      "again, `plan diff` explains what moved",
      "\"orrery.");
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
  ClaimOutput(PartOf(html), html.name, html.where);
  for (const std::string& path : {PartOf(html), html.text}) {
    if (const std::string why = WhyNotWritable(path); !why.empty()) CannotWrite(html, why);
  }
}

Answer Deliver(ExitCode code, std::string text, const nlohmann::ordered_json& json,
               const Flag& flag, const Flag& html) {
  if (html.given) {
    std::error_code error;
    std::string why = WriteTextFile(PartOf(html), report::Page(WithPublicPaths(json)));
    if (why.empty()) std::filesystem::rename(PartOf(html), html.text, error);
    if (error) why = error.message();
    if (!why.empty()) {
      std::error_code ignored;
      std::filesystem::remove(PartOf(html), ignored);
      CannotWrite(html, why);
    }
  }
  return Deliver(code, std::move(text), json, flag);
}

Answer DeliverTemplate(std::string text, const Flag& json) {
  const nlohmann::ordered_json document = {{"schema", "orrery.template/1"}, {"text", text}};
  Answer answer = Deliver(ExitCode::kOk, std::move(text), document, json);
  answer.document = true;
  return answer;
}

std::string Shown(const Answer& answer) {
  const Terminal& terminal = CurrentTerminal();
  if (answer.document) return answer.text;
  std::string text = answer.text;
  if (terminal.quiet) {
    text = answer.brief.empty() ? text.substr(0, text.find('\n')) : answer.brief;
    if (!text.empty()) text += '\n';
  } else {
    text = WithinColumns(text, terminal.width);
  }
  return terminal.colour ? Painted(text) : text;
}

ExitCode WriteOut(ExitCode code, std::string_view rest) {
  signal(SIGPIPE, SIG_IGN);
  while (!rest.empty()) {
    const ssize_t written = write(STDOUT_FILENO, rest.data(), rest.size());
    if (written >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      break;
    } else if (errno != EINTR) {
      std::fputs(fmt::format("plan: cannot write the answer: {}\n", std::strerror(errno)).c_str(),
                 stderr);
      return ExitCode::kFailure;
    }
  }
  return code;
}

bool ColourOnErrors() { return CurrentTerminal().error_colour; }

}  // namespace orrery::cli
