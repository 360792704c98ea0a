// SPDX-License-Identifier: Apache-2.0
// The flags of an export.
#include "model/program/plan/export_flags.h"

#include <fmt/format.h>

namespace orrery::cli {
namespace {

std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

std::vector<std::string> TargetNames() {
  std::vector<std::string> names;
  for (const exchange::TargetInfo& info : exchange::Targets()) names.emplace_back(info.name);
  return names;
}
std::vector<std::string> LauncherNames() {
  std::vector<std::string> names;
  for (const exchange::Launcher& launcher : exchange::Launchers())
    names.emplace_back(launcher.name);
  return names;
}

void ExportFlags::Declare(FlagSet* flags, const char* to) {
  flags->Value(&target, to, "TARGET",
               fmt::format("writes the best layout as files for {}", Listed(TargetNames())),
               Words::kList, TargetNames());
  flags->Value(&launcher, "--launcher", "NAME",
               fmt::format("what starts it: {} (default torchrun)", Listed(LauncherNames())),
               Words::kList, LauncherNames());
  flags->Value(&out, "--out", "FOLDER", "where the files go", Words::kOutputFolder);
  flags->Value(&image, "--image", "NAME", "container for aws-batch and kubernetes");
  flags->Switch(&strict, "--strict",
                "exit code 4 where the target cannot be told everything that was predicted");
  flags->Switch(&force, "--force", "replaces files that are there already");
}

}  // namespace orrery::cli
