// SPDX-License-Identifier: Apache-2.0
// From a program's words to its answer and exit code.
#include "model/program/common/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <typeinfo>

#include "model/arch/data_root.h"
#include "model/base/input_files.h"
#include "model/base/write_file.h"
#include "model/program/common/launcher_guard.h"
#include "model/program/common/terminal.h"
#include "model/program/common/wide_lines.h"

namespace orrery::cli {

std::string PathBeside(const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos) return "";
  const std::filesystem::path self = RunningProgram();
  const std::string path = (self.parent_path() / ("plan-" + name)).string();
  return !self.empty() && access(path.c_str(), X_OK) == 0 ? path : "";
}

void ExecBeside(const std::string& name, const std::vector<std::string>& words) {
  const std::string path = PathBeside(name);
  if (path.empty()) return;
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(path.c_str(), arguments.data());
  throw InputError(fmt::format("cannot start {}: {}", path, std::strerror(errno)));
}

namespace {

// What went wrong that nobody expected, in our words: those of a library name neither cause nor cure.
Diagnostic Explained(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return {{}, "not enough memory for this answer", "`ulimit -v` and control groups limit it"};
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return {{}, fmt::format("'{}': {}", file->path1().string(), file->code().message()), ""};
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    if (system->code() == std::errc::resource_unavailable_try_again)
      return {{},
              "no further thread or process is allowed",
              "raise the limit (ulimit -u, or the pids of the control group)"};
    return {{}, system->code().message(), ""};
  }
  const bool library = dynamic_cast<const std::logic_error*>(&error) != nullptr ||
                       dynamic_cast<const nlohmann::json::exception*>(&error) != nullptr ||
                       dynamic_cast<const std::bad_cast*>(&error) != nullptr ||
                       typeid(error) == typeid(std::exception);
  if (library)
    return {{}, "a fault of this program", "please report the command line and its files"};
  return {{}, error.what(), ""};
}

// Where JSON is to go: "-": standard output; empty: nowhere.
std::string PlaceOfJson(const std::vector<std::string>& words) {
  constexpr std::string_view kWithFile = "--json=";
  const auto end = std::find(words.begin(), words.end(), "--");
  for (auto word = words.begin(); word != end; ++word) {
    if (word->starts_with(kWithFile)) return word->substr(kWithFile.size());
    if (*word != "--json") continue;
    const bool file = word + 1 != end && !(word + 1)->starts_with('-');
    return file ? *(word + 1) : "-";
  }
  return "";
}

// Whether a word but that of --json names it: an input may not have been read yet.
bool NamesFile(const std::vector<std::string>& words, const std::string& path) {
  std::size_t named = 0;
  for (const std::string& word : words) {
    for (const std::string& text : {word, word.substr(word.find('=') + 1)}) {
      std::error_code none;
      if (text == path || std::filesystem::equivalent(text, path, none)) {
        ++named;
        break;
      }
    }
  }
  return named > 1;
}

std::string ErrorJson(const std::vector<Diagnostic>& errors, ExitCode code) {
  nlohmann::ordered_json json = {{"schema", "orrery.error/1"},
                                 {"exit_code", static_cast<int>(code)},
                                 {"errors", nlohmann::ordered_json::array()}};
  for (const Diagnostic& one : errors) {
    nlohmann::ordered_json entry = {{"message", one.message}};
    if (!one.hint.empty()) entry["hint"] = one.hint;
    if (one.where.source) entry["source"] = one.where.source->name;
    if (one.where.line > 0) entry["line"] = one.where.line;
    if (one.where.column > 0) entry["column"] = one.where.column;
    json["errors"].push_back(std::move(entry));
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// The errors where the words ask for JSON: on `out`, or in the file, so that nobody takes an older answer for this one's.
void AnswerWithErrors(const std::vector<std::string>& words, const std::vector<Diagnostic>& errors,
                      ExitCode code, std::string* out) {
  const std::string place = PlaceOfJson(words);
  if (place.empty()) return;
  const std::string document = ErrorJson(errors, code);
  if (place == "-") {
    *out += document;
  } else if (!NamesFile(words, place) && WhyNotReplaced(place, "\"orrery.").empty()) {
    WriteTextFile(place, document);  // where that fails, standard error has said all the same
  }
}

// --json where --help stands, too, which no command gets to see.
Flag JsonOfHelp(const std::vector<std::string>& words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  const bool help = std::any_of(
      words.begin(), end, [](const std::string& word) { return word == "--help" || word == "-h"; });
  const std::string place = help ? PlaceOfJson(words) : "";
  return {"--json", place, !place.empty(), {}};
}

std::vector<std::string> words_of_command;

// The bundle holds what is read from here on.
void RecordIfBundled(const std::vector<std::string>& words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  if (std::any_of(words.begin(), end, [](const std::string& word) {
        return word == "--bundle" || word.starts_with("--bundle=");
      }))
    RecordSources();
}

// A name that its owner expects is unknown, or means another file.
void SayPassedOver(std::string* err) {
  if (const std::string folder = FolderOfAnother(); !folder.empty())
    *err += fmt::format("note: '{}' belongs to another user, and is not read\n", folder);
}

}  // namespace

const std::vector<std::string>& WordsOfCommand() { return words_of_command; }

Answer HelpAnswer(std::string text, const Flag& json) {
  const nlohmann::ordered_json document = {{"schema", "orrery.help/1"}, {"text", text}};
  return Deliver(ExitCode::kOk, std::move(text), document, json);
}

void DeliverFailure(const std::string& why, ExitCode code) {
  std::string out;
  AnswerWithErrors(words_of_command, {{{}, why, ""}}, code, &out);
  WriteOut(code, out);
}

int Main(std::vector<std::string> words, Answer (*run)(const CommandLine& line), std::string* out,
         std::string* err) {
  const CommandLine whole(words);
  const auto failed = [&](const std::vector<Diagnostic>& errors, ExitCode code) {
    *err += WithinColumns(Render(errors, ColourOnErrors()), ColumnsOf(STDERR_FILENO));
    SayPassedOver(err);
    AnswerWithErrors(whole.words(), errors, code, out);
    return static_cast<int>(code);
  };
  ForgetInputs();
  try {
    SetTerminal(DecideTerminal(&words));
    RecordIfBundled(words);
    words_of_command = words;
    Answer answer = run(CommandLine(std::move(words)));
    if (const Flag json = JsonOfHelp(whole.words()); json.given && !answer.document)
      answer = HelpAnswer(std::move(answer.text), json);
    *out += Shown(answer);
    SayPassedOver(err);
    return static_cast<int>(answer.code);
  } catch (const InputError& error) {
    return failed(error.diagnostics(), ExitCode::kInputError);
  } catch (const std::exception& error) {
    return failed({Explained(error)}, ExitCode::kFailure);
  }
}

namespace {

// `ulimit -f`: what cannot be written is an error to be told, not the end of the program. A handler, which the programs that
// are started from here do not inherit.
void OutliveLimitOfFiles() {
  struct sigaction outlived {};
  outlived.sa_handler = [](int) {};
  outlived.sa_flags = SA_RESTART;
  sigaction(SIGXFSZ, &outlived, nullptr);
}

// A descriptor that is closed would be that of the next file: an error's words would land in it, or end the program (`2>&-`).
// Standard output stays one that cannot be written.
void OpenStandardStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    if (open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

constexpr rlim_t kKiB = 1024;
constexpr rlim_t kLeastStack = 256 * kKiB;   // searches crash at 128 KiB
constexpr rlim_t kUsualStack = 8192 * kKiB;  // of most systems

// As far as the hard limit allows, `ulimit -S -s` makes no difference. Returns the stack where it is too small, else 0.
rlim_t TooSmallStack() {
  rlimit stack{};
  if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= kLeastStack) return 0;
  stack.rlim_cur = std::min(kUsualStack, stack.rlim_max);
  if (stack.rlim_cur < kLeastStack || setrlimit(RLIMIT_STACK, &stack) != 0) return stack.rlim_cur;
  // Threads have taken theirs from the limit that the program began with.
  pthread_attr_t threads;
  pthread_attr_init(&threads);
  pthread_attr_setstacksize(&threads, stack.rlim_cur);
  pthread_setattr_default_np(&threads);
  pthread_attr_destroy(&threads);
  return 0;
}

}  // namespace

int Main(std::vector<std::string> words, Answer (*run)(const CommandLine& line)) {
  OpenStandardStreams();
  OutliveLimitOfFiles();
  std::string out, err;
  if (const rlim_t stack = TooSmallStack(); stack > 0) {
    const Diagnostic why{{},
                         fmt::format("a stack of {} KiB is too small", stack / kKiB),
                         fmt::format("`ulimit -s {}` or more", kLeastStack / kKiB)};
    std::fputs(Render({why}, false).c_str(), stderr);
    AnswerWithErrors(words, {why}, ExitCode::kFailure, &out);
    return static_cast<int>(WriteOut(ExitCode::kFailure, out));
  }
  EndWithLauncher(words.size() > 1 && !words[1].starts_with('-') ? "plan " + words[1] : "plan");
  const auto code = static_cast<ExitCode>(Main(std::move(words), run, &out, &err));
  const ExitCode written = WriteOut(code, out);
  std::fputs(err.c_str(), stderr);  // fmt::print throws where that fails
  return static_cast<int>(written);
}

int ProgramMain(const char* command, int argc, char** argv, Answer (*run)(const CommandLine& line),
                std::initializer_list<std::pair<const char*, const char*>> short_forms) {
  std::vector<std::string> words = {"plan", command};
  words.insert(words.end(), argv + std::min(argc, 1), argv + argc);
  const auto own = std::find(words.begin(), words.end(), "--");
  for (const auto& [letter, name] : short_forms)
    std::replace(words.begin(), own, std::string(letter), std::string(name));
  return Main(std::move(words), run);
}

}  // namespace orrery::cli
