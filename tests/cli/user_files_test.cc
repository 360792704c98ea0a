// SPDX-License-Identifier: Apache-2.0
// Files of the project (.orrery/) and of the user ($XDG_DATA_HOME/orrery) before the catalogue's; references stay inside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSecret = "password: 7f3a-hunter2: [\n";

class UserFiles : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "project" / "below");
    Put("project/.orrery/topologies/pair.yaml", Topology("pair", "tiny"));
    Put("project/.orrery/profiles/gpu/tiny.yaml",
        "title: \"a quarter of the memory\"\ninherits: a100-sxm4-40gb\nconstants:\n"
        "  memory: {value: 10GiB, source: \"a test\"}\n");
    Put("data/orrery/models/small.yaml", Model("small"));
    Put("data/orrery/models/bert-large.yaml", Model("bert-large"));
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string Model(const std::string& name) {
    return "name: " + name +
           "\nfamily: decoder\nlayers: 2\nhidden: 256\nffn: 1024\nheads: 4\nvocab: 1000\n"
           "max_positions: 128\ntraining: {seq_len: 128, global_batch: 16, source: a test}\n";
  }
  static std::string Topology(const std::string& name, const std::string& gpu) {
    std::string text = ReadText(std::string(ORRERY_SOURCE_DIR) + "/topologies/aws-p4d.yaml");
    for (const auto& [key, value] : {std::pair("\nname: ", name), std::pair("\ngpu: ", gpu)}) {
      const std::size_t at = text.find(key) + std::string(key).size();
      text.replace(at, text.find_first_of("\n #", at) - at, value);
    }
    return text;
  }
  void Put(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    WriteText((folder_ / name).string(), text);
  }
  // In `folder` of the scratch folder, which is the home; both streams.
  Outcome In(const std::string& folder, const std::string& words) const {
    return RunShell("cd '" + (folder_ / folder).string() + "' && HOME='" + folder_.string() +
                    "' XDG_DATA_HOME='" + (folder_ / "data").string() + "' \"$PLAN\" " + words +
                    " 2>&1");
  }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  const fs::path folder_ = fs::path(ScratchFolder()) / "home";
};

TEST_F(UserFiles, AreFoundByNameAndNamedByTheAnswer) {
  const Outcome answer = In("project/below", "--model small --topology pair --nodes 1");
  EXPECT_EQ(answer.code, 0) << answer.out;
  const std::string text = Folded(answer.out);
  EXPECT_THAT(text, HasSubstr("user files"));
  for (const char* file :
       {"~/project/.orrery/topologies/pair.yaml", "~/project/.orrery/profiles/gpu/tiny.yaml",
        "~/data/orrery/models/small.yaml"}) {
    EXPECT_THAT(text, HasSubstr(file));
  }
  const json record = json::parse(
      In("project/below", "--model small --topology pair --nodes 1 --json").out, nullptr, false);
  EXPECT_EQ(record["user_files"].size(), 3U);
  EXPECT_EQ(record["model"]["file"], "~/data/orrery/models/small.yaml");
}

TEST_F(UserFiles, StandBeforeTheCatalogueAndOnlyWhereTheyAre) {
  EXPECT_THAT(In("project", "list models --names").out, HasSubstr("\nsmall\n"));
  EXPECT_THAT(In("project",
                 "predict --model bert-large --topology dgx1-v100 --nodes 1 --tp 1 "
                 "--dp 8 --zero 0 --micro-batch 1")
                  .out,
              HasSubstr("user files"));
  EXPECT_THAT(In("data", "topo pair").out, HasSubstr("no topology 'pair'"));
  EXPECT_THAT(In("project", "topo aws-p4d").out, Not(HasSubstr("user files")));
}

TEST_F(UserFiles, OfOthersAreNotTheProjects) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder to somebody else";
  ASSERT_EQ(chown(Path("project/.orrery").c_str(), 12345, 12345), 0);
  EXPECT_THAT(Folded(In("project", "topo pair").out),
              AllOf(HasSubstr("no topology 'pair'"),
                    HasSubstr("belongs to another user, and is not read")));
  EXPECT_THAT(Folded(In("project", "topo aws-p4d").out),
              HasSubstr("/.orrery' belongs to another user"));
  EXPECT_THAT(In("data", "topo aws-p4d").out, Not(HasSubstr("belongs to another")));
}

TEST_F(UserFiles, CannotReferToFilesOutsideOfTheirFolder) {
  Put("secret.yaml", kSecret);
  fs::create_symlink(Path("secret.yaml"), Path("project/.orrery/linked.yaml"));
  for (const char* gpu : {"../../../secret.yaml", "../linked.yaml", "/etc/hostname.yaml"}) {
    Put("project/.orrery/topologies/bad.yaml", Topology("bad", gpu));
    const Outcome refused = In("project", "--model small --topology bad --nodes 1");
    EXPECT_EQ(refused.code, 2) << gpu;
    EXPECT_THAT(refused.out, AllOf(HasSubstr("leaves the folder"), Not(HasSubstr("hunter2"))));
  }
  const std::string inherits = "title: x\ninherits: " + Path("secret.yaml") + "\nconstants: {}\n";
  Put("project/.orrery/profiles/gpu/tiny.yaml", inherits);
  const Outcome parent = In("project", "--model small --topology pair --nodes 1");
  EXPECT_EQ(parent.code, 2);
  EXPECT_THAT(parent.out, AllOf(HasSubstr("by its name"), Not(HasSubstr("hunter2"))));
  std::string model = Model("m");
  model.replace(model.find("seq_len"), 0, "topology: ../secret.yaml, ");
  Put("project/model.yaml", model);
  const Outcome other = In("project", "--model ./model.yaml --nodes 1");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.out, AllOf(HasSubstr("leaves the folder"), Not(HasSubstr("hunter2"))));
}

// A name hides where its file lies: of a project that somebody sent, a link shows its reader's files.
TEST_F(UserFiles, ThatAreLinksOutOfTheirFolderAreRefused) {
  Put("secret.yaml", kSecret);
  fs::create_directories(Path("elsewhere"));
  Put("elsewhere/deep.yaml", kSecret);
  const auto refused = [&](const std::string& words) {
    const Outcome outcome = In("project", words);
    EXPECT_EQ(outcome.code, 2) << words;
    EXPECT_THAT(Folded(outcome.out),
                AllOf(HasSubstr("is a link that leaves"), Not(HasSubstr("hunter2"))))
        << words;
  };
  for (const char* kind : {"models", "topologies", "profiles/gpu", "profiles/fabric"}) {
    fs::create_directories(folder_ / "project/.orrery" / kind);
    fs::create_symlink(Path("secret.yaml"), folder_ / "project/.orrery" / kind / "sec.yaml");
  }
  refused("predict --model sec --topology pair --nodes 1");
  refused("--model small --topology sec --nodes 1");
  refused("--model small --topology pair --nodes 1 --gpu sec");
  Put("project/.orrery/topologies/bad.yaml", Topology("bad", "sec"));
  refused("--model small --topology bad --nodes 1");
  Put("project/.orrery/profiles/gpu/tiny.yaml", "title: x\ninherits: sec\nconstants: {}\n");
  refused("--model small --topology pair --nodes 1");
  fs::create_directory_symlink(Path("elsewhere"), Path("project/.orrery/offers"));
  refused("provision --model small --tokens 1B --offers deep");
  // One that stays inside is a name more.
  fs::create_symlink("pair.yaml", Path("project/.orrery/topologies/same.yaml"));
  EXPECT_EQ(In("project", "topo same").code, 0);
}

TEST_F(UserFiles, ThatAreBrokenDoNotHideTheOthers) {
  Put("project/.orrery/models/bad.yaml", "layers: [\n");
  Put("project/.orrery/topologies/bad.yaml", "name: bad\n");
  Put("project/.orrery/profiles/gpu/bad.yaml", "title: [\n");
  Put("project/.orrery/offers/bad.yaml", "name: [\n");
  for (const auto& [kind, other] : {std::pair("models", "\n  small "),
                                    {"topologies", "\n  pair "},
                                    {"gpus", "\n  tiny "},
                                    {"offers", "\n  aws-p5 "}}) {
    const Outcome list = In("project", std::string("list ") + kind);
    EXPECT_EQ(list.code, 0) << kind;
    EXPECT_THAT(list.out, AllOf(HasSubstr(other), HasSubstr("not read: bad (.orrery/"))) << kind;
  }
  const json all = json::parse(In("project", "list --json").out, nullptr, false);
  EXPECT_EQ(all["not_read"].size(), 4U) << all["not_read"].dump(1);
  // What nobody asked for is left out with the reason; who names it hears it.
  Put("project/.orrery/profiles/framework/bad.yaml", "title: [\n");
  fs::create_symlink("/etc/hostname", Path("project/.orrery/profiles/framework/far.yaml"));
  for (const char* offers : {"--offers aws", "--offers aws-p5", ""}) {
    const Outcome sold =
        In("project", std::string("provision --model small --tokens 1B --nodes 1 ") + offers);
    EXPECT_EQ(sold.code, 0) << offers << sold.out;
    EXPECT_THAT(Folded(sold.out), HasSubstr("bad: not read (.orrery/offers/bad.yaml:")) << offers;
  }
  EXPECT_EQ(In("project", "provision --model small --tokens 1B --offers bad").code, 2);
  EXPECT_EQ(In("project", "export --to megatron --model small --topology pair --nodes 1").code, 0);
  EXPECT_EQ(In("project", "discover").code, In("data", "discover").code);
}

// Files are named as they are: the name within was that of another one, which it replaced.
TEST_F(UserFiles, AreCalledByTheNamesOfTheirFiles) {
  const std::string root = ORRERY_SOURCE_DIR;
  Put("project/.orrery/offers/myoffer.yaml", ReadText(root + "/offers/aws-p5.yaml"));
  Put("project/.orrery/topologies/myc.yaml", ReadText(root + "/topologies/dgx-h100.yaml"));
  Put("project/.orrery/models/mym.yaml", Model("gpt2-xl"));
  EXPECT_THAT(In("project", "list offers").out,
              AllOf(HasSubstr("\n  myoffer "), HasSubstr("\n  aws-p5 ")));
  EXPECT_THAT(In("project", "provision --model small --tokens 1B --offers myoffer --nodes 1").out,
              HasSubstr("myoffer"));
  EXPECT_THAT(In("project", "--model mym --topology myc --nodes 1").out,
              AllOf(HasSubstr("mym ("), HasSubstr(") on myc: ")));
}

TEST_F(UserFiles, OfANewerReleaseAreRefused) {
  const auto outcome = [&](const std::string& release) {
    Put("project/.orrery/models/r.yaml", "orrery: " + release + "\n" + Model("r"));
    return In("project", "show --model r");
  };
  for (const char* release : {"0.1.0", "0.1", "0", "0.0.9"})
    EXPECT_EQ(outcome(release).code, 0) << release;
  for (const char* release : {"99.0", "0.1.1", "0.10"}) {
    const Outcome refused = outcome(release);
    EXPECT_EQ(refused.code, 2) << release;
    EXPECT_THAT(Folded(refused.out),
                AllOf(HasSubstr("r.yaml:1:"),
                      HasSubstr(std::string("is for release ") + release + " of Orrery")));
  }
  EXPECT_THAT(outcome("new").out, HasSubstr("is no release"));
}

TEST_F(UserFiles, MayReferToEachOtherWithinTheirFolder) {
  Put("project/.orrery/topologies/near.yaml", Topology("near", "../profiles/gpu/tiny.yaml"));
  const Outcome answer = In("project", "--model small --topology near --nodes 1");
  EXPECT_EQ(answer.code, 0) << answer.out;
}

}  // namespace
}  // namespace orrery
