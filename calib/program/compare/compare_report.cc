// SPDX-License-Identifier: Apache-2.0
// The report of `plan compare`.
#include "calib/program/compare/compare_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/base/text.h"
#include "model/program/common/table.h"
#include "model/report/short_number.h"

namespace orrery::compare {
namespace {

constexpr std::size_t kConstantsShown = 3;
constexpr std::size_t kRowsShown = 12;

std::string Time(double seconds) {
  return seconds < 0 ? "-" + Format(Seconds(-seconds)) : Format(Seconds(seconds));
}

std::string NameOf(const Term& term) {
  if (!term.stream.empty()) return term.stream;
  if (term.work.empty()) return term.phase;
  return term.phase.empty() ? term.work : fmt::format("{}, {}", term.work, term.phase);
}

std::string Constants(const Comparison& c, const Term& term, std::size_t most) {
  if (c.WaitsForStraggler(term)) return fmt::format("waits for rank {}", c.straggler->rank);
  std::string text;
  const std::vector<std::string> names = c.Constants(term);
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  return text;
}

std::string TableOf(const Comparison& c, const char* title, const std::vector<Term>& terms,
                    bool governed) {
  if (terms.empty()) return "";
  const std::size_t shown = std::min(kRowsShown, terms.size());
  std::size_t width = std::string_view(title).size();
  for (std::size_t i = 0; i < shown; ++i) width = std::max(width, NameOf(terms[i]).size() + 2);
  std::string text =
      fmt::format("\n{:<{}}  {:>11} {:>11} {:>11} {:>7}{}\n", title, width, "predicted", "measured",
                  "difference", "share", governed ? "   governed by" : "");
  for (std::size_t i = 0; i < shown; ++i) {
    const Term& term = terms[i];
    text += fmt::format("  {:<{}}  {:>11} {:>11} {:>11} {:>5.0f} %", NameOf(term), width - 2,
                        Time(term.predicted), Time(term.measured), Time(term.difference()),
                        100 * term.share);
    const std::string names = governed ? Constants(c, term, kConstantsShown) : "";
    text += names.empty() ? "\n" : "   " + names + "\n";
  }
  if (terms.size() > shown) text += fmt::format("  and {} smaller\n", terms.size() - shown);
  return text;
}

// "12.3 % too short"; an error that rounds to nothing is none.
std::string ErrorWords(double error) {
  const std::string percent = fmt::format("{:.1f}", 100 * std::abs(error));
  if (percent == "0.0") return "equal within 0.1 %";
  return fmt::format("{} % too {}", percent, error < 0 ? "short" : "long");
}

// What is missing for a table of terms.
std::string NoTerms(const Comparison& c) {
  if (c.measured_trace)
    return "The predicted file tells how long a step takes, not which kernels take the time. With "
           "--trace FILE of plan simulate in its place, this command names the kind of work and "
           "the "
           "constants behind the difference.";
  return fmt::format(
      "The measured file tells how long a step takes, not what takes the time. With a trace of it "
      "(plan run --trace, or an export of PyTorch's profiler){}, this command names the kind of "
      "work and the constants behind the difference.",
      c.predicted_trace ? "" : " and --trace FILE of plan simulate");
}

// What a log says beside the step time.
void AddFigures(const Comparison& c, std::vector<std::string>* out) {
  const auto add = [&](const char* what, const Pair& pair, const auto& words) {
    if (pair.predicted && pair.measured)
      out->push_back(fmt::format("{}: {} predicted, {} measured.", what, words(*pair.predicted),
                                 words(*pair.measured)));
  };
  add("Tokens per second", c.tokens_per_s, report::Scaled);
  const auto bytes = [](double b) { return Format(Bytes(b)); };
  add("Peak memory allocated", c.allocated, bytes);
  add("Peak memory reserved", c.reserved, bytes);
}

// Rates above the peak: what cannot be, and what a log may say by its own convention (masked attention, the peak of another GPU).
void AddPeaks(const Comparison& c, std::vector<std::string>* out) {
  if (c.AbovePeak())
    out->push_back(
        fmt::format("No GPU does that: the measured step would come to {:.0f} % of the peak rate "
                    "of the GPUs that "
                    "are predicted. The log is of another model, batch, sequence length, precision "
                    "or GPU, or its "
                    "times are not those of whole steps.",
                    100 * *c.peak_share));
  else if (c.own_mfu.value_or(0) > 1)
    out->push_back(fmt::format(
        "The log prints an MFU of {:.0f} %: it counts work that its kernels leave out, or takes "
        "another peak for its GPUs.",
        100 * *c.own_mfu));
}

void AddCulprit(const Comparison& c, std::vector<std::string>* out) {
  const Term *work = c.CulpritWork(), *culprit = c.Culprit();
  if (culprit == nullptr) {
    out->push_back(c.HasTerms() ? fmt::format("No term differs by more than {} % of the step.",
                                              100 * kLeastBlamed)
                                : NoTerms(c));
    return;
  }
  const auto both = [](const Term& term) {
    return fmt::format("{} predicted, {} measured", Time(term.predicted), Time(term.measured));
  };
  std::string largest = fmt::format("Largest term: {}, {}, {:.0f} % of all differences",
                                    NameOf(*work), both(*work), 100 * work->share);
  if (culprit != work)
    largest += fmt::format("; most of it in phase {}: {}", culprit->phase, both(*culprit));
  out->push_back(largest + ".");
  if (culprit->work == kRest) {
    out->push_back(NoTerms(c));
    return;
  }
  if (c.WaitsForStraggler(*culprit))
    out->push_back("No constant governs it: it is the wait for the straggler.");
  else if (const std::string names = Constants(c, *culprit, 99); !names.empty())
    out->push_back(fmt::format("Constants that govern it: {}.", names));
}

std::vector<std::string> Headline(const Comparison& c) {
  std::string step = fmt::format("Step time: {} predicted, {} measured: {}", Time(c.predicted_step),
                                 Time(c.measured_step), ErrorWords(c.error()));
  if (c.interval)
    step += fmt::format(", {} the 80 % interval ({} to {})", c.InInterval() ? "inside" : "outside",
                        Time(c.interval->first), Time(c.interval->second));
  std::vector<std::string> out = {step + "."};
  AddFigures(c, &out);
  AddPeaks(c, &out);
  if (c.straggler)
    out.push_back(fmt::format(
        "Rank {} is slow: it computes {:.2f} times as long as the median rank, which is no part of "
        "the prediction; the others wait for it in messages.",
        c.straggler->rank, c.straggler->slowdown));
  AddCulprit(c, &out);
  return out;
}

nlohmann::ordered_json OrNull(const std::optional<double>& number) {
  return number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json();
}

nlohmann::ordered_json TermsJson(const Comparison& c, const std::vector<Term>& terms) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Term& term : terms) {
    nlohmann::ordered_json json;
    if (!term.work.empty()) json["work"] = term.work;
    if (!term.phase.empty()) json["phase"] = term.phase;
    if (!term.stream.empty()) json["stream"] = term.stream;
    json["predicted_s"] = term.predicted;
    json["measured_s"] = term.measured;
    json["difference_s"] = term.difference();
    json["share_of_differences"] = term.share;
    if (!term.work.empty()) json["constants"] = c.Constants(term);
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace

std::string ComparisonText(const Comparison& c) {
  std::string text =
      fmt::format("predicted  {}\nmeasured   {}, {} step{}\n", c.predicted_file, c.measured_file,
                  c.measured_steps, c.measured_steps == 1 ? "" : "s, median without the first");
  if (c.by_throughput)
    text += "step time  the log prints throughput only: the batch of the prediction over it\n";
  text +=
      c.OnTrust() ? "plan       not named in the measured log: assumed to be the same\n"
      : c.digest.empty()
          ? fmt::format("plan       not named in the measured log; its {} are those predicted\n",
                        WordsOf(c.told.same))
          : fmt::format("plan       {}\n", c.digest);
  for (const std::string& words : Words(c.told))
    text += report::Fold("note       " + words, 11) + "\n";
  if (c.garbled_lines > 0)
    text += fmt::format("garbled    {} line{} skipped\n", c.garbled_lines,
                        c.garbled_lines == 1 ? "" : "s");
  text += "\n";
  for (const std::string& sentence : Headline(c)) text += report::Fold(sentence, 0) + "\n";
  text += TableOf(c, "term of the step", c.by_part, true);
  text += TableOf(c, "kind of work", c.by_work, true);
  text += TableOf(c, "kind of work and phase", c.by_work_and_phase, true);
  text += TableOf(c, "phase", c.by_phase, false);
  text += TableOf(c, "stream", c.by_stream, false);
  if (c.predicted_trace != c.measured_trace && !c.by_part.empty())
    text +=
        "\n" +
        report::Fold(
            "A trace and a record have no more terms in common: two records (--json FILE) or two "
            "traces (--trace FILE) tell communication by axis.",
            0) +
        "\n";
  if (c.by_work.empty()) return text;
  return text +
         "\nSeconds per rank and step. Streams run concurrently; idle: a rank runs nothing on any "
         "stream.\n";
}

std::string ComparisonBrief(const Comparison& c) {
  std::string text = Headline(c).front();
  text.pop_back();  // its full stop
  if (const Term* work = c.CulpritWork(); work != nullptr)
    text += fmt::format("; largest term: {}, {:.0f} % of all differences", NameOf(*work),
                        100 * work->share);
  return text;
}

nlohmann::ordered_json ComparisonJson(const Comparison& c) {
  nlohmann::ordered_json json = {{"schema", "orrery.compare/1"},
                                 {"predicted", c.predicted_file},
                                 {"measured", c.measured_file},
                                 {"digest", c.digest},
                                 {"plan_on_trust", c.OnTrust()},
                                 {"same_by_log", c.told.same},
                                 {"notes", Words(c.told)},
                                 {"by_throughput", c.by_throughput},
                                 {"predicted_step_s", c.predicted_step},
                                 {"measured_step_s", c.measured_step},
                                 {"error", c.error()},
                                 {"measured_steps", c.measured_steps},
                                 {"garbled_lines", c.garbled_lines}};
  json["predicted_interval_s"] = nullptr;
  if (c.interval) json["predicted_interval_s"] = {c.interval->first, c.interval->second};
  const auto pair = [&](const char* key, const Pair& of) {
    json[std::string("predicted_") + key] = OrNull(of.predicted);
    json[std::string("measured_") + key] = OrNull(of.measured);
  };
  pair("samples", c.samples);
  pair("tokens_per_s", c.tokens_per_s);
  pair("allocated_bytes", c.allocated);
  pair("reserved_bytes", c.reserved);
  json["measured_share_of_peak"] = OrNull(c.peak_share);
  json["above_peak"] = c.AbovePeak();
  json["straggler"] = nullptr;
  if (c.straggler)
    json["straggler"] = {{"rank", c.straggler->rank}, {"slowdown", c.straggler->slowdown}};
  json["words"] = Headline(c);
  const auto one = [&](const Term* term) {
    return term == nullptr ? nlohmann::ordered_json() : TermsJson(c, {*term})[0];
  };
  json["largest"] = one(c.CulpritWork());
  json["largest_phase"] = one(c.Culprit());
  json["by_work"] = TermsJson(c, c.by_work);
  json["by_work_and_phase"] = TermsJson(c, c.by_work_and_phase);
  json["by_phase"] = TermsJson(c, c.by_phase);
  json["by_stream"] = TermsJson(c, c.by_stream);
  json["by_part"] = TermsJson(c, c.by_part);
  return json;
}

}  // namespace orrery::compare
