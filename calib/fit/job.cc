// SPDX-License-Identifier: Apache-2.0
// Job files and flags.
#include "calib/fit/job.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/node.h"
#include "model/hardware/catalog.h"

namespace orrery {
namespace {

constexpr double kWidestPrior = 3.0;

std::vector<ConstantName> ReadNames(const Node& entry) {
  std::vector<ConstantName> names;
  const auto read = [&](const std::string& text) {
    try {
      names.push_back(ParseConstantName(text));
    } catch (const InputError& error) {
      entry.ErrorAt("of", error.diagnostics().front().message, error.diagnostics().front().hint);
    }
  };
  const auto of = entry.Find("of");
  if (of && of->IsSequence()) {
    for (const Node& element : of->Elements()) read(element.AsString());
  } else {
    read(entry.String("of"));
  }
  return names;
}

void ReadRequest(const Node& entry, std::vector<ParameterRequest>* requests) {
  ParameterRequest request;
  request.names = ReadNames(entry);
  const std::string prior = entry.String("prior", "");
  if (entry.Has("spread")) request.spread = entry.Number("spread", 0.001, kWidestPrior);
  entry.RejectUnknownKeys();
  if (request.names.empty()) return;
  if (!prior.empty()) {
    const ConstantName& first = request.names.front();
    try {
      if (prior.find('/') != std::string::npos)
        request.around = ParseConstantName(prior);
      else
        request.prior = ParseConstant(prior, RangeOf(first).kind, first.Text());
    } catch (const InputError& error) {
      entry.ErrorAt("prior", error.diagnostics().front().message, error.diagnostics().front().hint);
    }
  }
  requests->push_back(std::move(request));
}

// "framework:kernel_gap", "framework/megatron:kernel_gap": the first form means the named profile.
std::vector<ConstantName> Named(const std::string& text, const FitFlags& flags) {
  if (text.find('/') != std::string::npos) return {ParseConstantName(text)};
  const std::size_t colon = text.find(':');
  const std::string written = text.substr(0, colon);
  const std::string folder =
      written == "stack" ? kFrameworkFolder : written;  // until the next release
  const std::vector<std::string>& ids = folder == "gpu"      ? flags.gpus
                                        : folder == "fabric" ? flags.fabrics
                                                             : flags.frameworks;
  const std::string key = colon == std::string::npos ? "" : text.substr(colon + 1);
  std::vector<ConstantName> names;
  for (const std::string& id : ids)
    names.push_back(ParseConstantName(fmt::format("{}/{}:{}", folder, id, key)));
  if (names.empty()) {
    (void)ParseConstantName(fmt::format("{}/any:{}", folder, key));
    throw InputError(fmt::format("--free {} needs a profile", text),
                     fmt::format("name it with --{}", folder));
  }
  return names;
}

void KnowFramework(const std::string& id, FitJob* job, ProfileStore* store) {
  if (!IsSite(id)) {
    (void)store->Framework(id);
    return;
  }
  if (HasProfile(kFrameworkFolder, id)) {
    (void)store->Framework(id);
  } else {
    store->AddSite(id, id.substr(0, id.rfind('@')));
  }
  job->sites.push_back(id);
}

}  // namespace

bool IsSite(const std::string& framework) {
  const std::size_t at = framework.rfind('@');
  if (at == std::string::npos) return false;
  if (!HasProfile(kFrameworkFolder, framework)) return true;
  const std::vector<std::string> clusters = TopologyNames();
  return std::ranges::find(clusters, framework.substr(at + 1)) != clusters.end();
}

FitJob ReadFitJob(const SourcePtr& source) {
  Diagnostics diagnostics;
  const Node root = Node::Parse(source, &diagnostics);
  diagnostics.ThrowIfAny();
  FitJob job;
  job.title = root.String("title", "");
  job.kernels_of = root.String("kernels_of", "");
  if (root.Has("sources")) {
    for (const Node& name : root.Items("sources")) job.filter.sources.insert(name.AsString());
  }
  static constexpr std::pair<const char*, Holdout> kHoldouts[] = {{"none", Holdout::kNone},
                                                                  {"model", Holdout::kModel},
                                                                  {"topology", Holdout::kTopology},
                                                                  {"source", Holdout::kSource}};
  const std::span<const std::pair<const char*, Holdout>> holdouts = kHoldouts;
  job.holdout = root.Choice("holdout", holdouts, Holdout::kModel);
  if (root.Has("memory_by")) {
    const Node by = root.Child("memory_by");
    for (const std::string& name : by.Keys())
      job.memory_by[name] = by.Choice(name, MemoryPrinters());
  }
  for (const Node& entry : root.Items("parameters")) ReadRequest(entry, &job.requests);
  root.RejectUnknownKeys();
  diagnostics.ThrowIfAny();
  if (job.requests.empty()) throw InputError(fmt::format("{} frees no constant", source->name));
  return job;
}

FitJob JobOf(const FitFlags& flags, ProfileStore* store) {
  FitJob job;
  job.filter.sources.insert(flags.sources.begin(), flags.sources.end());
  std::vector<std::pair<ProfileLayer, std::string>> named;
  for (const std::string& id : flags.gpus) {
    (void)store->Gpu(id);
    job.filter.gpus.insert(id);
    named.emplace_back(ProfileLayer::kGpu, id);
  }
  for (const std::string& id : flags.fabrics) {
    (void)store->Fabric(id);
    job.filter.fabrics.insert(id);
    named.emplace_back(ProfileLayer::kFabric, id);
  }
  for (const std::string& id : flags.frameworks) {
    KnowFramework(id, &job, store);
    job.filter.frameworks.insert(id);
    if (!IsSite(id)) named.emplace_back(ProfileLayer::kFramework, id);
  }
  if (named.empty() && job.sites.empty())
    throw InputError("nothing to calibrate", "name profiles with --gpu, --fabric or --framework");
  for (const std::string& text : flags.free) {
    for (const ConstantName& name : Named(text, flags))
      job.requests.push_back({{name}, std::nullopt, std::nullopt});
  }
  if (flags.gpus.size() == 1) job.kernels_of = flags.gpus.front();
  if (!flags.free.empty()) return job;
  job.requests = DefaultRequests(named, *store);
  for (const std::string& site : job.sites) job.requests.push_back(SiteRequest(site));
  return job;
}

}  // namespace orrery
