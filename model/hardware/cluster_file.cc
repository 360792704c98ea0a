// SPDX-License-Identifier: Apache-2.0
// Tells files of other programs apart by their first lines.
#include "model/hardware/cluster_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "model/base/plain_text.h"
#include "model/base/text.h"

namespace orrery {
namespace {

constexpr std::size_t kLookedAt = std::size_t{1} << 20;
constexpr int kMostLines = 20'000;

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool IsHex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// "17:00.0 " or "0000:17:00.0 "
bool StartsWithBus(std::string_view line) {
  std::size_t digits = 0;
  while (digits < line.size() && IsHex(line[digits])) ++digits;
  if (digits == 4 && line.substr(4).starts_with(':')) return StartsWithBus(line.substr(5));
  return digits == 2 && line.size() > 7 && line[2] == ':' && IsHex(line[3]) && IsHex(line[4]) &&
         line[5] == '.' && IsHex(line[6]) && line[7] == ' ';
}

// "node0", "node0 slots=8", "node0:8", "10.0.0.1", "node[01-04,7]", "a[1-2],b[1-2]". A bracket that is never closed is for the
// reader to refuse.
bool IsHostLine(std::string_view line) {
  const std::string_view name = line.substr(0, line.find_first_of(" \t"));
  const bool list = Has(name, "[");
  bool inside = false, plain = true;
  for (const char c : name) {
    if (c == '[' || c == ']') {
      plain = plain && inside == (c == ']');
      inside = c == '[';
    } else if (inside) {
      plain = plain && ((c >= '0' && c <= '9') || c == '-' || c == ',');
    } else {
      plain = plain && (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ||
                        c == '.' || c == ':' || (list && c == ','));
    }
  }
  if (!plain || name.empty() || name.ends_with(':') ||
      !std::isalnum(static_cast<unsigned char>(name[0])))
    return false;
  const std::string_view rest = Trim(line.substr(name.size()));
  return rest.empty() || rest.starts_with('#') || Has(rest, "slots=") || Has(rest, "max_slots=");
}

ClusterFile KindOfLine(std::string_view line) {
  if (Has(line, "NCCL INFO") || Has(line, "NCCL version")) return ClusterFile::kNcclLog;
  if (Has(line, "SwitchName=") || line.starts_with("BlockName=") || line.starts_with("- topology:"))
    return ClusterFile::kSlurmTopology;
  if (line.starts_with("NodeName=")) return ClusterFile::kSlurmNodes;
  if (line.starts_with("CA '") || line.starts_with("Infiniband device '"))
    return ClusterFile::kIbstat;
  if (line.starts_with("Slot:\t") || Has(line, "-[0000:") || StartsWithBus(line))
    return ClusterFile::kLspci;
  if (Has(line, "GPU0") && Has(line, "X ") && !Has(line, "GPU1\tGPU2"))
    return ClusterFile::kTopoMatrix;
  if (line.starts_with("GPU0") && Has(line, "X")) return ClusterFile::kTopoMatrix;
  return ClusterFile::kNone;
}

ClusterFile KindOfLines(std::string_view text) {
  bool hosts = true, any = false;
  for (int count = 0; !text.empty() && count < kMostLines; ++count) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (const ClusterFile kind = KindOfLine(line); kind != ClusterFile::kNone) return kind;
    if (line.starts_with("#!") || line.starts_with("#SBATCH ") || line.starts_with("#PBS ") ||
        line.starts_with("#BSUB "))
      return ClusterFile::kNone;  // a script, whose commands may be a word each
    if (line.empty() || line.starts_with('#')) continue;
    any = true;
    hosts = hosts && IsHostLine(line);
  }
  return any && hosts ? ClusterFile::kHostfile : ClusterFile::kNone;
}

}  // namespace

ClusterFile KindOfClusterFile(const Source& source) {
  const std::string_view text = WithoutByteOrderMark(source.text).substr(0, kLookedAt);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return ClusterFile::kNone;
  if (text[first] == '<') {
    if (Has(text, "<graphs")) return ClusterFile::kNcclGraphs;
    if (Has(text, "<system")) return ClusterFile::kNcclTopology;
    return Has(text, "<topology") ? ClusterFile::kHwloc : ClusterFile::kNone;
  }
  if (text[first] == '{' || (text[first] == '[' && Has(text, "\"NetworkNodes\"")))
    return Has(text, "\"NetworkNodes\"") ? ClusterFile::kAwsTopology : ClusterFile::kNone;
  return KindOfLines(text);
}

const char* Name(ClusterFile kind) {
  switch (kind) {
    case ClusterFile::kNone:
      return "none that is known";
    case ClusterFile::kNcclTopology:
      return "a topology dump of NCCL";
    case ClusterFile::kNcclGraphs:
      return "a graph dump of NCCL";
    case ClusterFile::kNcclLog:
      return "a log of NCCL";
    case ClusterFile::kHwloc:
      return "a topology of hwloc";
    case ClusterFile::kTopoMatrix:
      return "the output of nvidia-smi topo -m";
    case ClusterFile::kLspci:
      return "the output of lspci";
    case ClusterFile::kIbstat:
      return "the output of ibstat";
    case ClusterFile::kSlurmTopology:
      return "a topology of Slurm";
    case ClusterFile::kSlurmNodes:
      return "the output of scontrol show node";
    case ClusterFile::kAwsTopology:
      return "an instance topology of AWS";
    case ClusterFile::kHostfile:
      return "a hostfile";
  }
  return "";
}

namespace {

// "torchrun", "srun" and the like in front of a line.
bool StartsJob(std::string_view line) {
  for (const char* word : {"torchrun", "srun", "mpirun", "mpiexec", "jsrun", "deepspeed",
                           "accelerate", "python", "python3", "exec"}) {
    if (line.starts_with(word) && line.substr(std::string_view(word).size()).starts_with(' '))
      return true;
  }
  return false;
}

// A script, or a configuration of training, by its content; "": neither.
std::string JobIn(const Source& source) {
  std::string_view text = WithoutByteOrderMark(source.text).substr(0, kLookedAt);
  const std::string_view begin =
      text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  if (begin.starts_with('{')) {
    for (const char* key : {"\"train_batch_size\"", "\"train_micro_batch_size_per_gpu\"",
                            "\"zero_optimization\"", "\"per_device_train_batch_size\""})
      if (Has(text, key)) return "a configuration of training";
    return Has(text, "\"orrery.export/") ? "a record of plan export" : "";
  }
  if (begin.starts_with("#!")) return "a script";
  for (int count = 0; !text.empty() && count < kMostLines; ++count) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.starts_with("#SBATCH ") || line.starts_with("#PBS ") || line.starts_with("#BSUB ") ||
        StartsJob(line))
      return "a job's script";
  }
  return "";
}

}  // namespace

void RefuseJobFile(const SourcePtr& source, const std::string& wanted) {
  const std::string job = JobIn(*source);
  if (job.empty()) return;
  throw InputError({{{source, 1, 1},
                     fmt::format("this is {}, not {}", job, wanted),
                     "plan predict --from " + source->name + " reads the job that it starts"}});
}

bool ReadsAsWords(const Source& source) {
  const std::string_view text = source.text;
  if (Has(text, "slots=")) return false;
  const bool one = text.find_last_not_of(" \t\r\n") < text.find('\n');
  return one || text.find_first_of("0123456789.-_[:") == std::string_view::npos;
}

void RefuseMachineFile(const SourcePtr& source, const std::string& wanted) {
  const ClusterFile kind = KindOfClusterFile(*source);
  if (kind == ClusterFile::kNone) RefuseJobFile(source, wanted);
  if (kind == ClusterFile::kNone || (kind == ClusterFile::kHostfile && ReadsAsWords(*source)))
    return;
  throw InputError({{{source, 1, 1},
                     std::string("this is ") + Name(kind) + ", not " + wanted,
                     "plan discover " + source->name +
                         " --out cluster.yaml makes a topology of it, "
                         "for --topology cluster.yaml" +
                         (kind == ClusterFile::kHostfile
                              ? "; plan run --hostfile and plan launch --hosts start on its hosts"
                              : "")}});
}

void RefuseMachineFile(const std::string& path, const std::string& wanted) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return;
  SourcePtr source;
  try {
    source = ReadSource(path);
  } catch (const InputError&) {
    return;  // it is no text
  }
  RefuseMachineFile(source, wanted);
}

}  // namespace orrery
