// SPDX-License-Identifier: Apache-2.0
// Reads NCCL's log lines behind "NCCL INFO".
#include "calib/import/nccl_debug.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <tuple>

#include "calib/import/log_lines.h"
#include "calib/import/nccl_log.h"
#include "calib/import/training_log.h"

namespace orrery::measured {
namespace {

constexpr std::string_view kBending[] = {"NCCL_ALGO",
                                         "NCCL_PROTO",
                                         "NCCL_TUNER_PLUGIN",
                                         "NCCL_NVLS_ENABLE",
                                         "NCCL_COLLNET_ENABLE",
                                         "NCCL_MIN_NCHANNELS",
                                         "NCCL_MAX_NCHANNELS",
                                         "NCCL_MIN_CTAS",
                                         "NCCL_MAX_CTAS",
                                         "NCCL_NTHREADS",
                                         "NCCL_LL128_NTHREADS",
                                         "NCCL_THREAD_THRESHOLDS",
                                         "NCCL_TUNER_CONFIG_PATH"};
constexpr std::size_t kMostGarbledNamed = 100;
constexpr std::string_view kInfo = "NCCL INFO ";
constexpr std::string_view kVersion = "NCCL version ";

// As the log writes names: capitals, no or other separators.
bool SameLetters(std::string_view a, std::string_view b) {
  const auto letters = [](std::string_view text) {
    std::string kept;
    for (const char c : text) {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0)
        kept += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return kept;
  };
  return letters(a) == letters(b);
}

template <class Enum>
std::optional<Enum> Named(std::string_view word, int count) {
  for (int i = 0; i < count; ++i) {
    if (SameLetters(word, nccl::Name(static_cast<Enum>(i)))) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

// By name, or by number as older releases print it.
template <class Enum>
std::optional<Enum> NamedOrNumbered(std::string_view word, int count) {
  const std::optional<int64_t> number = WholeIn(word);
  if (!number) return Named<Enum>(word, count);
  if (*number < 0 || *number >= count) return std::nullopt;
  return static_cast<Enum>(*number);
}

std::string_view FirstWord(std::string_view text) {
  const std::size_t start = text.find_first_not_of(' ');
  if (start == std::string_view::npos) return "";
  const std::size_t end = text.find_first_of(" ,", start);
  return text.substr(start, end == std::string_view::npos ? end : end - start);
}

class LogReader {
 public:
  explicit LogReader(const SourcePtr& source) { log_.source = source; }

  NcclDebug Read() {
    ForEachLine(*log_.source, [&](const LogLine& line) { ReadLine(line); });
    if (!seen_) {
      RefuseLog(log_.source, "no line of NCCL in this log",
                "run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING");
    }
    for (auto& [key, choice] : choices_) log_.choices.push_back(choice);
    return std::move(log_);
  }

 private:
  void Garbled(const LogLine& line, std::string why) {
    ++log_.garbled_lines;
    if (log_.garbled.size() < kMostGarbledNamed)
      log_.garbled.push_back({{log_.source, line.number, line.column}, std::move(why), ""});
  }

  void ReadLine(const LogLine& line) {
    if (const std::size_t at = line.text.find(kVersion); at != std::string_view::npos) {
      seen_ = true;
      if (log_.release.empty()) {
        const std::string_view word = FirstWord(line.text.substr(at + kVersion.size()));
        log_.release = std::string(word.substr(0, word.find('+')));
      }
    }
    const std::size_t at = line.text.find(kInfo);
    if (at == std::string_view::npos) return;
    seen_ = true;
    const std::string_view text = Trimmed(line.text.substr(at + kInfo.size()));
    if (Contains(text, " Bytes -> Algo ")) return ReadChoice(line, text);
    if (text.starts_with("Pattern ")) return ReadGraph(line, text);
    if (text.starts_with("Channel ") && Contains(text, "/") && Contains(text, " : "))
      return ReadRing(line, text);
    if (text.starts_with("comm ") && Contains(text, " nRanks ")) return ReadSize(text);
    // "ncclCommInitRank comm 0x55 rank 0 nranks 16 cudaDev 0": before the nodes are known, and also without GRAPH.
    if (text.starts_with("ncclCommInit") && Contains(text, " nranks ")) return ReadSize(text);
    if (Contains(text, " coll channels")) ReadChannels(text);
    if (IsSetting(text)) AddSetting(line, text);
  }

  // Of variables, those that bend a choice or its channels.
  static bool IsSetting(std::string_view text) {
    if (!Contains(text, " set by environment to "))
      return Contains(text, "sing tuner plugin") || Contains(text, "tuner config");
    return std::ranges::any_of(kBending, [&](std::string_view name) {
      return text.starts_with(name) && text.substr(name.size()).starts_with(' ');
    });
  }

  void AddSetting(const LogLine& line, std::string_view text) {  // every rank writes it
    if (log_.settings.size() < kMostGarbledNamed &&
        std::ranges::find(log_.settings, text, &LoggedSetting::text) == log_.settings.end())
      log_.settings.push_back({std::string(text), line.number});
  }

  void ReadChoice(const LogLine& line, std::string_view text) {
    LoggedChoice choice;
    choice.line = line.number;
    std::string_view rest = text;
    if (const std::size_t colon = text.find(": "); colon < text.find(" Bytes")) {
      choice.operation = Named<nccl::Operation>(text.substr(0, colon), nccl::kOperations);
      if (!choice.operation)
        return Garbled(line, fmt::format("no collective '{}'", text.substr(0, colon)));
      rest = text.substr(colon + 2);
    }
    LineCursor cursor(rest);
    const std::optional<int64_t> bytes = cursor.Whole();
    if (!bytes || *bytes < 0 || !cursor.Behind("Algo "))
      return Garbled(line, "a choice without its size");
    const std::string_view algorithm = FirstWord(cursor.Rest());
    if (!cursor.Behind("proto ")) return Garbled(line, "a choice without its protocol");
    const std::string_view protocol = FirstWord(cursor.Rest());
    const auto a = NamedOrNumbered<nccl::Algorithm>(algorithm, nccl::kAlgorithms);
    const auto p = NamedOrNumbered<nccl::Protocol>(protocol, nccl::kProtocols);
    if (!a || !p)
      return Garbled(line,
                     fmt::format("no algorithm '{}' with protocol '{}'", algorithm, protocol));
    choice.bytes = *bytes;
    choice.algorithm = *a;
    choice.protocol = *p;
    if (cursor.Behind("={")) {
      const std::optional<int64_t> low = cursor.Whole();
      cursor.Behind("..");
      const std::optional<int64_t> high = cursor.Whole();
      if (!low || !high || *low < 0 || *high < *low || *high >= kMostChannels)
        return Garbled(line, "channels that are no range");
      choice.channels = static_cast<int>(*high - *low + 1);
    }
    const auto [known, added] = choices_.try_emplace(
        {choice.operation ? static_cast<int>(*choice.operation) : -1, choice.bytes, *a, *p},
        choice);
    if (added) return;
    ++known->second.times;
    known->second.channels = std::max(known->second.channels, choice.channels);
  }

  void ReadGraph(const LogLine& line, std::string_view text) {
    LoggedGraph graph;
    graph.line = line.number;
    LineCursor cursor(text);
    const auto whole = [&](std::string_view behind, int64_t most) -> std::optional<int64_t> {
      if (!cursor.Behind(behind)) return std::nullopt;
      const std::optional<int64_t> value = cursor.Whole();
      return value && *value >= 0 && *value <= most ? value : std::nullopt;
    };
    const auto pattern = whole("Pattern", static_cast<int64_t>(nccl::Pattern::kDirect));
    const auto cross = whole("crossNic", 2);
    const auto channels = whole("nChannels", kMostChannels);
    std::optional<double> inside, across;
    if (cursor.Behind("bw") || cursor.Behind("speed")) inside = cursor.Number();
    if (cursor.Behind("/")) across = cursor.Number();
    if (!pattern || *pattern == 0 || !cross || !channels || !inside || !across)
      return Garbled(line, "a graph that cannot be read");
    graph.pattern = static_cast<nccl::Pattern>(*pattern);
    graph.cross_nic = static_cast<int>(*cross);
    graph.channels = static_cast<int>(*channels);
    graph.inside = *inside;
    graph.across = *across;
    if (cursor.Behind("type ")) {
      const std::string_view types = FirstWord(cursor.Rest());
      const std::size_t slash = types.find('/');
      if (slash != std::string_view::npos) {
        graph.path_inside = std::string(types.substr(0, slash));
        graph.path_across = std::string(types.substr(slash + 1));
      }
    }
    // Every rank of every communicator prints its own; those of the first stand for all.
    const bool known = std::ranges::any_of(
        log_.graphs, [&](const LoggedGraph& one) { return one.pattern == graph.pattern; });
    if (!known) log_.graphs.push_back(std::move(graph));
  }

  // "Channel 00/24 : 0 1 2 3"
  void ReadRing(const LogLine& line, std::string_view text) {
    std::vector<int> ring;
    for (const std::string_view word : SplitAt(text.substr(text.find(" : ") + 3), ' ')) {
      if (word.empty()) continue;
      const std::optional<int64_t> rank = WholeIn(word);
      if (!rank || *rank < 0 || *rank >= kMostRanks)
        return;  // "Channel 00/0 : 0[0] -> 1[1] via P2P"
      ring.push_back(static_cast<int>(*rank));
    }
    if (ring.empty()) return Garbled(line, "a ring without ranks");
    if (!log_.rings.empty() && log_.rings.front().size() > ring.size()) return;
    if (!log_.rings.empty() && log_.rings.front().size() < ring.size()) log_.rings.clear();
    if (log_.rings.size() < static_cast<std::size_t>(kMostChannels)) log_.rings.push_back(ring);
  }

  void ReadSize(std::string_view text) {
    const auto behind = [&](std::string_view word) {
      LineCursor cursor(text);
      const std::optional<int64_t> value =
          cursor.Behind(word) ? cursor.Whole() : std::optional<int64_t>();
      return value && *value > 0 && *value <= kMostRanks ? static_cast<int>(*value) : 0;
    };
    const int ranks = std::max(behind(" nRanks "), behind(" nranks ")), nodes = behind(" nNodes ");
    if (ranks < log_.ranks || (ranks == log_.ranks && nodes == 0)) return;
    log_.ranks = ranks;
    log_.nodes = nodes;
  }

  // "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels"
  void ReadChannels(std::string_view text) {
    if (log_.channels > 0) return;
    for (const std::string_view part : SplitAt(text, ',')) {
      LineCursor cursor(part);
      const int64_t count = cursor.Whole().value_or(0);
      if (count < 0 || count > kMostChannels) continue;
      if (Contains(part, "coll channels")) log_.channels = static_cast<int>(count);
      if (Contains(part, "nvls channels")) log_.nvls_channels = static_cast<int>(count);
    }
  }

  NcclDebug log_;
  bool seen_ = false;
  std::map<std::tuple<int, int64_t, nccl::Algorithm, nccl::Protocol>, LoggedChoice> choices_;
};

}  // namespace

NcclDebug ReadNcclDebug(const SourcePtr& source) { return LogReader(source).Read(); }

NcclFile KindOfNcclFile(const Source& source) {
  const std::size_t first = source.text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || source.text[first] != '<') return NcclFile::kLog;
  constexpr std::size_t kHead = 4096;
  return std::string_view(source.text).substr(first, kHead).find("<graphs") !=
                 std::string_view::npos
             ? NcclFile::kGraphs
             : NcclFile::kTopology;
}

}  // namespace orrery::measured
