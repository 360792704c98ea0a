// SPDX-License-Identifier: Apache-2.0
// A machine is read from its /sys and /proc.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/discover/testing.h"

namespace orrery::discover {
namespace {

namespace fs = std::filesystem;

class MachineTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("orrery-machine-" + std::to_string(getpid()));
    Write("proc/cpuinfo",
          "processor : 0\nvendor_id : AuthenticAMD\nphysical id : 0\ncore id : 0\n\n"
          "processor : 1\nvendor_id : AuthenticAMD\nphysical id : 0\ncore id : 1\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void AddDevice(const std::string& path, const std::string& pci_class, const std::string& vendor,
                 const std::string& device) {
    const std::string folder = "sys/devices/" + path + "/";
    Write(folder + "class", pci_class + "\n");
    Write(folder + "vendor", vendor + "\n");
    Write(folder + "device", device + "\n");
    Write(folder + "numa_node", "0\n");
    const fs::path links = root_ / "sys/bus/pci/devices";
    fs::create_directories(links);
    fs::create_directory_symlink(root_ / "sys/devices" / path, links / fs::path(path).filename());
  }

  fs::path root_;
};

TEST_F(MachineTest, WithoutGpusIsAClusterOfItsCores) {
  Observed seen;
  ReadMachine(root_.string(), &seen);
  const Discovered made = WriteTopology(seen, {});
  EXPECT_EQ(made.spec.gpu, "localhost-cpu");
  EXPECT_EQ(made.spec.node.gpus, 2);
  EXPECT_EQ(made.spec.cores, 2);
}

// As README.md says of `plan discover --nodes 4`.
TEST_F(MachineTest, WithoutGpusAndThreeLikeIt) {
  Observed seen;
  ReadMachine(root_.string(), &seen);
  Choices choices;
  choices.nodes = 4;
  const Discovered made = WriteTopology(seen, choices);
  EXPECT_EQ(made.spec.nodes, 4);
  EXPECT_EQ(made.spec.node.nics.size(), 1u);
  EXPECT_EQ(made.spec.fabric_profile, "tcp");
  EXPECT_THAT(made.assumed,
              testing::Contains(testing::HasSubstr("node.nics: no source shows NICs")));
}

TEST_F(MachineTest, WithGpusIsANode) {
  AddDevice("pci0000:10/0000:10:01.0/0000:11:00.0", "0x030200", "0x10de", "0x2330");
  AddDevice("pci0000:10/0000:10:01.0/0000:12:00.0", "0x020700", "0x15b3", "0x1021");
  AddDevice("pci0000:20/0000:20:01.0/0000:21:00.0", "0x030200", "0x10de", "0x2330");
  Write("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
  Write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  Write("sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n");
  Observed seen;
  ReadMachine(root_.string(), &seen);
  const Discovered made = WriteTopology(seen, {});
  EXPECT_EQ(made.spec.gpu, "h100-sxm5-80gb");
  EXPECT_EQ(made.spec.node.gpus, 2);
  ASSERT_EQ(made.spec.node.nics.size(), 1u);
  EXPECT_DOUBLE_EQ(made.spec.node.nic_rate.value, 50e9);
  EXPECT_EQ(made.spec.node.pcie[0].gpus.size(), 1u);
  EXPECT_EQ(made.spec.node.pcie[0].nics.size(), 1u);
}

TEST_F(MachineTest, CountsAPortThatIsDownAsNoNic) {
  AddDevice("pci0000:10/0000:10:01.0/0000:11:00.0", "0x030200", "0x10de", "0x2330");
  for (const char* bus : {"12", "13"})
    AddDevice(std::string("pci0000:10/0000:10:01.0/0000:") + bus + ":00.0", "0x020700", "0x15b3",
              "0x1021");
  Write("sys/devices/pci0000:10/0000:10:01.0/0000:12:00.0/infiniband/mlx5_0/node_type", "1");
  Write("sys/devices/pci0000:10/0000:10:01.0/0000:13:00.0/infiniband/mlx5_1/node_type", "1");
  for (const char* name : {"mlx5_0", "mlx5_1"}) {
    const std::string port = std::string("sys/class/infiniband/") + name + "/ports/1/";
    const bool up = std::string(name) == "mlx5_0";
    Write(port + "rate", "400 Gb/sec (4X NDR)\n");
    Write(port + "state", up ? "4: ACTIVE\n" : "1: DOWN\n");
    Write(port + "phys_state", up ? "5: LinkUp\n" : "2: Polling\n");
    Write(port + "link_layer", "InfiniBand\n");
  }
  Observed seen;
  ReadMachine(root_.string(), &seen);
  const Discovered made = WriteTopology(seen, {});
  EXPECT_EQ(made.spec.node.nics.size(), 1u);
  EXPECT_THAT(made.notes, testing::Contains(testing::HasSubstr("mlx5_1 port 1 is not linked")));
}

TEST_F(MachineTest, SaysWhatIsMissing) {
  Observed seen;
  EXPECT_THROW(ReadMachine("/no/such/root", &seen), InputError);
}

}  // namespace
}  // namespace orrery::discover
