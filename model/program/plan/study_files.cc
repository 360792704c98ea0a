// SPDX-License-Identifier: Apache-2.0
// Append-only parts, and one merge.
#include "model/program/plan/study_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "model/base/write_file.h"

namespace orrery::cli {
namespace {

namespace fs = std::filesystem;

int FromVariables(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names) {
    if (const char* text = std::getenv(name)) {
      char* end = nullptr;
      const int64_t value = std::strtol(text, &end, 10);
      if (end != text && value >= 0) return static_cast<int>(value);
    }
  }
  return otherwise;
}

// Calls visit(line, where it begins) for each line that has its end, from the one that begins at `at`.
template <class Visit>
void ForEachLine(const std::string& path, const Visit& visit, int64_t at = 0) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  file.seekg(at);
  while (std::getline(file, line) && !file.eof()) {
    visit(line, at);
    at += static_cast<int64_t>(line.size()) + 1;
  }
}

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

[[noreturn]] void Fail(const Flag& out, const std::string& why, const std::string& hint) {
  throw InputError({{out.where, why, hint}});
}

}  // namespace

StudyPlace FindStudyPlace() {
  StudyPlace place;
  place.size = FromVariables({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 0);
  place.rank = FromVariables({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}, 0);
  if (place.size == 0) {
    place.size = FromVariables({"WORLD_SIZE"}, 0);
    place.rank = FromVariables({"RANK"}, 0);
    place.by_common_names = true;
  }
  // sbatch sets these for a script without srun, too: a step tells.
  if (place.size == 0 && std::getenv("SLURM_STEP_ID") != nullptr) {
    place.size = FromVariables({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, 1);
    place.rank = FromVariables({"SLURM_PROCID"}, 0);
    place.by_common_names = false;
  }
  if (place.size < 1 || place.rank >= place.size) return {};
  // Of Slurm: "2(x3),1" counts nodes with so many tasks each.
  place.on_machine = std::max(1, FromVariables({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                                "LOCAL_WORLD_SIZE", "SLURM_STEP_TASKS_PER_NODE"},
                                               place.size));
  return place;
}

StudyFiles::StudyFiles(const Study& study, const Flag& out, const StudyPlace& place,
                       std::string how)
    : study_(study),
      out_(out),
      how_(std::move(how)),
      done_(static_cast<std::size_t>(study.rows()), false),
      seen_(done_) {
  std::error_code error;
  if (fs::is_directory(out.text, error))
    Fail(out, fmt::format("'{}' is a folder", out.text), "--out names a file");
  if (const std::string why = WhyNotWritable(out.text); !why.empty())
    Fail(out, fmt::format("cannot write '{}': {}", out.text, why),
         "--out names a file in a folder that exists");
  if (fs::exists(out.text, error) && !fs::exists(Folder(), error))
    Fail(out, fmt::format("'{}' exists, and its study's folder '{}' does not", out.text, Folder()),
         "another --out, or remove the file");
  if (fs::is_symlink(Folder(), error))
    Fail(out,
         fmt::format("cannot write into '{}': it is a symbolic link, which is not followed",
                     Folder()),
         "remove the link, or another --out");
  fs::create_directory(Folder(), error);
  const std::string path = fmt::format("{}/rows-{}.csv", Folder(), place.rank);
  errno = 0;
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor_ < 0)
    Fail(out, fmt::format("cannot write '{}': {}", path, std::strerror(errno)),
         "--out names a file in a folder that exists");
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0)
    Fail(out, fmt::format("another sweep is writing '{}'", path), "wait for it, or another --out");
  CheckStudy();
  CutOff(path);
  complete_ = CheckOut();
  rows_done_ = CountRows();
  done_ = seen_;
}

StudyFiles::~StudyFiles() {
  if (descriptor_ >= 0) close(descriptor_);
}

// The first process of a study leaves its text; whoever comes later compares. Processes that start together write the same.
void StudyFiles::CheckStudy() const {
  const std::string path = Folder() + "/study.txt", text = study_.Text() + how_ + CsvHeader(study_);
  std::error_code error;
  if (!fs::exists(path, error)) {
    const std::string aside = fmt::format("{}.{}", path, getpid());
    if (const std::string why = WriteTextFile(aside, text); !why.empty())
      Fail(out_, fmt::format("cannot write '{}': {}", aside, why), "");
    fs::rename(aside, path, error);
  }
  if (ReadWhole(path) != text)
    Fail(out_, fmt::format("'{}' holds rows of another study or release", Folder()),
         "another --out, or remove that folder");
}

// OUT is written whole or not at all: what differs now was changed since, and is not overwritten.
bool StudyFiles::CheckOut() const {
  std::error_code error;
  if (fs::file_size(out_.text, error) == 0 || error) return false;
  std::vector<bool> seen(done_.size(), false);
  int64_t number = 0, count = 0;
  const auto refuse = [&](const std::string& why) {
    Fail(out_, fmt::format("'{}' {}", out_.text, why),
         "remove the file and the rows are predicted again, or give another --out");
  };
  ForEachLine(out_.text, [&](const std::string& line, int64_t) {
    if (++number == 1) {
      if (line + "\n" != CsvHeader(study_)) refuse("does not begin with the columns of this study");
      return;
    }
    const int64_t row = RowOfLine(study_, line);
    if (row < 0) refuse(fmt::format("has no whole row of this study in line {}", number));
    if (seen[static_cast<std::size_t>(row)])
      refuse(fmt::format("has row {} twice, again in line {}", row, number));
    seen[static_cast<std::size_t>(row)] = true;
    ++count;
  });
  if (count < study_.rows())
    refuse(fmt::format("lacks {} of {} rows", study_.rows() - count, study_.rows()));
  return true;
}

// A process that was killed may have left the beginning of a row.
void StudyFiles::CutOff(const std::string& part) const {
  int64_t whole = 0;
  ForEachLine(part, [&](const std::string& line, int64_t at) {
    whole = at + static_cast<int64_t>(line.size()) + 1;
  });
  if (ftruncate(descriptor_, whole) != 0)
    Fail(out_, fmt::format("cannot write '{}': {}", part, std::strerror(errno)), "");
}

std::vector<std::string> StudyFiles::Parts() const {
  std::vector<std::string> parts;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(Folder(), error)) {
    if (entry.path().extension() == ".csv") parts.push_back(entry.path().string());
  }
  std::ranges::sort(parts);
  return parts;
}

void StudyFiles::Append(const std::string& lines) {
  const std::lock_guard lock(mutex_);
  for (std::size_t at = 0; at < lines.size();) {
    const ssize_t written = write(descriptor_, lines.data() + at, lines.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0)
      Fail(out_, fmt::format("cannot write a row: {}", std::strerror(errno)),
           "the same command goes on from here");
    at += static_cast<std::size_t>(written);
  }
}

int64_t StudyFiles::CountRows() {
  const std::lock_guard lock(counting_);
  for (const std::string& part : Parts()) {
    int64_t& from = read_to_[part];
    ForEachLine(
        part,
        [&](const std::string& line, int64_t at) {
          from = at + static_cast<int64_t>(line.size()) + 1;
          const int64_t row = RowOfLine(study_, line);
          if (row < 0 || seen_[static_cast<std::size_t>(row)]) return;
          seen_[static_cast<std::size_t>(row)] = true;
          ++rows_seen_;
        },
        from);
  }
  return rows_seen_;
}

void StudyFiles::Merge() {
  struct Place {
    int32_t part = -1;
    int64_t at = 0;
  };
  const std::vector<std::string> parts = Parts();
  std::vector<Place> places(done_.size());
  for (std::size_t p = 0; p < parts.size(); ++p) {
    ForEachLine(parts[p], [&](const std::string& line, int64_t at) {
      const int64_t row = RowOfLine(study_, line);
      if (row >= 0 && places[static_cast<std::size_t>(row)].part < 0)
        places[static_cast<std::size_t>(row)] = {static_cast<int32_t>(p), at};
    });
  }
  std::vector<std::ifstream> files;
  for (const std::string& part : parts) files.emplace_back(part, std::ios::binary);
  const std::string aside = out_.text + ".part";
  if (const std::string why = WhyNotWritable(aside); !why.empty())
    Fail(out_, fmt::format("cannot write '{}': {}", aside, why), "");
  std::ofstream merged(aside, std::ios::binary);
  merged << CsvHeader(study_);
  std::string line;
  for (const Place& place : places) {
    std::ifstream& file = files[static_cast<std::size_t>(place.part)];
    if (file.tellg() != place.at) file.seekg(place.at);
    std::getline(file, line);
    merged << line << '\n';
  }
  merged.close();
  std::error_code error;
  if (merged) fs::rename(aside, out_.text, error);
  if (!merged || error) {
    const std::string why =
        error ? error.message() : "the disk is full, a limit of size, or the folder is gone";
    fs::remove(aside, error);
    Fail(out_, fmt::format("cannot write '{}': {}", out_.text, why),
         "the same command goes on from here");
  }
  for (const std::string& part : parts) fs::remove(part, error);
  complete_ = true;
}

void StudyFiles::ForEachRow(const std::function<void(const std::string& line)>& visit) const {
  ForEachLine(out_.text, [&](const std::string& line, int64_t) {
    if (RowOfLine(study_, line) >= 0) visit(line);
  });
}

}  // namespace orrery::cli
