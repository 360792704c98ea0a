// SPDX-License-Identifier: Apache-2.0
// Looks for what stands behind the word "loss".
#include "calib/import/loss_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "calib/import/log_lines.h"

namespace orrery::measured {
namespace {

enum class Loss { kNone, kNumber, kInfinite, kNan };  // the worst last

bool IsWordLetter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool StartsAs(std::string_view text, std::string_view word) {
  return text.size() >= word.size() &&
         std::ranges::equal(text.substr(0, word.size()), word, [](char c, char w) {
           return std::tolower(static_cast<unsigned char>(c)) == w;
         });
}

// What stands behind "loss", or behind a colour that hides it: torchtitan paints its words.
Loss ValueBehind(std::string_view text) {
  while (!text.empty()) {
    if (text.starts_with("\x1b[")) {
      text.remove_prefix(std::min(text.find('m'), text.size() - 1) + 1);
    } else if (std::string_view(" \t\"':=+-").find(text.front()) != std::string_view::npos) {
      text.remove_prefix(1);
    } else {
      break;
    }
  }
  if (text.empty()) return Loss::kNone;
  if (std::isdigit(static_cast<unsigned char>(text.front())) != 0) return Loss::kNumber;
  for (const auto& [word, loss] :
       {std::pair{"nan", Loss::kNan}, {"infinity", Loss::kInfinite}, {"inf", Loss::kInfinite}}) {
    const std::string_view name = word;
    if (StartsAs(text, name) && (text.size() == name.size() || !IsWordLetter(text[name.size()])))
      return loss;
  }
  return Loss::kNone;
}

// The worst of a line.
Loss LossIn(std::string_view text) {
  constexpr std::string_view kWord = "loss";
  Loss worst = Loss::kNone;
  for (std::size_t at = 0; (at = text.find(kWord, at)) != std::string_view::npos;) {
    at += kWord.size();
    const Loss one = ValueBehind(text.substr(at));
    worst = std::max(worst, one);
  }
  return worst;
}

}  // namespace

std::optional<LossFault> LossFaultOf(const TrainingLog& log) {
  if (!log.source || log.format == LogFormat::kTrace || log.format == LogFormat::kRecord)
    return std::nullopt;
  std::optional<LossFault> first, last;
  ForEachLine(*log.source, [&](const LogLine& line) {
    const Loss loss = LossIn(line.text);
    if (loss == Loss::kNone) return;
    if (loss == Loss::kNumber) {
      last.reset();
      return;
    }
    for (std::optional<LossFault>* one : {&first, &last}) {
      if (!*one)
        *one = LossFault{loss == Loss::kNan ? "NaN" : "infinite", -1, line.number, 0, false};
      ++(*one)->lines;
    }
  });
  std::optional<LossFault> found = last ? last : first;
  if (!found) return found;
  found->lasts = last.has_value();
  // Of the same line, or of the bar in front of it.
  for (const StepSample& step : log.steps)
    if (step.FirstLine() <= found->line) found->step = step.step;
  return found;
}

std::string WordsOf(const LossFault& fault) {
  const std::string where = fault.step >= 0
                                ? fmt::format("step {} (line {})", fault.step, fault.line)
                                : fmt::format("line {}", fault.line);
  return fault.lasts
             ? fmt::format("the loss is {} since {}", fault.value, where)
             : fmt::format("the loss was {} on {} line{}, first at {}, and is a number again",
                           fault.value, fault.lines, fault.lines == 1 ? "" : "s", where);
}

}  // namespace orrery::measured
