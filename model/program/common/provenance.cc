// SPDX-License-Identifier: Apache-2.0
// Counts a profile's constants by where they come from.
#include "model/program/common/provenance.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "model/program/common/table.h"

namespace orrery::report {
namespace {

struct Origin {
  const char* role;
  const ProfileHeader* header;
};

std::array<Origin, 3> Origins(const Job& job) {
  return {{{"GPU", &job.profiles.gpu.header},
           {"network", &job.profiles.fabric.header},
           {"framework", &job.profiles.framework.header}}};
}

// Constants behind which measurements of this very profile stand.
int Fitted(const ProfileHeader& header) {
  int fitted = 0;
  for (const auto& [key, constant] : header.constants) {
    if (constant.points > 0 || constant.source.starts_with("fitted")) ++fitted;
  }
  return fitted;
}

}  // namespace

std::string ProvenanceText(const Job& job) {
  Table table({{""}, {"profile"}, {"constants", true}, {"fitted", true}, {""}});
  for (const Origin& origin : Origins(job)) {
    table.Row({origin.role, origin.header->id, std::to_string(origin.header->constants.size()),
               std::to_string(Fitted(*origin.header)), origin.header->title});
  }
  return table.Text() +
         "  All other constants are vendor data or priors; calib/profiles gives the source of "
         "each.\n";
}

nlohmann::ordered_json ProvenanceJson(const Job& job) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Origin& origin : Origins(job)) {
    json.push_back({{"role", origin.role},
                    {"profile", origin.header->id},
                    {"title", origin.header->title},
                    {"constants", origin.header->constants.size()},
                    {"fitted", Fitted(*origin.header)}});
  }
  return json;
}

}  // namespace orrery::report
