// SPDX-License-Identifier: Apache-2.0
// The layers of each chunk as text: Megatron's layout by letters, and the list of --layout.
//
// NVIDIA/Megatron-LM, megatron/core/transformer/pipeline_parallel_layer_layout.py, parse_str_to_list.
#include <fmt/format.h>

#include <algorithm>

#include "model/base/plain_text.h"
#include "model/base/text.h"
#include "model/exchange/rules.h"

namespace orrery::exchange {

void RefuseLayout(const Setting& setting, const std::string& why) {
  throw InputError({{setting.where, fmt::format("{} '{}': {}", setting.key, setting.value, why),
                     "stages between |, E for the embedding, t for a layer, L for the loss: "
                     "Et*3|t*4|tttL"}});
}

namespace {

constexpr int64_t kMostChunks = 4096;
constexpr std::size_t kMostLetters = 64 * kMostChunks;

// The number behind the '*' at `at`; moves past it.
int64_t Times(const Setting& setting, const std::string& text, std::size_t* at) {
  std::size_t end = ++*at;
  while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
  int64_t times = 0;
  if (ParseInteger(std::string_view(text).substr(*at, end - *at), &times) != NumberFault::kNone ||
      times < 1 || times > kMostChunks)
    RefuseLayout(setting, "'*' stands between a stage or letter and a number");
  *at = end;
  return times;
}

void Repeat(const std::string& part, int64_t times, std::string* out) {
  for (int64_t i = 0; i < times && out->size() < kMostLetters; ++i) *out += part;
}

// (ab|)*3 repeats what is in brackets, letters with a number of their own included.
std::string WithoutBrackets(const Setting& setting, const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '(') {
      out += text[at++];
      continue;
    }
    const std::size_t end = text.find(')', at);
    if (end == std::string::npos) RefuseLayout(setting, "a bracket is never closed");
    const std::string part = text.substr(at + 1, end - at - 1);
    at = end + 1;
    const bool repeated = at < text.size() && text[at] == '*';
    Repeat(part, repeated ? Times(setting, text, &at) : 1, &out);
  }
  return out;
}

// Brackets first, then x*3 for a letter; commas mean nothing.
std::string Unrolled(const Setting& setting) {
  std::string text, out;
  std::ranges::copy_if(setting.value, std::back_inserter(text),
                       [](char c) { return c != ',' && c != ' ' && c != '\'' && c != '"'; });
  text = WithoutBrackets(setting, text);
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '*') RefuseLayout(setting, "'*' stands between a stage or letter and a number");
    const std::string letter = text.substr(at++, 1);
    const bool repeated = at < text.size() && text[at] == '*';
    Repeat(letter, repeated ? Times(setting, text, &at) : 1, &out);
  }
  return out;
}

}  // namespace

std::string MegatronLayout(const std::vector<int>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (i > 0) text += '|';
    if (i == 0) text += 'E';
    if (layers[i] > 0) text += layers[i] > 1 ? fmt::format("t*{}", layers[i]) : "t";
    if (i + 1 == layers.size()) text += 'L';
  }
  return text;
}

std::vector<int> LayersOfMegatronLayout(const Setting& setting) {
  std::vector<int> layers = {0};
  const std::string text = Unrolled(setting);
  for (const char letter : text) {
    if (letter == '|') {
      layers.push_back(0);
      if (layers.size() > kMostChunks) RefuseLayout(setting, "more than 4096 stages");
    } else if (letter == 't') {
      ++layers.back();
    } else if (letter == 'm') {
      RefuseLayout(setting, "layers for multi-token prediction (m) are not modelled");
    } else if (letter != 'E' && letter != 'L') {
      RefuseLayout(setting, fmt::format("'{}' is no layer", letter));
    }
  }
  if (text.empty() || text.front() != 'E' || std::ranges::count(text, 'E') != 1)
    RefuseLayout(setting, "it begins with the one embedding");
  if (text.back() != 'L' || std::ranges::count(text, 'L') != 1)
    RefuseLayout(setting, "it ends with the one loss");
  return layers;
}

std::string ListText(const std::vector<int>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i;
    while (end < layers.size() && layers[end] == layers[i]) ++end;
    text += text.empty() ? "" : ",";
    text += end - i == 1 ? Text(layers[i]) : fmt::format("{}x{}", end - i, layers[i]);
    i = end;
  }
  return text;
}

}  // namespace orrery::exchange
