// SPDX-License-Identifier: Apache-2.0
// Which rows of a study are compared, which of them no other beats, and what each flag changes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "model/base/median.h"
#include "model/program/plan/study_report.h"

namespace orrery::cli {

namespace {

constexpr StudyMetric kMetrics[] = {
    {"step_time_s", "step", false}, {"tokens_per_s", "tokens/s", true},
    {"mfu", "MFU", true},           {"memory_bytes", "memory", false},
    {"gpus", "GPUs", false},        {"usd_per_billion_tokens", "USD per\n1e9 tokens", false},
};

// How good, more is better.
double Worth(const StudyPoint& point, std::size_t metric) {
  const double value = point.metrics[metric];
  return kMetrics[metric].more_is_better ? value : -value;
}

// A flag that says what is trained: its values are not alternatives, and tokens/s of two do not compare.
struct QuestionFlag {
  const char* key;
  const char* words;
};
constexpr QuestionFlag kQuestionFlags[] = {{"model", "model"}, {"seq_len", "sequence length"}};

bool AsksAnother(const StudyAxis& axis) {
  return std::ranges::any_of(kQuestionFlags,
                             [&](const QuestionFlag& flag) { return axis.key == flag.key; });
}

double TokensPerStep(const StudyPoint& point) {
  return point.metrics[kStepFigure] * point.metrics[kRateFigure];
}

// A shorter step of fewer tokens is not a faster one.
bool Comparable(const StudyPoint& a, const StudyPoint& b, const std::vector<std::size_t>& metrics) {
  constexpr double kRounding = 1e-9;
  const double tokens = TokensPerStep(a);
  return a.question == b.question && (std::ranges::find(metrics, kStepFigure) == metrics.end() ||
                                      std::abs(TokensPerStep(b) - tokens) <= kRounding * tokens);
}

}  // namespace

std::span<const StudyMetric> StudyMetrics() { return kMetrics; }

std::size_t QuestionOf(const Study& study, int64_t row) {
  const std::vector<std::size_t> at = study.At(row);
  std::size_t question = 0;
  for (std::size_t a = 0; a < at.size(); ++a) {
    if (AsksAnother(study.axes()[a])) question = question * study.axes()[a].values.size() + at[a];
  }
  return question;
}

std::string QuestionWords(const Study& study) {
  std::string words;
  for (const QuestionFlag& flag : kQuestionFlags) {
    const auto axis = std::ranges::find(study.axes(), flag.key, &StudyAxis::key);
    if (axis != study.axes().end() && axis->values.size() > 1)
      words += (words.empty() ? "" : " and ") + std::string(flag.words);
  }
  return words;
}

std::vector<bool> ComparedRows(const std::vector<StudyPoint>& points) {
  std::set<std::size_t> with_margin;  // questions
  for (const StudyPoint& point : points)
    if (point.status == RowStatus::kOk) with_margin.insert(point.question);
  std::vector<bool> compared;
  for (const StudyPoint& point : points)
    compared.push_back(point.status == RowStatus::kOk || (point.status == RowStatus::kNearlyFull &&
                                                          !with_margin.contains(point.question)));
  return compared;
}

std::vector<std::size_t> FrontOf(const std::vector<StudyPoint>& points,
                                 const std::vector<std::size_t>& metrics) {
  const std::vector<bool> compared = ComparedRows(points);
  std::vector<std::size_t> order, front;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const bool known = std::ranges::all_of(
        metrics, [&](std::size_t m) { return std::isfinite(points[i].metrics[m]); });
    if (compared[i] && known) order.push_back(i);
  }
  // Whoever beats a row stands before it.
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    for (const std::size_t m : metrics) {
      if (Worth(points[a], m) != Worth(points[b], m))
        return Worth(points[a], m) > Worth(points[b], m);
    }
    return false;
  });
  for (const std::size_t i : order) {
    const bool beaten = std::ranges::any_of(front, [&](std::size_t f) {
      return Comparable(points[f], points[i], metrics) &&
             std::ranges::all_of(metrics, [&](std::size_t m) {
               return Worth(points[f], m) >= Worth(points[i], m);
             });
    });
    if (!beaten) front.push_back(i);
  }
  return front;
}

std::vector<Sensitivity> SensitivitiesOf(const Study& study,
                                         const std::vector<StudyPoint>& points) {
  const std::vector<bool> is_compared = ComparedRows(points);
  const auto compares = [&](const StudyPoint* point) {
    return point != nullptr && is_compared[static_cast<std::size_t>(point - points.data())];
  };
  std::vector<Sensitivity> all;
  std::vector<const StudyPoint*> by_row(static_cast<std::size_t>(study.rows()), nullptr);
  for (const StudyPoint& point : points) by_row[static_cast<std::size_t>(point.row)] = &point;
  std::size_t stride = by_row.size();
  for (std::size_t a = 0; a < study.axes().size(); ++a) {
    const std::size_t count = study.axes()[a].values.size();
    stride /= count;  // rows between two values of this flag
    std::vector<Sensitivity> values(count);
    std::vector<std::vector<double>> slower(count);
    for (std::size_t first = 0; first < by_row.size(); ++first) {
      if (first / stride % count != 0) continue;
      double best = 0;
      int64_t compared = 0;
      for (std::size_t v = 0; v < count; ++v) {
        const StudyPoint* point = by_row[first + v * stride];
        if (point == nullptr) continue;
        ++values[v].rows;
        values[v].ok += Fits(point->status);
        if (!compares(point)) continue;
        best = std::max(best, point->metrics[kRateFigure]);
        ++compared;
      }
      // One value alone shows nothing of the flag.
      if (compared < 2 || AsksAnother(study.axes()[a])) continue;
      for (std::size_t v = 0; v < count; ++v) {
        const StudyPoint* point = by_row[first + v * stride];
        if (!compares(point)) continue;
        ++values[v].compared;
        slower[v].push_back(best / point->metrics[kRateFigure] - 1);
        if (point->metrics[kRateFigure] == best) ++values[v].best;
      }
    }
    for (std::size_t v = 0; v < count; ++v) {
      values[v].axis = a;
      values[v].value = v;
      values[v].slower = std::numeric_limits<double>::quiet_NaN();
      if (!slower[v].empty()) values[v].slower = Median(std::move(slower[v]));
      all.push_back(values[v]);
    }
  }
  return all;
}

std::vector<std::size_t> DefaultFront(const std::vector<StudyPoint>& points) {
  const std::vector<bool> compared = ComparedRows(points);
  bool priced = true;
  for (std::size_t i = 0; i < points.size(); ++i)
    priced = priced && (!compared[i] || std::isfinite(points[i].metrics[kDollarsFigure]));
  return {kRateFigure, priced ? kDollarsFigure : kGpusFigure};
}

}  // namespace orrery::cli
