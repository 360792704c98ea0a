// SPDX-License-Identifier: Apache-2.0
// The command behind `plan watch`.
#include "calib/program/watch/watch_command.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "calib/import/log_facts.h"
#include "calib/program/watch/watch.h"
#include "model/hardware/cluster_file.h"
#include "model/program/common/program.h"
#include "model/program/common/watch_flags.h"

namespace orrery::cli {
namespace {

constexpr std::size_t kBehindWatch = 2;  // plan watch
constexpr auto kLook = std::chrono::milliseconds(500);
constexpr int64_t kMostPatience = 100'000;

volatile std::sig_atomic_t g_ended = 0;
void End(int) { g_ended = 1; }

struct Settings {
  int patience = 3;
  double idle = 0;  // seconds; 0: for ever
  bool once = false, stop = false, json = false;
};

Settings ReadSettings(const WatchFlags& flags) {
  Diagnostics diagnostics;
  Settings settings;
  settings.patience = static_cast<int>(
      ReadInteger(flags.patience, 1, kMostPatience, &diagnostics).value_or(settings.patience));
  if (const auto idle = ReadQuantity<Seconds>(flags.idle, &diagnostics))
    settings.idle = idle->value;
  settings.once = flags.once.given;
  settings.stop = flags.stop.given;
  settings.json = flags.json.given;
  if (!flags.log.given)
    diagnostics.Error(flags.log.where, "which log?", "plan watch train.log --against plan.json");
  if (!flags.against.given)
    diagnostics.Error(flags.log.where, "against which prediction?", "--against plan.json");
  diagnostics.ThrowIfAny();
  return settings;
}

void Say(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

void SayDeparture(const watch::Departure& one, const watch::Expectation& expected, bool json) {
  Say(json ? watch::DepartureJson(one).dump() + "\n" : watch::DepartureText(one, expected));
}

void SaySummary(const watch::LogCheck& check, const watch::Expectation& expected, bool json) {
  Say(json ? watch::SummaryJson(check, expected).dump() + "\n"
           : watch::SummaryText(check, expected));
}

// Of a program that trains and has not taken a step yet.
bool IsBegunLog(const Source& source) {
  const measured::LogFacts facts = measured::ReadLogFacts(source);
  return facts.has_dump || facts.world_size || !facts.starts.empty() || !facts.plans.empty();
}

// Nobody trains into a file that describes machines. Logs may begin with NCCL's lines, or with names of hosts.
bool IsMachineFile(const Source& source) {
  const ClusterFile kind = KindOfClusterFile(source);
  return kind != ClusterFile::kNone && kind != ClusterFile::kNcclLog &&
         kind != ClusterFile::kHostfile;
}

class Watcher {
 public:
  // A file as it was; another one of the same name has another number.
  struct Seen {
    std::uintmax_t file = 0, size = 0;
    int64_t written_s = 0, written_ns = 0;
    bool operator==(const Seen&) const = default;
  };

  Watcher(const WatchFlags& flags, const Settings& settings) : flags_(flags), settings_(settings) {
    AtFlag(flags.against,
           [&] { expected_ = watch::ReadExpectation(ReadSource(flags.against.text)); });
  }

  // The log is whole: every fault of it is an error.
  ExitCode CheckOnce() {
    AtFlag(flags_.log,
           [&] { Take(measured::ReadTrainingLog(measured::ReadLogSource(flags_.log.text))); });
    for (const watch::Departure& one : check_.departures)
      SayDeparture(one, expected_, settings_.json);
    if (check_.told.loss && settings_.json) SayLoss();
    SaySummary(check_, expected_, settings_.json);
    return check_.Inside() && !check_.LossIsLost() ? ExitCode::kOk : ExitCode::kCheckFailed;
  }

  ExitCode Follow() {
    std::signal(SIGINT, End);
    std::signal(SIGTERM, End);
    auto grown = std::chrono::steady_clock::now();
    Seen seen;
    bool ended = false;
    if (!Exists()) fmt::print(stderr, "{} is not there yet: waiting for it\n", flags_.log.text);
    while (g_ended == 0) {
      const std::optional<Seen> now = LookAt(flags_.log.text);
      if (!now && Exists()) RefuseToFollow();
      if (now && *now != seen) {
        // Another file of this name, which may have the old one's number, or this one from its beginning: lines count anew.
        if (any_ && (now->file != seen.file || now->size <= seen.size)) {
          fmt::print(stderr, "{} was replaced: following the new one\n", flags_.log.text);
          said_.clear();
          said_loss_ = 0;
        }
        seen = *now;
        grown = std::chrono::steady_clock::now();
        any_ = Look(false) || any_;
      }
      if (settings_.stop && (outside_ || check_.LossIsLost())) break;
      const std::chrono::duration<double> quiet = std::chrono::steady_clock::now() - grown;
      ended = settings_.idle > 0 && quiet.count() > settings_.idle;
      if (ended) break;
      std::this_thread::sleep_for(kLook);
    }
    // The last line of a program that has ended may lack its end.
    if (ended && Exists()) any_ = Look(true) || any_;
    if (!any_) {
      const std::string what = fmt::format("{}: no step of it could be timed{}", flags_.log.text,
                                           Exists() ? "" : ": it never came");
      if (g_ended == 0) throw InputError(what);
      fmt::print(stderr, "{}\n", what);
      return ExitCode::kOk;
    }
    check_.outside_before = outside_ && check_.Inside();
    SaySummary(check_, expected_, settings_.json);
    return outside_ || check_.LossIsLost() ? ExitCode::kCheckFailed : ExitCode::kOk;
  }

 private:
  void Take(const measured::TrainingLog& log) {
    if (log.garbled_lines > 0 && settings_.once)
      fmt::print(stderr, "{}", Render(log.garbled, ColourOnErrors()));
    if (!log.digest.empty() && !expected_.digest.empty() && log.digest != expected_.digest)
      throw InputError(fmt::format("the log is of plan {}, the prediction of plan {}", log.digest,
                                   expected_.digest));
    check_ = watch::CheckLog(log, expected_, settings_.patience);
  }

  static std::optional<Seen> LookAt(const std::string& path) {
    struct stat status = {};
    if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
    return Seen{status.st_ino, static_cast<std::uintmax_t>(status.st_size), status.st_mtim.tv_sec,
                status.st_mtim.tv_nsec};
  }

  // It is there, and no regular file: what a look has read of a pipe is gone for the next one.
  void RefuseToFollow() const {
    std::error_code error;
    AtFlag(flags_.log, [&] {
      if (std::filesystem::is_directory(flags_.log.text, error))
        (void)ReadSource(flags_.log.text);  // says so
      if (std::filesystem::exists(flags_.log.text, error) &&
          !std::filesystem::is_regular_file(flags_.log.text, error))
        throw InputError(
            fmt::format("'{}' is no file that can be followed", flags_.log.text),
            "--once reads a pipe to its end; a log that somebody writes is followed by its name");
    });
  }

  bool Exists() const {
    std::error_code error;
    const std::filesystem::path path(flags_.log.text);
    if (std::filesystem::exists(path, error)) return true;
    const std::filesystem::path folder = path.parent_path();
    if (!folder.empty() && !std::filesystem::is_directory(folder, error))
      AtFlag(flags_.log, [&] { (void)ReadSource(flags_.log.text); });  // it cannot come there
    return false;
  }

  // A log that has just begun holds no step; one that has grown and still holds none is perhaps none.
  void DoubtOnce(const SourcePtr& source, const std::string& why) {
    constexpr std::size_t kBegun = std::size_t{64} << 10;  // bytes
    if (doubted_ || any_ || source->text.size() < kBegun) return;
    doubted_ = true;
    fmt::print(stderr, "no step so far: {}\n", why);
  }

  // At the first look: it holds something, nothing of a training, and nobody has written to it for a while.
  bool IsNoLog(const Source& source) const {
    constexpr auto kYoung = std::chrono::minutes(10);  // nodes start, weights load
    if (source.text.find_first_not_of(" \t\r\n") == std::string::npos || IsBegunLog(source))
      return false;
    if (IsMachineFile(source)) return true;
    const std::optional<Seen> now = LookAt(flags_.log.text);
    const auto written =
        std::chrono::system_clock::time_point(std::chrono::seconds(now ? now->written_s : 0));
    return now && std::chrono::system_clock::now() - written > kYoung;
  }

  void SayLoss() const {
    const measured::LossFault& loss = *check_.told.loss;
    Say(settings_.json ? watch::LossJson(loss).dump() + "\n" : watch::LossText(loss));
  }

  // What is being written: half a number is another number.
  static SourcePtr WithoutOpenLine(const SourcePtr& source) {
    const std::size_t end = source->text.find_last_of("\r\n");
    if (end + 1 == source->text.size() || source->text.starts_with('{')) return source;
    return std::make_shared<const Source>(
        Source{source->name, source->text.substr(0, end == std::string::npos ? 0 : end + 1)});
  }

  // False: nothing to judge yet. `whole`: nobody writes it any more.
  bool Look(bool whole) {
    measured::TrainingLog log;
    SourcePtr source;
    try {
      source = measured::ReadLogSource(flags_.log.text);
      if (!whole) source = WithoutOpenLine(source);
    } catch (const InputError&) {
      if (!any_) throw;  // it is no text
      return false;      // it is being replaced
    }
    try {
      log = measured::ReadTrainingLog(source);
    } catch (const InputError& error) {
      if (!std::exchange(looked_, true) && IsNoLog(*source))
        AtFlag(flags_.log, [&] { throw error; });
      DoubtOnce(source, error.what());
      return false;
    }
    looked_ = true;
    if (log.steps.empty()) {
      DoubtOnce(source, "no line of it names one");
      return false;
    }
    Take(log);
    if (check_.LossIsLost() &&
        std::exchange(said_loss_, check_.told.loss->line) != check_.told.loss->line)
      SayLoss();
    for (const watch::Departure& one : check_.departures) {
      outside_ = true;
      // The line of the memory's peak moves to another rank's when that one prints its own.
      const int line = one.mean || one.memory ? 0 : one.line;
      if (said_.emplace(one.memory, one.reserved, line, one.over).second)
        SayDeparture(one, expected_, settings_.json);
    }
    return true;
  }

  const WatchFlags& flags_;
  Settings settings_;
  watch::Expectation expected_;
  watch::LogCheck check_;
  bool outside_ = false, any_ = false, doubted_ = false, looked_ = false;
  int said_loss_ = 0;  // the line since which it is no number, as it was said last
  std::set<std::tuple<bool, bool, int, bool>> said_;
};

}  // namespace

Answer RunWatch(const CommandLine& line) {
  WatchFlags flags;
  if (flags.set.Parse(line, kBehindWatch)) return {ExitCode::kOk, DescribeWatch().help};
  const Settings settings = ReadSettings(flags);
  Watcher watcher(flags, settings);
  return {settings.once ? watcher.CheckOnce() : watcher.Follow(), ""};
}

}  // namespace orrery::cli
