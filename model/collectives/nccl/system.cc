// SPDX-License-Identifier: Apache-2.0
// Builds the system of a node and finds its paths.
#include "model/collectives/nccl/system.h"

#include <algorithm>

namespace orrery::nccl {
namespace {

constexpr float kSameDeviceRate = 5000.0F;

}  // namespace

const char* Name(Distance distance) {
  constexpr std::array<const char*, 12> kNames = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                                  "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};
  return kNames[static_cast<std::size_t>(distance)];
}

// topo.h, SM60_NVLINK_BW and following.
float NvLinkRate(int capability) {
  if (capability >= 100) return 40.1F;
  if (capability >= 90) return 20.6F;
  if (capability == 86) return 12.0F;
  if (capability >= 70) return 20.0F;
  if (capability >= 60) return 18.0F;
  return 20.0F;
}

System::System(const NodeDescription& node, bool across) : node_(node), across_(across) {
  AddDevices();
  PutUplinksLast();
  for (const DeviceType type :
       {DeviceType::kCpu, DeviceType::kGpu, DeviceType::kNet, DeviceType::kNvSwitch}) {
    for (const int id : Of(type)) FindPathsTo(id);
  }
  AvoidPcieBetweenGpus();
  AdjustNicPaths();
  Measure();
  ResolvePaths();
}

int System::Add(DeviceType type, int host) {
  SystemDevice device;
  device.type = type;
  device.host = host;
  auto& same = by_type_[static_cast<std::size_t>(type)];
  const int id = static_cast<int>(devices_.size());
  index_.push_back(static_cast<int>(same.size()));
  uplinks_.push_back(-1);
  same.push_back(id);
  devices_.push_back(std::move(device));
  return id;
}

// Links of one pair add up; the widest come first.
void System::Connect(int from, int to, LinkType type, float bandwidth) {
  std::vector<SystemLink>& links = At(from).links;
  auto found = std::ranges::find_if(
      links, [&](const SystemLink& link) { return link.to == to && link.type == type; });
  if (found == links.end()) found = links.insert(links.end(), SystemLink{type, 0, to});
  found->bandwidth += bandwidth;
  while (found != links.begin() && std::prev(found)->bandwidth < found->bandwidth) {
    std::iter_swap(std::prev(found), found);
    --found;
  }
}

void System::ConnectBoth(int a, int b, LinkType type, float bandwidth) {
  Connect(a, b, type, bandwidth);
  Connect(b, a, type, bandwidth);
}

void System::AddDevices() {
  std::vector<int> cpus, switches;
  for (const auto& cpu : node_.cpus) {
    cpus.push_back(Add(DeviceType::kCpu, cpu.host));
    hosts_ = std::max(hosts_, cpu.host + 1);
  }
  const auto place = [&](int id, int above, float pcie) {
    uplinks_[static_cast<std::size_t>(id)] = above;
    ConnectBoth(id, above, LinkType::kPcie, pcie > 0 ? pcie : node_.pcie);
  };
  const auto above = [&](int switch_index, int cpu) {
    return switch_index >= 0 ? switches[static_cast<std::size_t>(switch_index)]
                             : cpus[static_cast<std::size_t>(cpu)];
  };
  for (const auto& one : node_.switches) {
    const int upper = above(one.above, one.cpu);
    switches.push_back(Add(DeviceType::kPcieSwitch, At(upper).host));
    place(switches.back(), upper, one.pcie);
  }
  std::vector<int> gpus;
  for (const auto& gpu : node_.gpus) {
    gpus.push_back(Add(DeviceType::kGpu, gpu.host));
    At(gpus.back()).number = gpu.device;
    place(gpus.back(), above(gpu.switch_index, gpu.cpu), gpu.pcie);
  }
  for (const auto& nic : node_.nics) {
    const float rate = nic.rate > 0 ? nic.rate : node_.nic_rate;
    const int card = Add(DeviceType::kNicCard, nic.host), net = Add(DeviceType::kNet, nic.host);
    At(net).net_rate = rate;
    ConnectBoth(card, net, LinkType::kNet, rate);
    place(card, above(nic.switch_index, nic.cpu), nic.pcie);
  }
  const float rate = NvLinkRate(node_.capability);
  for (const auto& links : node_.nvlinks) {
    const float bandwidth = static_cast<float>(links.count) * rate;
    const int gpu = gpus[static_cast<std::size_t>(links.a)];
    if (links.b >= 0) {
      ConnectBoth(gpu, gpus[static_cast<std::size_t>(links.b)], LinkType::kNvLink, bandwidth);
      continue;
    }
    if (Of(DeviceType::kNvSwitch).empty()) Add(DeviceType::kNvSwitch, 0);
    ConnectBoth(gpu, Of(DeviceType::kNvSwitch)[0], LinkType::kNvLink, bandwidth);
  }
  if (node_.c2c > 0) {
    for (std::size_t g = 0; g < gpus.size(); ++g)
      ConnectBoth(gpus[g], cpus[static_cast<std::size_t>(node_.gpus[g].cpu)], LinkType::kC2c,
                  node_.c2c);
  }
  for (const int a : cpus) {
    for (const int b : cpus) {
      if (a != b && At(a).host == At(b).host) Connect(a, b, LinkType::kSys, node_.between_cpus);
    }
  }
}

// Searches go down the PCIe tree before they go up.
void System::PutUplinksLast() {
  for (std::size_t id = 0; id < devices_.size(); ++id) {
    if (uplinks_[id] < 0) continue;
    auto& links = devices_[id].links;
    const auto up = std::ranges::find_if(
        links, [&](const SystemLink& link) { return link.to == uplinks_[id]; });
    std::rotate(up, std::next(up), links.end());
  }
}

// Breadth first from the target: every device learns its path to it. Of paths with equal steps the
// wider one stays.
void System::FindPathsTo(int target) {
  const auto type = static_cast<std::size_t>(At(target).type);
  const auto place = static_cast<std::size_t>(index_[static_cast<std::size_t>(target)]);
  const std::size_t targets = by_type_[type].size();
  const auto path_of = [&](int id) -> Path& {
    auto& paths = At(id).paths[type];
    if (paths.empty()) paths.resize(targets);
    return paths[place];
  };
  Path& own = path_of(target);
  own = Path{};
  own.bandwidth = kSameDeviceRate;
  own.distance = kSameDevice;
  std::vector<int> front = {target};
  while (!front.empty()) {
    std::vector<int> next;
    for (const int id : front) {
      const Path path = path_of(id);
      for (const SystemLink& link : devices_[static_cast<std::size_t>(id)].links) {
        const bool through_gpu = id != target && At(id).type == DeviceType::kGpu;
        if (through_gpu && (link.type != LinkType::kNvLink ||
                            At(link.to).type != DeviceType::kGpu || path.steps.size() > 1))
          continue;
        Path& found = path_of(link.to);
        const float bandwidth = std::min(path.bandwidth, link.bandwidth);
        if ((found.bandwidth != 0 && found.steps.size() <= path.steps.size()) ||
            found.bandwidth >= bandwidth)
          continue;
        const auto& back = At(link.to).links;
        const auto reverse = std::ranges::find_if(
            back, [&](const SystemLink& one) { return one.to == id && one.type == link.type; });
        found.steps.assign(1, {link.to, static_cast<int>(reverse - back.begin())});
        found.steps.insert(found.steps.end(), path.steps.begin(), path.steps.end());
        found.bandwidth = bandwidth;
        const DeviceType here = At(id).type, there = At(link.to).type;
        int step = link.type == LinkType::kNet ? kSameDevice : static_cast<int>(link.type);
        if (here == DeviceType::kPcieSwitch && there == DeviceType::kPcieSwitch)
          step = kManySwitches;
        if (link.type == LinkType::kPcie && (here == DeviceType::kCpu || there == DeviceType::kCpu))
          step = kThroughCpu;
        if (here == DeviceType::kGpu && path.distance == kNvLink && step == kNvLink &&
            found.steps.size() > 1)
          step = kNvLinkRelay;
        found.distance = static_cast<Distance>(std::max<int>(path.distance, step));
        if (std::ranges::find(next, link.to) == next.end()) next.push_back(link.to);
      }
    }
    front = std::move(next);
  }
}

int System::CpuNearest(int gpu) const {
  int nearest = -1;
  std::size_t least = 0;
  for (int c = 0; c < count(DeviceType::kCpu); ++c) {
    const std::size_t steps = PathOf(DeviceType::kGpu, gpu, DeviceType::kCpu, c).steps.size();
    if (steps > 0 && (least == 0 || steps < least)) {
      nearest = c;
      least = steps;
    }
  }
  return nearest;
}

// Replaces the path of device `source` (an id) by one over a relay.
void System::Detour(int source, DeviceType to, int target, DeviceType over, int relay) {
  SystemDevice& from = At(source);
  const Path first = from.paths[static_cast<std::size_t>(over)][static_cast<std::size_t>(relay)];
  const Path& second = PathOf(over, relay, to, target);
  Path& path = from.paths[static_cast<std::size_t>(to)][static_cast<std::size_t>(target)];
  Path made = first;
  made.steps.insert(made.steps.end(), second.steps.begin(), second.steps.end());
  const auto [near, far] = std::minmax(first.distance, second.distance);
  made.distance = far == kThroughCpu && near == kC2c ? kC2cAndPcie : far;
  if (over == DeviceType::kGpu) made.distance = kOtherGpusNic;
  made.bandwidth = std::min(first.bandwidth, second.bandwidth);
  path = std::move(made);
}

// GPUs talk directly below PCIe switches; farther apart through memory of the CPU. (On AMD hosts a
// pair of GPUs alone may talk across sockets.)
void System::AvoidPcieBetweenGpus() {
  const bool pair_on_amd = node_.cpu == HostKind::kAmd && gpus() <= 2;
  const Distance farthest = pair_on_amd ? kBetweenSockets : kManySwitches;
  for (int g = 0; g < gpus(); ++g) {
    for (int p = 0; p < gpus(); ++p) {
      const Path& path = PathOf(DeviceType::kGpu, p, DeviceType::kGpu, g);
      if (path.distance <= farthest) continue;
      Detour(IdOf(DeviceType::kGpu, p), DeviceType::kGpu, g, DeviceType::kCpu, CpuNearest(g));
    }
  }
}

bool System::GpuDirect(int gpu, int net) const {
  if (!node_.gpu_direct) return false;
  Distance distance = PathOf(DeviceType::kGpu, gpu, DeviceType::kNet, net).distance;
  if (distance == kOtherGpusNic) {
    // The GPU in between decides.
    for (const Path::Step& step : PathOf(DeviceType::kGpu, gpu, DeviceType::kNet, net).steps) {
      const int to = devices_[static_cast<std::size_t>(step.device)]
                         .links[static_cast<std::size_t>(step.link)]
                         .to;
      if (devices_[static_cast<std::size_t>(to)].type == DeviceType::kNvSwitch) continue;
      distance =
          PathOf(DeviceType::kGpu, index_[static_cast<std::size_t>(to)], DeviceType::kNet, net)
              .distance;
      break;
    }
  }
  if (distance == kC2cAndPcie) distance = kC2c;
  return distance <= kManySwitches;
}

void System::AdjustNicPaths() {
  for (int n = 0; n < nets(); ++n) {
    for (int g = 0; g < gpus(); ++g) {
      const int cpu = CpuNearest(g);
      if (cpu < 0) continue;
      const Distance a = PathOf(DeviceType::kGpu, g, DeviceType::kCpu, cpu).distance;
      const Distance b = PathOf(DeviceType::kNet, n, DeviceType::kCpu, cpu).distance;
      if (std::max(a, b) != kThroughCpu || std::min(a, b) != kC2c) continue;
      Path& there = MutablePath(DeviceType::kGpu, g, DeviceType::kNet, n);
      Path& back = MutablePath(DeviceType::kNet, n, DeviceType::kGpu, g);
      there.distance = std::min(kC2cAndPcie, there.distance);
      back.distance = std::min(kC2cAndPcie, back.distance);
    }
  }
  UseGpusNearNics();
  for (int n = 0; n < nets(); ++n) At(DeviceType::kNet, n).nearest_gpu = GpuOfNet(n);
}

// A GPU sends through the GPU that is near to a NIC where NVLink connects the two; without direct
// access data go through memory of the CPU.
void System::UseGpusNearNics() {
  for (int n = 0; n < nets(); ++n) {
    for (int g = 0; g < gpus(); ++g) {
      const Path& direct = PathOf(DeviceType::kGpu, g, DeviceType::kNet, n);
      const int near = GpuOfNet(n);
      if (near >= 0 && near != g) {
        const Path& its = PathOf(DeviceType::kGpu, near, DeviceType::kNet, n);
        if (its.distance <= kC2cAndPcie &&
            PathOf(DeviceType::kGpu, near, DeviceType::kGpu, g).distance <= kNvLink &&
            At(DeviceType::kGpu, near).host == At(DeviceType::kGpu, g).host &&
            (its.bandwidth > direct.bandwidth || direct.distance > kOtherGpusNic))
          Detour(IdOf(DeviceType::kGpu, g), DeviceType::kNet, n, DeviceType::kGpu, near);
      }
      if (PathOf(DeviceType::kGpu, g, DeviceType::kNet, n).distance >= kThroughCpu) continue;
      if (GpuDirect(g, n)) continue;
      const int cpu = CpuNearest(g);
      Detour(IdOf(DeviceType::kNet, n), DeviceType::kGpu, g, DeviceType::kCpu, cpu);
      Detour(IdOf(DeviceType::kGpu, g), DeviceType::kNet, n, DeviceType::kCpu, cpu);
    }
  }
}

std::vector<int> System::Nearest(DeviceType from, int index, DeviceType to,
                                 Distance* distance) const {
  std::vector<int> best;
  Distance nearest = kDisconnected;
  float widest = 0;
  const auto& paths = At(from, index).paths[static_cast<std::size_t>(to)];
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const Path& path = paths[i];
    if (path.bandwidth > widest || (path.bandwidth == widest && path.distance < nearest)) {
      widest = path.bandwidth;
      nearest = path.distance;
      best.clear();
    }
    if (path.bandwidth == widest && path.distance == nearest) best.push_back(static_cast<int>(i));
  }
  if (distance != nullptr) *distance = nearest;
  return best;
}

namespace {

bool IsPowerOfTwo(int value) { return (value & (value - 1)) == 0; }

// The lowest bits of a number in reverse order, for a count that is a power of two.
int Mirror(int value, int count) {
  int mirrored = 0;
  for (int low = 1, high = count / 2; low < count; low *= 2, high /= 2) {
    if ((value & low) != 0) mirrored |= high;
  }
  return mirrored;
}

}  // namespace

int System::NetOf(int gpu, int channel) const {
  const std::vector<int> nets = Nearest(DeviceType::kGpu, gpu, DeviceType::kNet, nullptr);
  if (nets.empty()) return -1;
  const int count = static_cast<int>(nets.size());
  const auto sharing =
      static_cast<int>(Nearest(DeviceType::kNet, nets[0], DeviceType::kGpu, nullptr).size());
  const int each = (count + sharing - 1) / sharing;
  int first = At(DeviceType::kGpu, gpu).number;
  if (IsPowerOfTwo(count)) first = Mirror(first, count);
  return nets[static_cast<std::size_t>((first + channel % each) % count)];
}

std::vector<int> System::NetsOf(int gpu) const {
  std::vector<int> nets;
  for (int c = 0; c < kMostChannels; ++c) {
    const int net = NetOf(gpu, c);
    if (!nets.empty() && net == nets[0]) break;
    nets.push_back(net);
  }
  return nets;
}

int System::GpuOfNet(int net) const {
  const std::vector<int> near = Nearest(DeviceType::kNet, net, DeviceType::kGpu, nullptr);
  for (int c = 0; c < kMostChannels; ++c) {
    for (const int gpu : near) {
      if (NetOf(gpu, c) == net) return gpu;
    }
  }
  return -1;
}

Distance System::NearestPath(DeviceType to) const {
  Distance least = kBetweenSockets;
  for (int g = 0; g < gpus(); ++g) {
    const auto& paths = At(DeviceType::kGpu, g).paths[static_cast<std::size_t>(to)];
    for (std::size_t i = 0; i < paths.size(); ++i) {
      if (to == DeviceType::kGpu && static_cast<int>(i) == g) continue;
      least = std::min(least, paths[i].distance);
    }
  }
  return least;
}

Distance System::FarthestPath(DeviceType to) const {
  Distance most = kSameDevice;
  for (int g = 0; g < gpus(); ++g) {
    const auto& paths = At(DeviceType::kGpu, g).paths[static_cast<std::size_t>(to)];
    for (std::size_t i = 0; i < paths.size(); ++i) {
      if (to == DeviceType::kGpu && static_cast<int>(i) == g) continue;
      most = std::max(most, paths[i].distance);
    }
  }
  return most;
}

bool System::SplitNvLink() const {
  std::vector<int> group(static_cast<std::size_t>(gpus()));
  for (int g = 0; g < gpus(); ++g) group[static_cast<std::size_t>(g)] = g;
  for (int g = 0; g < gpus(); ++g) {
    for (int p = g + 1; p < gpus(); ++p) {
      if (PathOf(DeviceType::kGpu, g, DeviceType::kGpu, p).distance == kNvLink)
        group[static_cast<std::size_t>(p)] = group[static_cast<std::size_t>(g)];
    }
  }
  int groups = 0;
  for (int g = 0; g < gpus(); ++g) groups += std::ranges::count(group, g) > 1 ? 1 : 0;
  return groups == 2;
}

float System::PcieLeft(int gpu) const {
  const int id = IdOf(DeviceType::kGpu, gpu), above = uplinks_[static_cast<std::size_t>(id)];
  const auto left = [&](int from, int to) {
    const auto& links = devices_[static_cast<std::size_t>(from)].links;
    const auto found = std::ranges::find_if(links, [&](const SystemLink& link) {
      return link.type == LinkType::kPcie && link.to == to;
    });
    return found->bandwidth;
  };
  return std::min(left(id, above), left(above, id));
}

void System::Measure() {
  if (!across_ && gpus() == 1) {
    channel_limit_ = total_ = kSameDeviceRate;
    return;
  }
  for (int g = 0; g < gpus(); ++g) {
    const SystemDevice& gpu = At(DeviceType::kGpu, g);
    const DeviceType to = across_ ? DeviceType::kNet : DeviceType::kGpu;
    for (const Path& path : gpu.paths[static_cast<std::size_t>(to)]) {
      if (!path.steps.empty()) channel_limit_ = std::max(channel_limit_, path.bandwidth);
    }
    float nvlink = 0, pcie = 0;
    for (const SystemLink& link : gpu.links) {
      if (link.type == LinkType::kNvLink) nvlink += link.bandwidth;
      if (link.type == LinkType::kPcie) pcie = link.bandwidth;
    }
    total_ = std::max({total_, nvlink, pcie});
  }
}

}  // namespace orrery::nccl
