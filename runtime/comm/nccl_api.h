// SPDX-License-Identifier: Apache-2.0
// NCCL's C interface, as far as it is used, loaded when a program runs: nothing of NCCL is needed
// to build this, and a machine without it gets a message. Names and numbers are those of nccl.h
// (NCCL 2.18 to 2.28; tests/comm_nccl compares them with the header where it is installed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "model/plan/ir/plan.h"

struct ncclComm;

namespace orrery::comm::nccl {

using Handle = ncclComm*;

enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};
enum Sum : int { kSum = 0, kMaximum = 2 };

struct UniqueId {
  char internal[128];
};

// The part of ncclConfig_t that NCCL 2.14 had; NCCL fills in the rest by `version`.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

inline constexpr int kOldestVersion = 21800;

struct Api {
  int (*GetVersion)(int* version);
  int (*GetUniqueId)(UniqueId* id);
  int (*CommInitRankConfig)(Handle* comm, int size, UniqueId id, int rank, Config* config);
  int (*CommFinalize)(Handle comm);
  int (*CommDestroy)(Handle comm);
  int (*CommAbort)(Handle comm);
  int (*CommGetAsyncError)(Handle comm, int* error);
  const char* (*GetErrorString)(int result);
  const char* (*GetLastError)(Handle comm);
  int (*GroupStart)();
  int (*GroupEnd)();
  int (*AllReduce)(const void*, void*, size_t n, int type, int op, Handle, void* stream);
  int (*AllGather)(const void*, void*, size_t n, int type, Handle, void* stream);
  int (*ReduceScatter)(const void*, void*, size_t n, int type, int op, Handle, void* stream);
  int (*Broadcast)(const void*, void*, size_t n, int type, int root, Handle, void* stream);
  int (*Send)(const void*, size_t n, int type, int peer, Handle, void* stream);
  int (*Recv)(void*, size_t n, int type, int peer, Handle, void* stream);

  int version = 0;                  // 22809: 2.28.9
  std::string path;                 // what was loaded
  std::string VersionText() const;  // "2.28.9"
};
using ApiPtr = std::shared_ptr<const Api>;

// `path`, else $ORRERY_NCCL_LIBRARY, else libnccl.so.2 where the loader finds it. Throws
// InputError: absent, a function missing, older than 2.18.
ApiPtr Load(const std::string& path = "");

int TypeOf(ir::Dtype dtype);  // ncclDataType_t

// "NCCL 2.28.9 (libnccl.so.2), NCCL_DEBUG=INFO, NCCL_SOCKET_IFNAME=eth0": all that the environment
// tells NCCL.
std::string Describe(const Api& api);

}  // namespace orrery::comm::nccl
