// SPDX-License-Identifier: Apache-2.0
// Exports by the parsers of others: shellcheck, Python, PyYAML, tomllib, botocore. Each is skipped where it is missing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "tests/exchange/exported.h"

namespace orrery::exchange {
namespace {

bool Runs(const std::string& command) {
  return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
}
// Output and exit status in one text; "": it succeeded silently.
std::string Output(const std::string& command) {
  std::string text;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char chunk[4096];
  while (const std::size_t got = fread(chunk, 1, sizeof chunk, pipe)) text.append(chunk, got);
  const int status = pclose(pipe);
  return status == 0 ? text : text + fmt::format("\nexit status {}", status);
}

// Jobs with and without every degree: names that need quotes come from users, too.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"--model", "llama3-8b", "--topology", "dgx-h100", "--nodes", "4", "--zero", "3",
            "--framework", "fsdp"},
           {"--model", "llama3-70b", "--topology", "dgx-h100", "--nodes", "4", "--tp", "8", "--pp",
            "2", "--layout", "39,41", "--sequence-parallel", "--framework", "orrery", "--zero",
            "0"},
           {"--model", "llama3-8b", "--topology", "dgx-h100", "--nodes", "4", "--placement",
            "2,0,1,3", "--framework", "megatron"},
           {"--model", "gpt2-xl", "--topology", "aws-p4d", "--nodes", "1", "--framework", "ddp",
            "--precision", "fp16"}})
    cases.push_back(CaseOf(Resolve(words)));
  cases.back().model.name = "it's `a` \"$(model)\"\nname";
  return cases;
}

// All files of all targets and launchers, paths by ending; of files with the same text one.
std::vector<std::string> Files(const std::string& ending) {
  std::vector<std::string> paths;
  std::set<std::string> texts;
  for (const Case& c : Cases()) {
    for (const TargetInfo& target : Targets()) {
      Bundle bundle = MakeBundle(c, target.target);
      if (!bundle.Refusal().empty()) continue;
      bundle.name = "test-job";
      bundle.header = {c.model.name, "Plan 0123"};
      for (const Launcher& launcher : Launchers()) {
        for (const std::string& path : Write(launcher.files(bundle, TargetFiles(bundle)))) {
          if (path.ends_with(ending) && texts.insert(ReadAll(path)).second) paths.push_back(path);
        }
      }
    }
  }
  EXPECT_FALSE(paths.empty()) << ending;
  return paths;
}

std::string Spaced(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) text += " " + path;
  return text;
}

TEST(Parsers, ShellcheckFindsNothingInAnyScript) {
  if (!Runs("shellcheck --version")) GTEST_SKIP() << "shellcheck is not installed";
  for (const char* ending : {".sh", ".sbatch", ".pbs"})
    EXPECT_EQ(Output("shellcheck" + Spaced(Files(ending))), "");
}

TEST(Parsers, PythonCompilesEveryProgram) {
  if (!Runs("/usr/bin/python3 --version")) GTEST_SKIP() << "python3 is not installed";
  EXPECT_EQ(Output("/usr/bin/python3 -c 'import sys\nfor name in sys.argv[1:]: "
                   "compile(open(name).read(), name, \"exec\")'" +
                   Spaced(Files(".py"))),
            "");
}

TEST(Parsers, JsonIsWhatPythonReads) {
  if (!Runs("/usr/bin/python3 --version")) GTEST_SKIP() << "python3 is not installed";
  EXPECT_EQ(Output("/usr/bin/python3 -c 'import sys, json\nfor name in sys.argv[1:]: "
                   "json.load(open(name))'" +
                   Spaced(Files(".json"))),
            "");
}

TEST(Parsers, YamlIsWhatPyYamlReads) {
  if (!Runs("/usr/bin/python3 -c 'import yaml'")) GTEST_SKIP() << "PyYAML is not installed";
  EXPECT_EQ(Output("/usr/bin/python3 -c 'import sys, yaml\n"
                   "for name in sys.argv[1:]:\n"
                   "  for part in yaml.safe_load_all(open(name)): assert isinstance(part, dict)'" +
                   Spaced(Files(".yaml"))),
            "");
}

TEST(Parsers, TheConfigMapHoldsTheFilesByteByByte) {
  if (!Runs("/usr/bin/python3 -c 'import yaml'")) GTEST_SKIP() << "PyYAML is not installed";
  const Bundle bundle = MakeBundle(Cases().front(), kMegatron);
  const std::vector<File> files = TargetFiles(bundle);
  const std::vector<std::string> paths = Write(KubernetesFiles(bundle, files));
  EXPECT_EQ(Output("/usr/bin/python3 -c 'import sys, yaml\n"
                   "parts = list(yaml.safe_load_all(open(sys.argv[1])))\n"
                   "assert [p[\"kind\"] for p in parts] == [\"Service\", \"ConfigMap\", \"Job\"]\n"
                   "assert parts[1][\"data\"][\"train.sh\"] == open(sys.argv[2]).read()\n"
                   "assert parts[2][\"spec\"][\"parallelism\"] == 4' " +
                   *std::ranges::find_if(
                       paths, [](const auto& path) { return path.ends_with("job.yaml"); }) +
                   " " + paths.front()),
            "");
}

// What a user names may look like a number, a comment or a mapping, and has any character.
TEST(Parsers, ValuesOfTheUserStayTextsInYaml) {
  Case c = Cases().front();
  std::vector<std::string> paths;  // a job and its image, in turn
  c.model.name = "a\u0085b\u2028c\u2029d\xff e\uFFFE";
  for (const char* image : {"1.5", "true", "registry/a: b", "a # b", "- a", "{a}", "*a",
                            "'a' \"b\"", "C:\\new", "null", "0x1f"}) {
    for (const TargetInfo& target : Targets()) {
      Bundle bundle = MakeBundle(c, target.target);
      if (!bundle.Refusal().empty()) continue;
      bundle.name = "test-job";
      bundle.header = {c.model.name};
      bundle.image = image;
      std::vector<File> files = KubernetesFiles(bundle, TargetFiles(bundle));
      const auto job = std::ranges::find(files, "job.yaml", &File::name);
      EXPECT_EQ(job->text.find(fmt::format("image: {}\n", image)), std::string::npos);
      EXPECT_NE(job->text.find("# a b c d? e?\n"), std::string::npos);
      for (const std::string& path : Write({*job, {"image", image}})) paths.push_back(path);
    }
  }
  ASSERT_FALSE(paths.empty());
  if (!Runs("/usr/bin/python3 -c 'import yaml'")) GTEST_SKIP() << "PyYAML is not installed";
  EXPECT_EQ(Output("/usr/bin/python3 -c 'import sys, yaml\n"
                   "for name, image in zip(sys.argv[1::2], sys.argv[2::2]):\n"
                   "  job = list(yaml.safe_load_all(open(name)))[2]\n"
                   "  found = job[\"spec\"][\"template\"][\"spec\"][\"containers\"][0][\"image\"]\n"
                   "  assert found == open(image).read(), (name, found)'" +
                   Spaced(paths)),
            "");
}

TEST(Parsers, TomlIsWhatPythonReads) {
  if (!Runs("/usr/bin/python3 -c 'import tomllib'")) GTEST_SKIP() << "Python has no tomllib";
  EXPECT_EQ(Output("/usr/bin/python3 -c 'import sys, tomllib\nfor name in sys.argv[1:]: "
                   "assert tomllib.load(open(name, \"rb\"))[\"training\"][\"seq_len\"] > 0'" +
                   Spaced(Files(".toml"))),
            "");
}

// botocore checks names and types of a request, not the choices of an enumeration.
TEST(Parsers, AwsTakesTheJobDefinition) {
  if (!Runs("/usr/bin/python3 -c 'import botocore'")) GTEST_SKIP() << "botocore is not installed";
  EXPECT_EQ(Output("/usr/bin/python3 -c 'import sys, json, botocore.session, botocore.validate\n"
                   "batch = botocore.session.get_session().get_service_model(\"batch\")\n"
                   "shape = batch.operation_model(\"RegisterJobDefinition\").input_shape\n"
                   "for name in sys.argv[1:]:\n"
                   "  job = json.load(open(name))\n"
                   "  if \"jobDefinitionName\" not in job: continue\n"
                   "  report = botocore.validate.ParamValidator().validate(job, shape)\n"
                   "  assert not report.has_errors(), report.generate_report()\n"
                   "  assert len(json.dumps(job)) < 24 * 1024, len(json.dumps(job))'" +
                   Spaced(Files("job-definition.json"))),
            "");
}

}  // namespace
}  // namespace orrery::exchange
