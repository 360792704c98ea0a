// SPDX-License-Identifier: Apache-2.0
// Files of other programs that describe machines, told apart by their content.
#pragma once

#include <string>

#include "model/base/diagnostics.h"

namespace orrery {

enum class ClusterFile {
  kNone,           // none of them
  kNcclTopology,   // NCCL_TOPO_DUMP_FILE, and what NCCL_TOPO_FILE takes
  kNcclGraphs,     // NCCL_GRAPH_DUMP_FILE
  kNcclLog,        // NCCL_DEBUG=INFO
  kHwloc,          // lstopo --of xml
  kTopoMatrix,     // nvidia-smi topo -m
  kLspci,          // with -nn, -vv, -vmm or -tv
  kIbstat,         // ibstat, ibstatus
  kSlurmTopology,  // topology.conf, scontrol show topology
  kSlurmNodes,     // scontrol show node
  kAwsTopology,    // aws ec2 describe-instance-topology
  kHostfile,       // a host per line, with or without slots
};

ClusterFile KindOfClusterFile(const Source& source);
const char* Name(ClusterFile kind);  // "a topology dump of NCCL"

// Of a text that would be a hostfile: plain words, one or one per line, which other files have, too.
bool ReadsAsWords(const Source& source);

// Throws InputError if the source is a script or a configuration of training where `wanted` was expected: it names --from.
void RefuseJobFile(const SourcePtr& source, const std::string& wanted);
// Throws InputError if the source is one of them, or such a file, where `wanted` ("a model") was expected: it names the command
// that reads it.
void RefuseMachineFile(const SourcePtr& source, const std::string& wanted);
// The same of a file behind a path that could not be read as `wanted`; no such file: nothing.
void RefuseMachineFile(const std::string& path, const std::string& wanted);

}  // namespace orrery
