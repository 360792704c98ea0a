// SPDX-License-Identifier: Apache-2.0
// Sentences from the answer.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "model/base/text.h"
#include "model/price/breakdown.h"
#include "model/report/short_number.h"
#include "model/report/views.h"

namespace orrery::report {
namespace {

std::string Interval(const Ref& pair) {
  if (!pair[0].is_number() || !pair[1].is_number()) return "";
  return fmt::format(" (80 % of such runs: {} to {})", SecondsOf(pair[0]), SecondsOf(pair[1]));
}

std::string JobWords(const Ref& answer) {
  const Ref topology = answer["topology"];
  const std::string nodes = NumbersInARow(topology["nodes"]);
  const Ref work = answer["workload"], mixed = topology["mixed"];
  std::string batches;
  for (std::size_t i = 0; i < work["global_batch"].size(); ++i)
    batches += (i == 0 ? "" : " or ") + work["global_batch"][i].json().dump();
  std::string gpus = mixed.empty() ? topology["gpu"].text() : "";
  for (std::size_t i = 0; i < mixed.size(); ++i)
    gpus += fmt::format("{}{} ({})", i == 0 ? "" : " or ", mixed[i]["gpu"].text(),
                        mixed[i]["nodes"].json().dump());
  return fmt::format(
      "{} ({} parameters) on {}: {} node{} with {} {} each. Sequences of {} tokens{}, {}, {}.",
      answer["model"]["name"].text(), Count(answer["model"]["parameters"].number()),
      topology["name"].text(), nodes, nodes == "1" ? "" : "s",
      topology["gpus_per_node"].json().dump(), gpus, work["seq_len"].json().dump(),
      batches.empty() ? "" : ", " + batches + " per step", work["precision"].text(),
      work["framework"].text());
}

// `step`: of `layout`, in words.
std::string StepWords(const std::string& layout, const Ref& step) {
  return fmt::format("{}: one step takes {}{}, {} tokens/s, {} of the peak rate (MFU).", layout,
                     SecondsOf(step["step_time_s"]), Interval(step["step_time_interval_s"]),
                     ScaledOf(step["tokens_per_s"]), PercentOf(step["mfu"]));
}

std::string StepWords(const Ref& prediction) {
  return StepWords(prediction["layout"].text(), prediction);
}

// A search finds or is given an order of ranks: the answer is the step in that order.
std::string PlacedWords(const std::string& layout, const Ref& row) {
  const Ref placed = row["placement"];
  const double gain = placed["gain"].number();
  return StepWords(fmt::format("{}, {}", layout, PlacementFlags(placed)), placed) +
         fmt::format(" In the default order of ranks it takes {}: {} {} {}, {}.",
                     SecondsOf(placed["default_step_time_s"]),
                     placed["given"].is_true() ? "the given order takes" : "placement saves",
                     Percent(std::abs(gain)),
                     placed["given"].is_true() ? (gain < 0 ? "more" : "less") : "of it",
                     placed["engine"].text() == "event" ? "simulated" : "in closed form");
}

bool Fits(const Ref& memory) { return memory.empty() || memory["fits"].is_true(); }

std::string StepDetails(const Ref& prediction, const Ref& breakdown) {
  std::string out = Paragraph(BreakdownWords(breakdown));
  // What does not fit was the first sentence.
  if (!prediction["memory"].empty() && Fits(prediction["memory"]))
    out +=
        Paragraph(fmt::format("Memory of a GPU: {}", prediction["memory"]["verdict"].text()) + ".");
  if (const std::string why = prediction["engines_differ"].text(); !why.empty())
    out += Paragraph("The two engines differ: " + why + ".");
  if (const std::string why = prediction["not_simulated"].text(); !why.empty())
    out += Paragraph("In closed form, not simulated: " + why + ".");
  if (const std::string what = prediction["not_counted"].text(); !what.empty())
    out += Paragraph("Not counted: " + what + ".");
  if (const std::string why = prediction["no_interval"].text(); !why.empty())
    out += Paragraph("No interval: " + why + ".");
  if (const std::string from = prediction["interval_from"].text(); !from.empty())
    out += Paragraph("The interval comes from: " + from + ".");
  const std::vector<std::string> outside = TextsIn(prediction["outside_calibration"]);
  if (!outside.empty()) out += "<p>Not calibrated, so the interval is wider:</p>" + Listed(outside);
  return out;
}

// Of --window microstep or sustained: what was asked for; "" where that is the step.
std::string WindowWords(const Ref& answer) {
  const std::string window = answer["window"].text();
  if (window.empty() || window == "step") return "";
  return fmt::format(
      "Forward and backward of one micro-batch take {}{}, {} samples/s (--window {}).",
      SecondsOf(answer["micro_step_time_s"]), Interval(answer["micro_step_time_interval_s"]),
      ScaledOf(answer["micro_step_samples_per_s"]), window);
}

std::string PredictionWords(const Ref& answer) {
  const Ref prediction = answer["prediction"];
  if (prediction.empty())
    return Paragraph("This step cannot run: " + answer["reason"].text() + ".", true);
  const Ref memory = prediction["memory"];
  std::string lead = StepWords(prediction);
  if (!Fits(memory))
    lead = fmt::format("This step does not fit the memory of its GPUs ({}). Were there enough: {}",
                       memory["verdict"].text(), lead);
  const std::string window = WindowWords(answer);
  std::string out = window.empty() ? "" : Paragraph(window, true);
  out += Paragraph(lead, window.empty()) + Paragraph(JobWords(answer));
  if (const std::string what = answer["perturbation"].text(); !what.empty())
    out += Paragraph(fmt::format("Perturbed: {}. Unperturbed the step takes {}.", what,
                                 SecondsOf(answer["undisturbed_step_time_s"])));
  if (const Ref placed = answer["placement"]; IsMoved(placed) && placed["gain"].number() > 0)
    out += Paragraph(fmt::format("{} saves {} of the {} that the default order of ranks takes.",
                                 PlacementFlags(placed), PercentOf(placed["gain"]),
                                 SecondsOf(placed["default_step_time_s"])));
  return out + StepDetails(prediction, prediction["breakdown"]);
}

// The run of all tokens by the first layout.
std::string TokensWords(const Ref& training) {
  const Ref run = training["runs"][0], days = run["time_interval_s"],
            cost = run["cost_interval_usd"];
  std::string words = fmt::format(
      "{} tokens take {} (80 %: {} to {})", Count(training["tokens"].number()),
      DaysOf(run["time_s"].number()), DaysOf(days[0].number()), DaysOf(days[1].number()));
  if (training["priced"].is_true())
    words += fmt::format(" and cost {} ({} to {})", DollarsOf(run["cost_usd"].number()),
                         DollarsOf(cost[0].number()), DollarsOf(cost[1].number()));
  if (run["energy_kwh"].is_number()) words += fmt::format(", {} of energy", EnergyOf(run));
  const std::string result = run["verdict"].text(), limits = LimitsOf(training);
  return words + (result.empty() ? "." : ": " + result + ".") +
         (limits.empty() ? "" : fmt::format(" The limits: {}.", limits));
}

// " by tokens per dollar"; "": an old answer does not say it.
std::string AimWords(const Ref& answer) {
  const std::string aim = answer["ranked_by"].text();
  return aim.empty() ? "" : " by " + aim;
}

// `lead`: the first paragraph is the answer.
std::string LayoutsWords(const Ref& answer, bool lead) {
  const Ref best = answer["ranked"][0];
  const double space = answer["counts"]["space"].number();
  if (best.empty()) {
    std::string out = Paragraph("No layout fits.", lead) + Paragraph(JobWords(answer));
    if (!answer["closest"].empty())
      out += Paragraph("Closest: " + FoundWords(answer, answer["closest"]) + ": " +
                       answer["closest"]["memory"]["verdict"].text() + ".");
    return out + Listed(TextsIn(answer["remedies"], "words"));
  }
  const bool moved = IsMoved(best["placement"]);
  const bool whole = lead && !answer["training"]["runs"].empty();  // all tokens were asked for
  std::string out = whole ? Paragraph(TokensWords(answer["training"]), true) : "";
  const std::string found = FoundWords(answer, best);
  out += Paragraph(fmt::format("Best of {} layouts{}: {}", Count(space), AimWords(answer),
                               moved ? PlacedWords(found, best) : StepWords(found, best)),
                   lead && !whole);
  if (const std::string ranking = answer["placed"]["words"].text(); !ranking.empty())
    out += Paragraph(ranking + ".");
  out += Paragraph(JobWords(answer)) +
         StepDetails(best, moved ? best["placement"]["breakdown"] : best["breakdown"]);
  const auto list = [&](const char* title, const std::vector<std::string>& items) {
    if (!items.empty()) out += fmt::format("<p>{}:</p>", title) + Listed(items);
  };
  const Ref run = answer["training"]["runs"][0], input = run["input"];
  if (input["input_bound"].is_true())
    out += Paragraph(fmt::format(
        "INPUT-BOUND: the limit of the {} is {} tokens/s. A step takes {} with its input.",
        input["limited_by"].text(), ScaledOf(input["limit_tokens_per_s"]),
        SecondsOf(run["step_time_s"])));
  if (const std::string full = answer["remarks"]["nearly_full"].text(); !full.empty())
    out += Paragraph(full);
  std::vector<std::string> why = TextsIn(answer["comparisons"], "words");
  if (const std::string ties = answer["remarks"]["ties"].text(); !ties.empty()) why.push_back(ties);
  list("Why it wins", why);
  std::vector<std::string> limits = TextsIn(answer["limits"], "words");
  for (const std::string& miss : TextsIn(answer["near_misses"], "words")) limits.push_back(miss);
  list("What limits it", limits);
  list("Engines", TextsIn(answer["refinement"]["remarks"]));
  return out;
}

std::string SearchWords(const Ref& answer) { return LayoutsWords(answer, true); }

// "2 clusters (a, b) with 2 node counts (8, 16)"; of one of either, the other alone.
std::string ChoicesWords(const Ref& all) {
  std::vector<std::string> clusters, nodes;
  const auto add = [](const std::string& one, std::vector<std::string>* known) {
    if (std::ranges::find(*known, one) == known->end()) known->push_back(one);
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Ref topology = all[i]["topology"];
    add(topology["name"].text(), &clusters);
    add(topology["nodes"][0].json().dump(), &nodes);
  }
  const auto words = [](const char* noun, const std::vector<std::string>& some) {
    return fmt::format("{} {} ({})", some.size(), noun, fmt::join(some, ", "));
  };
  if (clusters.size() == 1) return words("node counts", nodes);
  return words("clusters", clusters) +
         (nodes.size() > 1 ? " with " + words("node counts", nodes) : "");
}

std::string SeveralWords(const Ref& answer) {
  const Ref all = answer["topologies"];
  const Ref best = all[static_cast<std::size_t>(answer["best_index"].number())];
  const Ref ranked = best["ranked"][0], training = best["training"];
  std::string lead =
      fmt::format("Best of {}{}: {}", ChoicesWords(all), AimWords(best), answer["best"].text());
  if (!ranked.empty()) lead += ", " + Counted(ranked["nodes"].number(), "node");
  lead += ".";
  if (!training.empty()) lead += " " + TokensWords(training);
  return Paragraph(lead, true) + LayoutsWords(best, false);
}

// Steps differ in the third digit.
std::string LossOf(const Ref& loss) {
  return loss.is_number() ? fmt::format("{:.5g}", loss.number()) : "-";
}

std::string RunWords(const Ref& answer) {
  const Ref steps = answer["steps"];
  const Ref first = steps[0]["loss"],
            last = steps[steps.size() == 0 ? 0 : steps.size() - 1]["loss"];
  std::string out = Paragraph(
      fmt::format("{} trained {} on {}: {} per step (median), {} {}/s, {} MFU; loss {} to {}.",
                  answer["name"].text(), Counted(static_cast<double>(steps.size()), "step"),
                  Counted(answer["ranks"].number(), "rank"),
                  SecondsOf(answer["step_time_s"]["median"]), ScaledOf(answer["tokens_per_s"]),
                  answer["rate_of"].text().empty() ? "tokens" : answer["rate_of"].text(),
                  PercentOf(answer["mfu"]), LossOf(first), LossOf(last)),
      true);
  out +=
      Paragraph(fmt::format("{}; device {}, over {}, data {}.", answer["layout"].text(),
                            answer["device"].text(), answer["comm"].text(), answer["data"].text()));
  if (!answer["breakdown"].empty()) out += Paragraph(BreakdownWords(answer["breakdown"]));
  return out;
}

std::string ComparisonWords(const Ref& answer) {
  std::string out;
  for (const std::string& sentence : TextsIn(answer["words"]))
    out += Paragraph(sentence, out.empty());
  if (const std::string predicted = answer["predicted"].text(); !predicted.empty())
    out += Paragraph(fmt::format("Predicted: {}. Measured: {}, {}.", predicted,
                                 answer["measured"].text(),
                                 Counted(answer["measured_steps"].number(), "step")));
  return out;
}

std::string ValidationWords(const Ref& answer) {
  const Ref cases = answer["cases"];
  double sum = 0;
  int predicted = 0, compared = 0, inside = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const double time = cases[i]["predicted_step_s"].number(),
                 measured = cases[i]["measured_step_s"].number();
    if (!std::isfinite(time)) continue;
    ++predicted;
    if (!std::isfinite(measured)) continue;  // not printed
    sum += std::abs(time / measured - 1);
    inside += measured >= cases[i]["interval_s"][0].number() &&
              measured <= cases[i]["interval_s"][1].number();
    ++compared;
  }
  if (predicted == 0) return Paragraph("No run could be predicted.", true);
  if (compared == 0)
    return Paragraph(
        fmt::format("{} of {} runs predicted; none says its step time.", predicted, cases.size()),
        true);
  return Paragraph(
      fmt::format("{} of {} runs predicted; mean error {}, {} inside the 80 % interval.", predicted,
                  cases.size(), Percent(sum / compared),
                  Percent(static_cast<double>(inside) / compared)),
      true);
}

std::string PublishedWords(const Ref& answer) {
  const Ref runs = answer["runs"];
  std::size_t near = 0, known = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string result = runs[i]["verdict"].text();
    near += result == "agrees" || result.starts_with("within");
    known += result == "known miss";
  }
  return Paragraph(fmt::format("{} of {} published runs are predicted within 3 points of what was "
                               "printed (hours: 3 %); {} are known misses, with the reason.",
                               near, runs.size(), known),
                   true) +
         Paragraph(answer["note"].text());
}

struct Kind {
  const char* schema;
  const char* title;
  std::string (*words)(const Ref&);
};
constexpr Kind kKinds[] = {
    {"orrery.predict/", "One layout", PredictionWords},
    {"orrery.simulate/", "A simulated step", PredictionWords},
    {"orrery.plan/", "Layouts of a training job", SearchWords},
    {"orrery.plans/", "Topologies for a training job", SeveralWords},
    {"orrery.provision/", "Which machines", ProvisionWords},
    {"orrery.run/", "A training run", RunWords},
    {"orrery.compare/", "Predicted and measured", ComparisonWords},
    {"orrery.validate/", "Predictions of measured runs", ValidationWords},
    {"orrery.published-goodput/", "Published goodput", PublishedWords},
};

const Kind* KindOf(const Ref& answer) {
  const std::string schema = answer["schema"].text();
  const auto* at = std::ranges::find_if(
      kKinds, [&](const Kind& kind) { return schema.starts_with(kind.schema); });
  return at == std::end(kKinds) ? nullptr : at;
}

}  // namespace

std::string Counted(double number, const std::string& noun) {
  return fmt::format("{:.0f} {}{}", number, noun, number == 1 ? "" : "s");
}

std::string Paragraph(std::string_view text, bool lead) {
  return fmt::format("<p{}>{}</p>\n", lead ? " class=lead" : "", Escape(text));
}

std::string FoundWords(const Ref& answer, const Ref& row) {
  const bool nodes = answer["topology"]["nodes"].size() > 1,
             batch = answer["workload"]["global_batch"].size() > 1;
  return (nodes ? NodesOf(row["nodes"]) + ", " : "") +
         (batch ? fmt::format("batch {}, ", row["global_batch"].json().dump()) : "") +
         row["layout"].text();
}

bool IsMoved(const Ref& placement) {
  return placement["given"].is_true() || placement["gain"].number() > 0;
}

std::string PlacementFlags(const Ref& placement) {
  std::string words = "--placement " + placement["placement"].text();
  if (!placement["layers"].empty()) words += ", layers " + placement["layers"].json().dump();
  return words;
}

std::string LimitsOf(const Ref& asked) {
  const Ref deadline = asked["deadline_s"], budget = asked["budget_usd"];
  std::string words;
  if (deadline.is_number()) words = "within " + GivenDaysOf(deadline.number());
  if (budget.is_number())
    words += (words.empty() ? "at most " : ", at most ") + GivenDollarsOf(budget.number());
  return words;
}

std::string BreakdownWords(const Ref& breakdown) {
  std::vector<const BreakdownTerm*> terms;
  double total = 0;  // of a measured run not the median step
  for (const BreakdownTerm& term : BreakdownTerms()) {
    const double seconds = breakdown[term.key].number();
    if (!(seconds > 0)) continue;
    terms.push_back(&term);
    total += seconds;
  }
  if (terms.empty()) return "";
  std::ranges::stable_sort(terms, [&](const BreakdownTerm* a, const BreakdownTerm* b) {
    return breakdown[a->key].number() > breakdown[b->key].number();
  });
  std::string words = "Where the step goes: ";
  constexpr std::size_t kMost = 3;
  for (std::size_t i = 0; i < std::min(kMost, terms.size()); ++i)
    words += fmt::format("{}{} {}", i == 0 ? "" : ", ", terms[i]->name,
                         Percent(breakdown[terms[i]->key].number() / total));
  return words + ".";
}

std::string TitleOf(const Ref& answer) {
  const Kind* kind = KindOf(answer);
  std::string name = answer["model"]["name"].text();
  if (name.empty()) name = answer["question"]["model"].text();
  if (name.empty()) name = answer["name"].text();
  if (name.empty()) name = answer["topologies"][0]["model"]["name"].text();
  return (kind == nullptr ? "Answer" : kind->title) + (name.empty() ? "" : ": " + name);
}

std::string WordsOf(const Ref& answer) {
  const Kind* kind = KindOf(answer);
  return kind == nullptr ? "" : kind->words(answer);
}

}  // namespace orrery::report
