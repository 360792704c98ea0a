// SPDX-License-Identifier: Apache-2.0
// Words of Slurm's, PBS's and LSF's directives and options.
#include <fmt/format.h>

#include "model/exchange/launch_words.h"

namespace orrery::exchange {

Words DirectiveWords(const Word& comment, std::size_t front) {
  Words words;
  std::string word;
  for (const char c : comment.text.substr(std::min(front, comment.text.size())) + " ") {
    if (c == '#') break;
    if (c != ' ' && c != '\t') {
      word += c;
      continue;
    }
    if (word.size() > 2 && word[0] == '-' && word[1] != '-' && IsWhole(word.substr(2))) {
      words.push_back({word.substr(0, 2), comment.where, ""});
      word.erase(0, 2);
    }
    if (!word.empty()) words.push_back({std::move(word), comment.where, ""});
    word.clear();
  }
  return words;
}

std::string GpusIn(const std::string& text, bool list, std::string* type) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string entry = text.substr(begin, end - begin);
    begin = end + 1;
    entry.resize(std::min(entry.find('('), entry.size()));  // sockets, "(S:0-1)"
    if (entry.starts_with("gres/")) entry.erase(0, 5);
    if (list && entry != "gpu" && !entry.starts_with("gpu:")) continue;
    if (list) entry.erase(0, entry == "gpu" ? 3 : 4);
    const std::size_t colon = entry.rfind(':');
    const std::string count = colon == std::string::npos ? entry : entry.substr(colon + 1);
    const bool whole = IsWhole(count);
    if (type != nullptr && (colon != std::string::npos || !whole))
      *type = whole ? entry.substr(0, colon) : entry;
    if (whole) return count;
    return list ? "1" : "";  // "gpu" and "gpu:h100" are one
  }
  return "";
}

Setting CountedNodes(Setting count) {
  if (IsWhole(count.value)) return count;
  // Elastic jobs: least:most of torchrun, least-most of Slurm.
  const std::size_t sign = count.value.find_first_of(":-");
  const std::string least = count.value.substr(0, sign),
                    most = sign == std::string::npos ? "" : count.value.substr(sign + 1);
  if (IsWhole(least) && least == most) {
    count.value = least;
  } else if (IsWhole(least) && IsWhole(most)) {
    count.unresolved = fmt::format("'{}' is a range of nodes", count.value);
  } else if (count.value.find('$') != std::string::npos) {
    count.unresolved = fmt::format("'{}' is expanded by nobody here", count.value);
  } else {
    count.unresolved = fmt::format("'{}' is no number of nodes", count.value);
  }
  return count;
}

// PBS Pro's select=4:ngpus=8 and Torque's nodes=4:ppn=8:gpus=8.
Settings PbsCounts(const Setting& setting) {
  Settings counts;
  const std::size_t begin = setting.value.find('=') + 1;
  if (setting.value.find('+') != std::string::npos)  // chunks of several kinds
    return {{"NNODES", setting.value.substr(begin), setting.where, ""}};
  std::string rest = setting.value.substr(begin) + ":";
  bool first = true;
  for (std::size_t colon = rest.find(':'); colon != std::string::npos; colon = rest.find(':')) {
    const std::string part = rest.substr(0, colon);
    rest.erase(0, colon + 1);
    if (first) counts.push_back({"NNODES", part, setting.where, ""});
    for (const std::string_view gpus : {"ngpus=", "gpus="}) {
      if (part.starts_with(gpus) && IsWhole(part.substr(gpus.size())))
        counts.push_back({"GPUS_PER_NODE", part.substr(gpus.size()), setting.where, ""});
    }
    first = false;
  }
  return counts;
}

// "BSUB -nnodes 4"
std::string BsubNodes(const Word& comment) {
  const Words words = DirectiveWords(comment, std::string_view("BSUB").size());
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i].text == "-nnodes") return words[i + 1].text;
  }
  return "";
}

}  // namespace orrery::exchange
