// SPDX-License-Identifier: Apache-2.0
// The figures. Each takes what it draws as references into the answer and is "" where that is missing.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/report/markup.h"

namespace orrery::report {

// bars.cc

// One step each, split into the terms of the breakdown, on one scale of time.
struct StepBar {
  std::string label;
  Ref breakdown;
  Ref total;
};
std::string BreakdownBars(
    const std::vector<StepBar>& bars,
    const std::string& caption = "Seconds of a step on the GPU that computes longest.");
// Predicted and measured seconds of each part, on one scale: [{work, predicted_s, measured_s}].
std::string PartPairs(const Ref& parts, const std::string& caption);
// Bytes of each stage at its peak by class, against the capacity: "memory" of a prediction.
std::string MemoryBars(const Ref& memory);
// Any numbers, largest first or in order: {label, value, text}.
struct PlainBar {
  std::string label;
  Ref value;
  std::string text;
  std::size_t colour = 0;
};
std::string PlainBars(const std::vector<PlainBar>& bars, const std::string& caption);

// charts.cc

// Words of numbers on an axis.
std::string TickSeconds(double seconds);
std::string TickCount(double number);

// A mark of a chart: x and y are numbers of the answer.
struct Mark {
  Ref x, y;
  std::string text;       // what it is, for readers and on hover
  std::size_t group = 0;  // colour and shape
  bool hollow = false;    // below the others
  Ref low, high;          // interval of y; null: none
};
struct ChartAxis {
  std::string title;
  bool logarithmic = false;
  std::string (*words)(double) = nullptr;  // of a number on it
  double limit = 0;                        // a dashed line there; 0: none
  std::string limit_words;
  bool from_zero = false;
  double unit = 1;             // numbers of round ticks: 86400 for days of seconds
  Ref limit_at = Ref::None();  // where the limit stands in the answer
};
struct Chart {
  ChartAxis x, y;
  std::vector<Mark> marks;
  std::vector<std::string> groups;  // names
  bool diagonal = false;            // the line y = x
  bool joined = false;              // marks of a group by a line, in their order
  bool proportional = false;        // the line through the first mark and the origin
  std::string title;                // in words, for readers that see no drawing
};
std::string DrawChart(const Chart& chart);
// Logarithmic, with a dashed line at the deadline or budget; null: there is none.
ChartAxis DaysAxis(const Ref& deadline_s);
ChartAxis DollarsAxis(const Ref& budget_usd);

// timeline.cc

std::string Timeline(const Ref& timeline);
// `memory`: of the prediction.
std::string MemoryOverTime(const Ref& stages, const Ref& memory);

// cluster_drawing.cc

std::string ClusterDrawing(const Ref& cluster);

}  // namespace orrery::report
