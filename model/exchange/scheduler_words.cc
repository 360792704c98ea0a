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

void CheckOneKind(const Setting& gpus) {
  const bool list = gpus.key == "gres";
  std::string first, kind;
  for (std::size_t begin = 0; begin < gpus.value.size();) {
    const std::size_t end = std::min(gpus.value.find(',', begin), gpus.value.size());
    const std::string entry = gpus.value.substr(begin, end - begin);
    begin = end + 1;
    kind.clear();
    if (GpusIn(entry, list, &kind).empty()) continue;
    if (first.empty()) first = kind;
    if (kind == first) continue;
    throw InputError(
        {{gpus.where, fmt::format("GPUs of two kinds: {} and {} in '{}'", first, kind, gpus.value),
          "plans have one kind on all nodes: leave the other out"}});
  }
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

// "BSUB -nnodes 4"
std::string BsubNodes(const Word& comment) {
  const Words words = DirectiveWords(comment, std::string_view("BSUB").size());
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i].text == "-nnodes") return words[i + 1].text;
  }
  return "";
}

}  // namespace orrery::exchange
