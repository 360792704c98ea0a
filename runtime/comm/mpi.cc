// SPDX-License-Identifier: Apache-2.0
// Endpoint and communicators over MPI.
#include "runtime/comm/mpi.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/comm/mpi_control.h"
#include "runtime/comm/ring.h"
#include "runtime/comm/secret.h"

namespace orrery::comm {
namespace {

constexpr int64_t kMessageBytes = int64_t{1} << 30;  // counts are int
constexpr int64_t kMostPieces = 256;
constexpr auto kEndOfJob = std::chrono::seconds(20);

// MPI's initialisation and the making of groups wait for all ranks without end: this ends them.
class Alarm {
 public:
  // `what` has not come about, says a rank on this host.
  Alarm(double deadline_s, const std::string& speaker, const std::string& what)
      : thread_([this, deadline_s, speaker, what] {
          std::unique_lock lock(mutex_);
          const auto patience = std::chrono::duration<double>(deadline_s);
          if (off_.wait_for(lock, patience, [this] { return is_off_; })) return;
          char host[256] = "";
          gethostname(host, sizeof host - 1);
          fmt::print(stderr, "{}: error: a rank on {}: {} after {:.3g} s\n", speaker, host, what,
                     deadline_s);
          std::fflush(stderr);
          std::_Exit(1);
        }) {}
  ~Alarm() {
    {
      const std::lock_guard lock(mutex_);
      is_off_ = true;
    }
    off_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable off_;
  bool is_off_ = false;
  std::thread thread_;
};

// Requests of MPI's own.
class Requests : public Operation {
 public:
  std::vector<MPI_Request> list;

  bool Test() override {
    int done = 0;
    CheckMpi(MPI_Testall(static_cast<int>(list.size()), list.data(), &done, MPI_STATUSES_IGNORE),
             "message");
    return done != 0;
  }
};

// Round a communicator.
class MpiRing : public RingTransport {
 public:
  MpiRing(MPI_Comm comm, int rank, int size)
      : comm_(comm), next_((rank + 1) % size), previous_((rank + size - 1) % size) {}

  RingRequest Send(const void* bytes, int64_t n) override {
    MPI_Request request = MPI_REQUEST_NULL;
    CheckMpi(MPI_Isend(bytes, static_cast<int>(n), MPI_BYTE, next_, kRingTag, comm_, &request),
             "MPI_Isend");
    return Pack(request);
  }
  RingRequest Receive(void* bytes, int64_t n) override {
    MPI_Request request = MPI_REQUEST_NULL;
    CheckMpi(MPI_Irecv(bytes, static_cast<int>(n), MPI_BYTE, previous_, kRingTag, comm_, &request),
             "MPI_Irecv");
    return Pack(request);
  }
  bool Done(RingRequest* packed) override {
    MPI_Request request = Unpack(*packed);
    int done = 0;
    CheckMpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "message of a ring");
    *packed = Pack(request);
    return done != 0;
  }
  void Drop(RingRequest* packed) override {
    MPI_Request request = Unpack(*packed);
    MPI_Request_free(&request);
    packed->open = false;
  }

 private:
  static constexpr int kRingTag = 1;
  static RingRequest Pack(MPI_Request request) {  // a pointer or a number, as the library has it
    RingRequest packed;
    static_assert(sizeof packed.bits >= sizeof request);
    std::memcpy(&packed.bits, &request, sizeof request);
    packed.open = request != MPI_REQUEST_NULL;
    return packed;
  }
  static MPI_Request Unpack(const RingRequest& packed) {
    MPI_Request request = MPI_REQUEST_NULL;
    std::memcpy(&request, &packed.bits, sizeof request);
    return request;
  }

  MPI_Comm comm_;
  int next_, previous_;
};

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(MPI_Comm comm, int64_t segment_bytes)
      : comm_(comm), segment_bytes_(segment_bytes) {
    MPI_Comm_rank(comm, &rank_);
    MPI_Comm_size(comm, &size_);
    ring_.emplace(comm, rank_, size_);
  }
  ~MpiCommunicator() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0) MPI_Comm_free(&comm_);
  }

  OperationPtr Start(const Collective& c) override {
    if (c.kind != CollectiveKind::kBarrier && c.kind != CollectiveKind::kAllToAll)
      return std::make_unique<RingOperation>(&*ring_, rank_, size_, segment_bytes_, c);
    auto requests = std::make_unique<Requests>();
    requests->list.resize(1);
    if (c.kind == CollectiveKind::kBarrier) {
      CheckMpi(MPI_Ibarrier(comm_, requests->list.data()), "MPI_Ibarrier");
    } else {
      const int64_t bytes = c.n * ir::DtypeBytes(c.dtype);
      if (bytes > kMessageBytes) throw CommError("all_to_all: pieces above 1 GiB");
      CheckMpi(MPI_Ialltoall(c.in, static_cast<int>(bytes), MPI_BYTE, c.out,
                             static_cast<int>(bytes), MPI_BYTE, comm_, requests->list.data()),
               "MPI_Ialltoall");
    }
    return requests;
  }

 private:
  MPI_Comm comm_;
  int64_t segment_bytes_;
  int rank_ = 0, size_ = 1;
  std::optional<MpiRing> ring_;
};

class MpiEndpoint : public Endpoint {
 public:
  MpiEndpoint(double deadline_s, const std::string& speaker, const NodeOrder& nodes)
      : deadline_s_(deadline_s), speaker_(speaker) {
    int provided = 0;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
      throw CommError("MPI cannot be initialised");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    GatherHosts();
    TakeOrder(nodes);
    CheckMpi(MPI_Comm_dup(world_, &transfers_), "MPI_Comm_dup");
    control_.emplace(world_, rank_, size_);
  }

  ~MpiEndpoint() override {
    if (control_->peer_failed() || failed_) AwaitEnd();
    MPI_Barrier(transfers_);  // nobody asks any more
    control_.reset();
    MPI_Comm_free(&transfers_);
    if (world_ != MPI_COMM_WORLD) MPI_Comm_free(&world_);
    MPI_Finalize();
  }

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  std::string host() const override { return hosts_[static_cast<std::size_t>(rank_)]; }

  CommunicatorPtr Join(int32_t key, const std::vector<int64_t>& members) override {
    const Alarm alarm(
        deadline_s_, speaker_,
        fmt::format("not all of the {} members of a group have joined it", members.size()));
    MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    const std::vector<int> ranks(members.begin(), members.end());
    CheckMpi(MPI_Comm_group(world_, &world), "MPI_Comm_group");
    CheckMpi(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group),
             "MPI_Group_incl");
    MPI_Comm comm = MPI_COMM_NULL;
    CheckMpi(MPI_Comm_create_group(world_, group, key, &comm), "MPI_Comm_create_group");
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    const std::string& first = hosts_[static_cast<std::size_t>(members.front())];
    const bool together = std::all_of(members.begin(), members.end(), [&](int64_t member) {
      return hosts_[static_cast<std::size_t>(member)] == first;
    });
    return std::make_unique<MpiCommunicator>(comm, together ? kHostSegmentBytes : kSegmentBytes);
  }

  OperationPtr Send(int64_t peer, int32_t channel, const void* bytes, int64_t n) override {
    return Messages(n, [&](int64_t at, int count, MPI_Request* request) {
      return MPI_Isend(static_cast<const std::byte*>(bytes) + at, count, MPI_BYTE,
                       static_cast<int>(peer), channel, transfers_, request);
    });
  }
  OperationPtr Receive(int64_t peer, int32_t channel, void* bytes, int64_t n) override {
    return Messages(n, [&](int64_t at, int count, MPI_Request* request) {
      return MPI_Irecv(static_cast<std::byte*>(bytes) + at, count, MPI_BYTE, static_cast<int>(peer),
                       channel, transfers_, request);
    });
  }

  OperationPtr Barrier() override {
    auto requests = std::make_unique<Requests>();
    requests->list.resize(1);
    CheckMpi(MPI_Ibarrier(transfers_, requests->list.data()), "MPI_Ibarrier");
    return requests;
  }

  void Idle() override {
    control_->Poll();
    if (control_->peer_failed()) throw CommError("another rank has failed", true);
  }

  std::string Silent() override {
    std::string text;
    for (const int peer : control_->Silent()) {
      text += fmt::format("{}rank {} on {}", text.empty() ? "" : ", ", peer,
                          hosts_[static_cast<std::size_t>(peer)]);
    }
    if (control_->peer_failed()) throw CommError("another rank has failed", true);
    return text;
  }

  void Abort(const std::string& why) override {
    failed_ = true;
    if (!control_->ClaimFailure()) AwaitEnd();
    fmt::print(stderr, "{}: error: {}\n", speaker_, why);
    std::fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

 private:
  template <class Start>
  // In pieces as long as a ring's segments, unless they became too many: above its eager limit the
  // library asks before it sends, and over TCP the answer queues behind what goes the other way.
  static OperationPtr Messages(int64_t n, Start start) {
    const int64_t piece = std::min(std::max(kSegmentBytes, n / kMostPieces + 1), kMessageBytes);
    auto requests = std::make_unique<Requests>();
    int64_t at = 0;
    do {
      const auto count = static_cast<int>(std::min(n - at, piece));
      requests->list.push_back(MPI_REQUEST_NULL);
      CheckMpi(start(at, count, &requests->list.back()), "point-to-point message");
      at += count;
    } while (at < n);
    return requests;
  }

  void GatherHosts() {
    constexpr int kLength = 64;
    char name[kLength] = "";
    const std::string own = OwnHost();
    own.copy(name, kLength - 1);
    std::vector<char> all(static_cast<std::size_t>(size_) * kLength);
    CheckMpi(MPI_Allgather(name, kLength, MPI_CHAR, all.data(), kLength, MPI_CHAR, MPI_COMM_WORLD),
             "MPI_Allgather");
    for (int r = 0; r < size_; ++r)
      hosts_.emplace_back(all.data() + static_cast<std::ptrdiff_t>(r) * kLength);
  }

  // Numbers ranks as the plan places them on nodes.
  void TakeOrder(const NodeOrder& nodes) {
    const OrderedRanks ordered = RanksInOrder(hosts_, nodes);
    if (!ordered.refusal.empty()) {
      if (rank_ == 0)
        fmt::print(stderr, "{}: error: {}\n  hint: {}\n", speaker_, ordered.refusal, ordered.hint);
      std::fflush(stderr);
      MPI_Barrier(MPI_COMM_WORLD);  // mpirun ends all when the first ends
      MPI_Finalize();
      throw CommError(ordered.refusal, true);
    }
    if (ordered.ranks.empty()) return;
    const std::vector<std::string> hosts = hosts_;
    for (std::size_t r = 0; r < hosts.size(); ++r)
      hosts_[static_cast<std::size_t>(ordered.ranks[r])] = hosts[r];
    rank_ = static_cast<int>(ordered.ranks[static_cast<std::size_t>(rank_)]);
    CheckMpi(MPI_Comm_split(MPI_COMM_WORLD, 0, rank_, &world_), "MPI_Comm_split");
  }

  // Somebody else reports and ends the job.
  [[noreturn]] static void AwaitEnd() {
    std::this_thread::sleep_for(kEndOfJob);
    std::_Exit(1);
  }

  double deadline_s_;
  std::string speaker_;
  int rank_ = 0, size_ = 1;
  bool failed_ = false;
  MPI_Comm world_ = MPI_COMM_WORLD;  // in the order of ranks
  MPI_Comm transfers_ = MPI_COMM_NULL;
  std::optional<MpiControl> control_;
  std::vector<std::string> hosts_;
};

}  // namespace

std::unique_ptr<Endpoint> ConnectMpi(double deadline_s, const std::string& speaker,
                                     const NodeOrder& nodes) {
  const Alarm alarm(deadline_s, speaker, "not all ranks have started");
  return std::make_unique<MpiEndpoint>(deadline_s, speaker, nodes);
}

}  // namespace orrery::comm
