// SPDX-License-Identifier: Apache-2.0
// `plan predict`: one given layout.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "model/program/common/answer.h"
#include "model/program/common/bundle.h"
#include "model/program/common/candidate_report.h"
#include "model/program/common/job_flags.h"
#include "model/program/common/names.h"
#include "model/program/common/step_picture.h"
#include "model/program/common/time_report.h"
#include "model/program/plan/commands.h"
#include "model/program/plan/placement_report.h"
#include "model/program/plan/predict_several.h"

namespace orrery::cli {
namespace {

struct PredictFlags {
  JobFlags job;
  LayoutFlags layout;
  Flag plan, window, engine, json, html, bundle;
  FlagSet set{
      "predict --model NAME [flags]",
      "Predicts one given layout: step time with its interval, where the time goes, what fills the "
      "memory, "
      "and which profiles were used.",
      {"plan predict --model bert-1.5b --nodes 1 --zero 1 --micro-batch 8",
       "plan predict --model gpt3-175b --nodes 128 --tp 8 --pp 16 --micro-batch 1 --recompute full",
       "plan predict --model llama2-7b --topology aws-p4d --nodes 4 --tp 1,2,4 --pp 1..8 "
       "--micro-batch 1",
       "plan predict --model bert-1.5b --nodes 1 --zero 1 --micro-batch 8 --window microstep "
       "--json"}};

  PredictFlags() {
    job.Declare(&set, false);
    layout.Declare(&set, "The layout (defaults: 1, none, off)");
    DeclarePlan(&plan, &set);
    DeclareFrom(&job, &set);
    set.Group("The prediction");
    set.Value(&window, "--window", "WHAT",
              "what is timed: step (with the optimizer), microstep (one micro-batch, as the "
              "framework's timer prints it) or sustained (one micro-batch at steady state)",
              Words::kList, NamesOf<Window>(report::kWindowNames));
    set.Value(&engine, "--engine", "NAME",
              "event (simulated with contention) or closed (closed form); default: event, but "
              "closed for plans too large to simulate, as in a search",
              Words::kList, NamesOf<Engine>(report::kEngineNames));
    DeclareJson(&json, &set, "predict");
    DeclareHtml(&html, &set);
    DeclareBundle(&bundle, &set);
  }
};

// `step`: the layout or the plan, for the figures of --html.
template <class Step>
Answer Report(const PredictFlags& flags, const report::Job& job,
              const report::PredictReport& prediction, const Step& step,
              const std::optional<PlacementChoice>& choice = std::nullopt) {
  const bool fits = !prediction.candidate.memory || prediction.candidate.memory->fits;
  nlohmann::ordered_json json = report::PredictionJson(job, prediction);
  if (flags.html.given) report::AddStepPicture(JobOf(job.request, job.profiles), step, &json);
  std::string text = report::PredictionText(job, prediction);
  if (choice) {
    const report::PlacedRow row{1, *choice};
    text += report::PlacementText({&row, 1}, 0, job.request.topology.fabric);
    json["placement"] = report::PlacementJson(*choice);
  }
  WriteBundle(flags.bundle, json);
  Answer answer =
      Deliver(fits ? ExitCode::kOk : ExitCode::kInfeasible, text, json, flags.json, flags.html);
  answer.brief =
      report::Brief(report::LayoutWords(job, prediction.candidate), prediction.candidate);
  return answer;
}

// A plan text is simulated: the closed form wants to know how it was laid out.
Answer PredictText(const PredictFlags& flags, Engine engine, Window window) {
  Diagnostics diagnostics;
  if (window != Window::kStep)
    diagnostics.Error(flags.window.where, "a plan text is predicted for whole steps only",
                      "omit --window, or use --model and a layout");
  if (engine == Engine::kClosed)
    diagnostics.Error(flags.engine.where, "a plan text has no closed form",
                      "omit --engine, or use --model and a layout");
  diagnostics.ThrowIfAny();
  const ir::Plan plan = ReadPlanFile(flags.plan, flags.job, flags.layout);
  const report::Job job = flags.job.Resolve(plan, flags.plan.text);
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  report::PredictReport prediction{PredictPlan(JobOf(job.request, job.profiles), plan),
                                   report::UnknownTime(), window, kUnknown, kUnknown};
  return Report(flags, job, prediction, plan);
}

}  // namespace

Description DescribePredict() { return PredictFlags().set.Describe(); }

Answer RunPredict(const CommandLine& line, std::size_t first) {
  PredictFlags flags;
  if (flags.set.Parse(line, first)) return {ExitCode::kOk, DescribePredict().help};
  TakeImports(&flags.job, &flags.layout);
  Diagnostics diagnostics;
  const Engine engine =
      ReadChoice<Engine>(flags.engine, report::kEngineNames, &diagnostics).value_or(Engine::kAuto);
  const Window window =
      ReadChoice<Window>(flags.window, report::kWindowNames, &diagnostics).value_or(Window::kStep);
  if (engine == Engine::kEvent && window != Window::kStep)
    diagnostics.Error(flags.engine.where, "the event engine times whole steps only",
                      "--window step, or --engine closed");
  diagnostics.ThrowIfAny();
  CheckHtml(flags.html, flags.json);
  CheckBundle(flags.bundle);
  if (const auto study = Study::Of(flags.job, flags.layout))
    return PredictSeveral(
        {*study, engine, flags.json, flags.bundle, {&flags.plan, &flags.window, &flags.html}});
  if (flags.plan.given) return PredictText(flags, engine, window);
  const report::Job job = flags.job.Resolve();
  std::optional<PlacementChoice> choice;
  const Strategy strategy = OneStrategy(flags.layout, job, &choice, engine);
  const orrery::Job twin = JobOf(job.request, job.profiles);
  const auto predicted = Predict(twin, strategy, engine);
  if (const auto* refusal = std::get_if<Refusal>(&predicted))
    RefuseLayout(*refusal, flags.job, flags.layout, job, strategy);
  StepPredictor predictor(twin);
  const auto micro_step = [&](Window what) {
    return std::get<StepTime>(predictor.Predict(strategy, what));
  };
  const StepTime printed = micro_step(Window::kMicrostep);
  const StepTime sustained = micro_step(Window::kSustained);
  report::PredictReport prediction{std::get<Prediction>(predicted),
                                   window == Window::kMicrostep ? printed : sustained, window,
                                   sustained.total, printed.total};
  // As far off, relatively, as the step in closed form.
  const StepTime& step = prediction.candidate.ClosedForm();
  prediction.micro_step.low = prediction.micro_step.total * (step.low / step.total);
  prediction.micro_step.high = prediction.micro_step.total * (step.high / step.total);
  return Report(flags, job, prediction, strategy, choice);
}

}  // namespace orrery::cli
