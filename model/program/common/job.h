// SPDX-License-Identifier: Apache-2.0
// What all reports print from: the job, the cluster, the profiles, and who decided what.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/arch/catalogue.h"
#include "model/hardware/summary.h"
#include "model/report/short_number.h"
#include "model/twin/search.h"

namespace orrery::report {

// A choice that the command line left open.
struct Decision {
  std::string what;         // "sequence length 128"
  std::string flag;         // that changes it: "--seq-len"
  std::string why;          // empty: obvious
  bool from_model = false;  // the model file's default
};

// A fact of the framework's release that the step time rests on.
struct ReleaseFact {
  std::string key;   // "attention"; "" where no --fact sets it
  std::string what;  // "attention fa2"
  bool stated = false;
};

struct Job {
  LoadedModel model;
  SearchRequest request;
  Profiles profiles;
  ClusterSummary cluster;  // of the first node count
  std::vector<Decision> decisions;
  std::vector<ReleaseFact> facts;  // of the framework; empty: of a plan text
  std::vector<std::string> notes;  // how flags were read: an alias of a framework
  int64_t parameters = 0;
  std::string plan;       // title of a plan text in the place of model and layout; empty: none
  std::string arguments;  // flags that name this job again, without --nodes and --global-batch
};

// The framework's release whose facts and constants hold: "megatron@2021" of megatron without fused attention.
std::string ReleaseOf(const Job& job);

// The first lines of every report: the model, the cluster, what defaults decided and how to change
// it, facts of the framework, assumed and stated, notes of the model's reader.
std::string JobHeader(const Job& job);

// Files of the project's and the user's folders (model/arch/data_root.h) that the answer rests on, as ShownPath() has
// them: model, topology, profiles and what those inherit. Each once.
std::vector<std::string> UserFilesOf(const Job& job);

// Keys "model", "topology", "workload", "profiles", "defaults", "facts", "notes"; "user_files" if there are some.
nlohmann::ordered_json JobJson(const Job& job);

}  // namespace orrery::report
