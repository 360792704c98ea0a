// SPDX-License-Identifier: Apache-2.0
// Steps as lines of JSON, and their sums.
#include "runtime/program/run/lives.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>

#include "model/base/median.h"
#include "model/base/read_file.h"
#include "runtime/train/snapshot/files.h"

namespace orrery::cli {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

Json StepOrNull(int64_t step) { return step < 0 ? Json() : Json(step); }

// What ranks have written into the folder of the run, to which others may have added theirs: "" and a word for what is
// no such file.
std::string Written(const std::string& path) {
  constexpr std::size_t kMost = std::size_t{4} << 30;  // 30 million steps
  try {
    return RegularFile(path, Links::kRefuse).Text(kMost);
  } catch (const FileError& error) {
    if (!error.missing)
      fmt::print(stderr, "plan run: supervisor: cannot read '{}': {}\n", path, error.what());
    return "";
  }
}

// The last line may be torn: its rank was killed.
void ReadSteps(const std::string& path, Json* heading, Json* steps) {
  std::istringstream file(Written(path));
  for (std::string line; std::getline(file, line);) {
    Json read = Json::parse(line, nullptr, false);
    if (read.is_discarded() || !read.is_object()) continue;
    if (read.contains("step"))
      steps->push_back(std::move(read));
    else
      *heading = std::move(read);
  }
}

}  // namespace

void LifeHook::BeforeTraining(exec::Executor* executor) {
  const char* const path = std::getenv(kStepsFile);
  if (path == nullptr || endpoint_->rank() != 0) return;
  file_.open(path, std::ios::trunc);
  file_ << Json{{"layout", job_.layout},
                {"digest", job_.digest},
                {"ranks", job_.ranks()},
                {"behind_step", executor->steps_done()}}
               .dump()
        << std::endl;
  flushed_ = Clock::now();
}

void LifeHook::AfterStep(exec::Executor*, const launch::StepRecord& record) {
  if (!file_.is_open()) return;
  file_ << Json{{"step", record.step},
                {"loss", record.result.loss},
                {"gradient_norm", record.result.gradient_norm},
                {"rank_0_seconds", record.result.seconds}}
               .dump()
        << '\n';
  // What a snapshot goes on from is there before the snapshot is, and what a killed rank repeats to a hundredth of a second.
  const bool saves = job_.save_every > 0 && record.step % job_.save_every == 0;
  const Clock::time_point now = Clock::now();
  if (!saves && now - flushed_ < std::chrono::milliseconds(10)) return;
  file_.flush();
  flushed_ = now;
}

void LifeHook::AfterTraining(exec::Executor*) {
  if (file_.is_open()) file_.close();
}

Lives::Lives(const RunJob& job, std::string folder, bool kept)
    : job_(job), folder_(std::move(folder)), kept_(kept), start_(Clock::now()) {
  snapshot::MakeFolder(folder_);
}

Lives::~Lives() { RemoveFiles(); }

void Lives::RemoveFiles() const {
  std::error_code ignored;
  for (const std::string& path : {steps_file(), record_file(), cause_file()})
    std::filesystem::remove(path, ignored);
}

double Lives::Now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

void Lives::Begin(int64_t behind) {
  RemoveFiles();
  said_.clear();
  if (!kept()) return;
  Life life;
  life.behind = behind;
  life.began_s = Now();
  lives_.push_back(std::move(life));
}

void Lives::End(const LifeEnd& end) {
  const std::string said = Written(cause_file());
  said_ = said.substr(0, said.find('\n'));
  if (!kept()) return;
  Life& life = lives_.back();
  life.seconds = Now() - life.began_s;
  life.end = end;
  if (end.failed && !said_.empty()) life.end.cause += ": " + said_;
  ReadSteps(steps_file(), &life.heading, &life.steps);
  record_ = Json::parse(Written(record_file()), nullptr, false);
  if (!record_.is_object()) record_ = Json();
}

Json Lives::Whole() const {
  std::set<int64_t> done;
  std::vector<double> seconds;
  int64_t steps = 0, failures = 0;
  double alive = 0, end = 0, loss = 0;
  for (const Life& life : lives_) {
    failures += life.end.failed ? 1 : 0;
    alive += life.seconds;
    end = life.began_s + life.seconds;
    for (const Json& step : life.steps) {
      ++steps;
      done.insert(step["step"].get<int64_t>());
      if (&step != &life.steps.front())  // caches, page faults
        seconds.push_back(step["rank_0_seconds"].get<double>());
      if (step["loss"].is_number()) loss = step["loss"].get<double>();
    }
  }
  const auto count = static_cast<int64_t>(done.size());
  const auto tokens = static_cast<double>(count * job_.facts.tokens);
  Json whole = {{"lives", lives_.size()},
                {"failures", failures},
                {"seconds", end},
                {"seconds_between_lives", end - alive},
                {"steps", count},
                {"steps_repeated", steps - count},
                {"first_step", done.empty() ? Json() : Json(*done.begin())},
                {"last_step", done.empty() ? Json() : Json(*done.rbegin())},
                {"samples", count * job_.facts.samples},
                {"tokens", count * job_.facts.tokens},
                {"tokens_per_s", end > 0 ? tokens / end : 0}};  // all that was lost counted
  whole["median_rank_0_step_s"] = seconds.empty() ? Json() : Json(Median(std::move(seconds)));
  whole["last_loss"] = steps == 0 ? Json() : Json(loss);
  return whole;
}

Json Lives::Record() const {
  Json record = record_;
  if (record.is_null())
    record = {{"schema", "orrery.run/1"},
              {"name", job_.name},
              {"layout", job_.layout},
              {"digest", job_.digest},
              {"ranks", job_.ranks()},
              {"samples_per_step", job_.facts.samples},
              {"tokens_per_step", job_.facts.tokens},
              {"steps", Json::array()}};
  Json lives = Json::array();
  for (const Life& life : lives_) {
    Json one = {{"began_s", life.began_s},
                {"seconds", life.seconds},
                {"cause", life.end.cause},
                {"failed", life.end.failed},
                {"continues_behind_step", StepOrNull(life.behind)},
                {"saved_step", StepOrNull(life.end.saved)}};
    for (const auto& [key, value] : life.heading.items()) one[key] = value;
    one["steps"] = life.steps;
    lives.push_back(std::move(one));
  }
  record["lives"] = std::move(lives);
  record["whole_run"] = Whole();
  return record;
}

}  // namespace orrery::cli
