// SPDX-License-Identifier: Apache-2.0
// Asks the terminals, the environment and the command line.
#include "model/program/common/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>

#include "model/base/diagnostics.h"
#include "model/base/parallel.h"
#include "model/base/text.h"
#include "model/program/common/table.h"
#include "model/program/common/wide_lines.h"

namespace orrery::cli {
namespace {

constexpr std::size_t kNarrowest = 40, kWidest = 400, kUsual = 80;
constexpr const char *kBold = "\x1b[1m", *kGreen = "\x1b[1;32m", *kRed = "\x1b[31m",
                     *kPlain = "\x1b[0m";

Terminal g_terminal;

bool IsSet(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

// Open MPI gives each rank a terminal of its own, which says nothing about who reads what it gathers.
bool IsTerminal(int descriptor) {
  return isatty(descriptor) != 0 && !IsSet("OMPI_COMM_WORLD_SIZE");
}

bool MayColour(int descriptor) {
  const char* kind = std::getenv("TERM");
  return IsTerminal(descriptor) && !IsSet("NO_COLOR") &&
         (kind == nullptr || std::string_view(kind) != "dumb");
}

}  // namespace

std::size_t ColumnsOf(int descriptor) {
  if (!IsTerminal(descriptor)) return 0;
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return std::clamp<std::size_t>(size.ws_col, kNarrowest, kWidest);
}

Terminal DecideTerminal(std::vector<std::string>* words) {
  Terminal terminal{ColumnsOf(STDOUT_FILENO),
                    MayColour(STDOUT_FILENO),
                    MayColour(STDERR_FILENO),
                    false,
                    IsTerminal(STDERR_FILENO),
                    // Ranks of one job would all say so.
                    !IsTerminal(STDERR_FILENO) && !IsSet("OMPI_COMM_WORLD_SIZE"),
                    {}};
  const auto take = [&](std::size_t at, std::size_t count) {
    const auto from = words->begin() + static_cast<std::ptrdiff_t>(at);
    const auto to = from + static_cast<std::ptrdiff_t>(count);
    terminal.given.insert(terminal.given.end(), from, to);
    words->erase(from, to);
  };
  for (std::size_t i = 1; i < words->size() && (*words)[i] != "--";) {
    const std::string word = (*words)[i];
    const bool apart = word == "--color";
    if (word == "--quiet") {
      terminal.quiet = true;
      terminal.shows_progress = terminal.logs_progress = false;
      take(i, 1);
    } else if (apart || word.starts_with("--color=")) {
      const std::string when = !apart                  ? word.substr(std::string("--color=").size())
                               : i + 1 < words->size() ? (*words)[i + 1]
                                                       : "";
      if (when != "auto" && when != "always" && when != "never")
        throw InputError(fmt::format("--color: '{}' is not known", when),
                         "one of: auto, always, never");
      if (when != "auto") terminal.colour = terminal.error_colour = when == "always";
      take(i, apart ? 2 : 1);
    } else {
      ++i;
    }
  }
  return terminal;
}

const Terminal& CurrentTerminal() { return g_terminal; }

std::vector<std::string> LooksForRanks() {
  std::vector<std::string> words;
  if (g_terminal.quiet) words.emplace_back("--quiet");
  if (g_terminal.colour) words.emplace_back("--color=always");
  return words;
}

void SetTerminal(Terminal terminal) {
  g_terminal = std::move(terminal);
  report::SetPageWidth(g_terminal.width);
}

std::string Painted(const std::string& text) {
  std::string painted;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const bool misses = line.find("out of memory") != std::string::npos ||
                        line.find("does not fit") != std::string::npos;
    const char* paint = misses                                                  ? kRed
                        : line.starts_with("  = 1 ")                            ? kGreen
                        : !line.empty() && line.find_first_of(" \t#{}[\"") != 0 ? kBold
                                                                                : nullptr;
    painted += paint == nullptr ? line : paint + line + kPlain;
    if (end < text.size()) painted += '\n';
    begin = end + 1;
  }
  return painted;
}

class Progress::Writer {
 public:
  explicit Writer(bool lines) : lines_(lines), thread_(StartThread([this] { Write(); })) {}
  ~Writer() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void At(const char* what, double share) {
    const std::lock_guard lock(mutex_);
    if (what != what_) {
      what_ = what;
      since_ = Clock::now();
    }
    share_ = std::clamp(share, 0.0, 1.0);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPatience{2};
  static constexpr std::chrono::milliseconds kPause{250};
  static constexpr std::chrono::seconds kLineEvery{10};
  static constexpr double kTooEarly = 0.02;  // a share that says nothing of the time left

  void Write() {
    std::unique_lock lock(mutex_);
    const auto ends = [this] { return ends_; };
    while (lines_ && !changed_.wait_for(lock, kLineEvery, ends)) {
      fmt::print(stderr, "{}\n", Line());
      std::fflush(stderr);
    }
    if (lines_ || changed_.wait_for(lock, kPatience, ends)) return;
    do {
      fmt::print(stderr, "\r\x1b[K{}", Line());
      std::fflush(stderr);
    } while (!changed_.wait_for(lock, kPause, ends));
    fmt::print(stderr, "\r\x1b[K");
    std::fflush(stderr);
  }

  std::string Line() const {
    if (share_ < kTooEarly) return fmt::format("{} ...", what_);
    const double passed = std::chrono::duration<double>(Clock::now() - since_).count();
    return fmt::format("{}: {:.0f} %, {} left", what_, 100 * share_,
                       Format(Seconds(passed * (1 / share_ - 1))));
  }

  const bool lines_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const char* what_ = "working";
  double share_ = 0;
  Clock::time_point since_ = Clock::now();
  bool ends_ = false;
  std::thread thread_;  // last: it uses all the others
};

Progress::Progress() {
  if (!g_terminal.shows_progress && !g_terminal.logs_progress) return;
  try {
    writer_ = std::make_unique<Writer>(!g_terminal.shows_progress);
  } catch (const std::system_error&) {
    // No further thread is allowed: the answer matters more.
  }
}

Progress::~Progress() = default;

void Progress::At(const char* what, double share) {
  if (writer_ != nullptr) writer_->At(what, share);
}

}  // namespace orrery::cli
