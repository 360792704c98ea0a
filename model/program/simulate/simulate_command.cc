// SPDX-License-Identifier: Apache-2.0
// The command behind `plan simulate`: one given layout, played op by op with contention.
#include "model/program/simulate/simulate_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/base/write_file.h"
#include "model/engine/event/cycle.h"
#include "model/engine/event/simulation.h"
#include "model/hardware/faults.h"
#include "model/program/common/bundle.h"
#include "model/program/common/candidate_report.h"
#include "model/program/common/names.h"
#include "model/program/common/program.h"
#include "model/program/common/terminal.h"
#include "model/program/common/time_report.h"
#include "model/program/simulate/extended_step.h"
#include "model/program/simulate/perturbation_flags.h"
#include "model/program/simulate/scenario_file.h"
#include "model/program/simulate/simulate_report.h"
#include "model/program/simulate/trace_json.h"
#include "model/twin/steady.h"

namespace orrery::cli {
namespace {

constexpr std::size_t kAfterName = 2;  // plan simulate
constexpr std::size_t kBusiestLinks = 5;
constexpr int64_t kMostMicroBatches = 1'000'000;
constexpr int64_t kMostCompared = 10'000'000;  // of an undisturbed step with all its replicas
constexpr double kMostRecorded = 20'000'000;   // ops of all executed ranks
constexpr int64_t kMostTraced = 20'000'000;    // 4 GB

net::Backend ReadBackend(const SimulateFlags& flags, Diagnostics* diagnostics) {
  const auto backend = ReadChoice<net::Backend>(flags.network, kNetworkNames, diagnostics)
                           .value_or(net::Backend::kFluid);
  if (backend == net::Backend::kSimGrid && !net::HasSimGrid()) {
    std::vector<std::string> words = {"plan-simulate-simgrid"};
    const std::vector<std::string>& looks = CurrentTerminal().given;
    words.insert(words.end(), looks.begin(), looks.end());
    words.insert(words.end(), WordsOfCommand().begin() + kAfterName, WordsOfCommand().end());
    ExecBeside("simulate-simgrid", words);
    diagnostics->Error(flags.network.where, "this build has no SimGrid backend",
                       "install libsimgrid-dev and build again, or --network fluid");
  }
  return backend;
}

bool ReadContention(const SimulateFlags& flags, Diagnostics* diagnostics) {
  return ReadChoice<bool>(flags.contention, kContentionNames, diagnostics).value_or(true);
}

// One simulation with all that it needs and leaves behind.
class Twin {
 public:
  Twin(const orrery::Job& job, ir::Plan plan, const sim::SimulationOptions& options)
      : job_(job),
        plan_(std::move(plan)),
        cluster_(BuildCluster(*job.topology, job.cluster.nodes, job.cluster.gpus_per_node)),
        options_(options) {
    options_.keep_links = true;
  }

  void Disturb(Perturbations* perturbations) {
    options_.perturbation = cli::Disturb(perturbations, plan_.mesh.ranks(), &cluster_);
  }

  // `record`: when each task ran, for Analyse() and WriteTrace(); `rates`: of all links, too.
  void Run(bool record, bool rates, report::Simulation* simulation) {
    Play(record, rates, simulation);
    busiest_ = Busiest(Traffic(), simulation->result.seconds, &simulation->links);
    if (record && step_->recorded()) Analyse(simulation);
  }

  // Both steps: the rest of `simulation` follows from them. False: the longer one does not repeat the shorter one.
  static bool RunShort(Twin* fewer, Twin* more, bool analyse, int64_t micro_batches,
                       report::Simulation* simulation) {
    report::Simulation shorter = *simulation, longer = *simulation;
    fewer->Play(true, false, &shorter);
    more->Play(true, false, &longer);
    if (!fewer->step_->recorded() || !more->step_->recorded()) return false;
    const auto cycle = sim::CycleOf(*fewer->step_, *more->step_);
    if (!cycle) return false;
    const int64_t cycles = (micro_batches - more->plan_.micro_batches) /
                           (more->plan_.micro_batches - fewer->plan_.micro_batches);
    longer.result = report::Extend(shorter.result, std::move(longer.result), cycles);
    if (analyse) {
      const auto& memory = simulation->candidate.memory;
      shorter.candidate.memory =
          ReportMemory(fewer->plan_, LimitsOf(more->job_, simulation->candidate.strategy),
                       Communicators(simulation->candidate.strategy));
      if (!memory || memory->stages.size() != fewer->plan_.programs.size()) return false;
      fewer->Analyse(&shorter);
      more->Analyse(&longer);
      longer.analysis =
          report::Extend(*shorter.analysis, std::move(*longer.analysis), *cycle, cycles);
      if (!longer.analysis) return false;
      more->Busiest(report::Extend(fewer->Traffic(), more->Traffic(), cycles),
                    longer.result.seconds, &longer.links);
    }
    longer.wall += shorter.wall;
    longer.simulated_micro_batches = more->plan_.micro_batches;
    *simulation = std::move(longer);
    return true;
  }

 private:
  void Play(bool record, bool rates, report::Simulation* simulation) {
    const auto executed =
        static_cast<double>(sim::ExecutedRanks(plan_.mesh, options_.merge_replicas));
    if (rates) record = record && sim::MostOps(plan_) * executed <= kMostRecorded;
    options_.log_rates = rates;
    options_.record = record || rates;
    if (!rates) options_.most_recorded = kMostRecorded;
    const auto begin = std::chrono::steady_clock::now();
    step_.emplace(plan_, cluster_, job_.prices(), options_);
    step_->Run();
    simulation->fixed = step_->fixed();
    simulation->result = step_->result();
    simulation->wall =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    simulation->ranks = plan_.mesh.ranks();
    simulation->digest = ir::Digest(plan_);
    for (const int64_t rank : simulation->result.ranks) {
      simulation->stages.push_back(
          plan_.mesh.Coords(rank)[static_cast<std::size_t>(plan_.mesh.program_axis)]);
    }
  }

 public:
  // For --html.
  void AddPicture(const report::Simulation& simulation, nlohmann::ordered_json* json) const {
    if (simulation.analysis) {
      report::AddStepPicture(*step_, cluster_,
                             report::Representatives(simulation.result, simulation.stages), json);
    } else {
      (*json)["not_pictured"] = "too many ops to record";
    }
  }

  bool WriteTrace(bool gzip, std::ostream* out) const {
    report::TraceSource source = Source();
    source.perturbation = &options_.perturbation;
    source.fixed = step_->fixed();
    source.breakdown = &step_->breakdown();
    if (step_->communicators().rates_logged) {
      std::vector<std::vector<sim::LinkPoint>> tracks =
          sim::LinkTracks(plan_, step_->tasks(), step_->communicators(), step_->timeline(),
                          busiest_, net::WiresOf(cluster_).capacity);
      for (std::size_t i = 0; i < busiest_.size(); ++i)
        source.links.push_back({net::LinkName(cluster_, busiest_[i]), std::move(tracks[i])});
    }
    if (gzip) return report::WriteGzipTrace(source, out);
    report::WriteTrace(source, out);
    return out->good();
  }

 private:
  report::TraceSource Source() const {
    return {&plan_, &step_->tasks(), &step_->communicators(), &step_->timeline(), &step_->pricer()};
  }

  void Analyse(report::Simulation* simulation) const {
    simulation->analysis =
        report::AnalyseStep(Source(), *step_, options_.perturbation, *simulation->candidate.memory,
                            report::Representatives(simulation->result, simulation->stages));
  }

  std::vector<sim::LinkTraffic> Traffic() const {
    return sim::TrafficOnLinks(plan_, step_->tasks(), step_->communicators(),
                               cluster_.links.size());
  }

  std::vector<LinkId> Busiest(const std::vector<sim::LinkTraffic>& traffic, double seconds,
                              std::vector<report::LinkBusy>* table) const {
    std::vector<std::pair<double, LinkId>> order;  // the first of all links alone
    for (std::size_t i = 0; i < traffic.size(); ++i) {
      if (traffic[i].bytes <= 0) continue;
      const std::pair next(-traffic[i].occupied / cluster_.links[i].capacity.value / seconds,
                           static_cast<LinkId>(i));
      if (order.size() == kBusiestLinks && order.back() <= next) continue;
      order.insert(std::ranges::upper_bound(order, next), next);
      if (order.size() > kBusiestLinks) order.pop_back();
    }
    std::vector<LinkId> busiest;
    for (const auto& [busy, link] : order) {
      const sim::LinkTraffic& on_link = traffic[static_cast<std::size_t>(link)];
      table->push_back({net::LinkName(cluster_, link), on_link.bytes, -busy, on_link.efficiency()});
      busiest.push_back(link);
    }
    return busiest;
  }

  const orrery::Job& job_;
  ir::Plan plan_;
  Cluster cluster_;
  sim::SimulationOptions options_;
  std::optional<sim::Simulation> step_;
  std::vector<LinkId> busiest_;
};

// Under another name first: nobody finds half a trace.
void SaveTrace(const Twin& twin, int64_t ops, const Flag& flag) {
  if (ops > kMostTraced) {
    throw InputError({{flag.where, fmt::format("a trace of {} ops is too large to open", ops),
                       fmt::format("up to {}: fewer micro-batches or nodes", kMostTraced)}});
  }
  const std::string aside = flag.text + ".part";
  if (const std::string why = WhyNotWritable(aside); !why.empty())
    throw InputError({{flag.where, fmt::format("cannot write '{}': {}", flag.text, why),
                       "--trace names a file in a folder that exists"}});
  errno = 0;
  std::ofstream file(aside, std::ios::binary);
  if (file && !twin.WriteTrace(flag.text.ends_with(".gz"), &file)) file.setstate(std::ios::failbit);
  file.close();
  std::error_code error(errno, std::generic_category());
  if (file) std::filesystem::rename(aside, flag.text, error);
  if (file && !error) return;
  std::error_code ignored;
  std::filesystem::remove(aside, ignored);
  throw InputError({{flag.where, fmt::format("cannot write '{}': {}", flag.text, error.message()),
                     "--trace names a file in a folder that exists"}});
}

// What of a step repeats is simulated once (model/twin/steady.h). `layout`: null, the plan comes from a text. Not what
// jitter makes different each time, and no step whose every task is to be shown. False: it has to be simulated whole.
bool RunShortSteps(const orrery::Job& job, const Strategy* layout, const ir::Plan& plan,
                   const sim::SimulationOptions& options, Perturbations* perturbations,
                   bool analyse, report::Simulation* simulation) {
  if (layout == nullptr || !options.merge_alike || options.backend != net::Backend::kFluid ||
      (perturbations != nullptr && perturbations->jitter > 0))
    return false;
  for (const ShortSteps& steps : ShortStepsOf(*layout, plan.micro_batches)) {
    Twin fewer(job, WithMicroBatches(plan, job.work, *layout, steps.fewer), options);
    Twin more(job, WithMicroBatches(plan, job.work, *layout, steps.more), options);
    if (perturbations != nullptr) {
      fewer.Disturb(perturbations);
      more.Disturb(perturbations);
    }
    if (!Twin::RunShort(&fewer, &more, analyse, plan.micro_batches, simulation)) continue;
    simulation->digest = ir::Digest(plan);
    return true;
  }
  return false;
}

// The step without perturbations. Replicas may share NICs unevenly, so that they are executed one
// by one, as the disturbed ones are, while that is quick.
double UndisturbedSeconds(const orrery::Job& job, const Strategy* layout, ir::Plan plan,
                          sim::SimulationOptions options) {
  options.merge_replicas =
      sim::MostOps(plan) * static_cast<double>(plan.mesh.ranks()) > kMostCompared;
  report::Simulation simulation;
  if (RunShortSteps(job, layout, plan, options, nullptr, false, &simulation))
    return simulation.seconds();
  Twin twin(job, std::move(plan), options);
  twin.Run(false, false, &simulation);
  return simulation.seconds();
}

// What there is to say when ranks that must talk cannot.
Answer NoStep(const report::Simulation& simulation, const NoRoute& gap,
              const SimulateFlags& flags) {
  const Diagnostic& why = gap.diagnostics().front();
  const nlohmann::ordered_json document = {
      {"schema", "orrery.simulate/1"}, {"feasible", false},
      {"reason", why.message},         {"from_rank", gap.from()},
      {"to_rank", gap.to()},           {"perturbation", simulation.perturbation}};
  return Deliver(ExitCode::kInfeasible,
                 fmt::format("This step cannot run ({}).\n  {}\n  {}\n", simulation.perturbation,
                             why.message, why.hint),
                 document, flags.json, flags.html);
}

Prediction ClosedForm(const SimulateFlags& flags, const report::Job& whole, const orrery::Job& job,
                      const Strategy& strategy) {
  if (MicroBatches(job.work, strategy) > kMostMicroBatches) {
    throw InputError(
        fmt::format("{} micro-batches are too many to simulate", MicroBatches(job.work, strategy)),
        fmt::format("at most {} are: a smaller --global-batch, or a larger --micro-batch",
                    kMostMicroBatches));
  }
  const auto predicted = Predict(job, strategy, Engine::kClosed);
  if (const auto* refusal = std::get_if<Refusal>(&predicted))
    RefuseLayout(*refusal, flags.job, flags.layout, whole, strategy);
  return std::get<Prediction>(predicted);
}

}  // namespace

Answer RunSimulate(const CommandLine& line) {
  SimulateFlags flags;
  if (flags.set.Parse(line, kAfterName)) return {ExitCode::kOk, DescribeSimulate().help};
  TakeImports(&flags.job, &flags.layout);
  Diagnostics diagnostics;
  const net::Backend backend = ReadBackend(flags, &diagnostics);
  const bool contention = ReadContention(flags, &diagnostics);
  Scenario scenario = AtFile(flags.scenario, "a scenario", [&] { return ReadScenario(&flags); });
  Perturbations perturbations =
      ReadPerturbations(flags, std::move(scenario.perturbations), &diagnostics);
  if (flags.trace.given && flags.trace.text.empty())
    diagnostics.Error(flags.trace.where, "--trace needs a file name", "--trace step.json");
  if (!contention && (!perturbations.slow_links.empty() || !perturbations.dead_nics.empty())) {
    diagnostics.Error(flags.contention.where, "--contention off simulates no links",
                      "omit --contention, or degraded links and failed NICs");
  }
  diagnostics.ThrowIfAny();
  CheckHtml(flags.html, flags.json);
  CheckBundle(flags.bundle);
  ir::Plan plan;
  if (flags.plan.given) plan = ReadPlanFile(flags.plan, flags.job, flags.layout);
  const report::Job job =
      flags.plan.given ? flags.job.Resolve(plan, flags.plan.text) : flags.job.Resolve();
  const orrery::Job priced = JobOf(job.request, job.profiles);
  report::Simulation simulation;
  if (flags.plan.given) {
    simulation.candidate = PredictPlan(priced, plan);
    simulation.micro_step = report::UnknownTime();
    simulation.printed_s = simulation.micro_step.total;
  } else {
    const Strategy strategy = OneStrategy(flags.layout, job);
    simulation.candidate = ClosedForm(flags, job, priced, strategy);
    StepPredictor predictor(priced);
    simulation.micro_step = std::get<StepTime>(predictor.Predict(strategy, Window::kSustained));
    simulation.printed_s =
        std::get<StepTime>(predictor.Predict(strategy, Window::kMicrostep)).total;
    plan = LowerLegal(priced, simulation.candidate.strategy);
  }
  simulation.network = report::NameIn(kNetworkNames, backend);
  simulation.contention = contention;
  if (!scenario.name.empty())
    simulation.scenario = fmt::format("{}: {}", scenario.name, scenario.description);
  sim::SimulationOptions options;
  options.backend = backend;
  options.contention = contention;
  options.merge_replicas = !perturbations.any() && !flags.all_ranks.given;
  // A trace shows each executed rank, and all of the perturbed ones.
  options.merge_alike = !flags.all_ranks.given && !flags.trace.given;
  const Strategy whole = simulation.candidate.strategy;
  const Strategy* layout = flags.plan.given ? nullptr : &whole;
  Twin twin(priced, plan, options);
  if (perturbations.any()) {
    twin.Disturb(&perturbations);
    simulation.perturbation = perturbations.Words();
    simulation.undisturbed = UndisturbedSeconds(priced, layout, plan, options);
  }
  try {
    Perturbations* some = perturbations.any() ? &perturbations : nullptr;
    // A page draws tasks.
    if (flags.html.given || !RunShortSteps(priced, layout, plan, options, some, true, &simulation))
      twin.Run(true, flags.trace.given, &simulation);
  } catch (const NoRoute& gap) {
    return NoStep(simulation, gap, flags);
  }
  if (flags.trace.given) SaveTrace(twin, simulation.result.ops, flags.trace);
  const auto& memory = simulation.candidate.memory;
  nlohmann::ordered_json json = report::SimulationJson(job, simulation);
  if (flags.html.given) twin.AddPicture(simulation, &json);
  WriteBundle(flags.bundle, json);
  Answer answer = Deliver(memory && !memory->fits ? ExitCode::kInfeasible : ExitCode::kOk,
                          report::SimulationText(job, simulation), json, flags.json, flags.html);
  answer.brief =
      fmt::format("{}: simulated step {}", report::LayoutWords(job, simulation.candidate),
                  Format(Seconds(simulation.seconds())));
  return answer;
}

}  // namespace orrery::cli
