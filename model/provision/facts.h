// SPDX-License-Identifier: Apache-2.0
// Facts about running for weeks: failures, recovery, checkpoints, storage, input, batch size, power.
//
// One file each under calib/profiles/{failures,recovery,checkpoint,storage,input,batch,energy,run}; every fact is
// {value, low, high, unit, source, evidence}. Loaders throw InputError: an unknown name with the nearest ones, or what is
// wrong in the file, with its place.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/base/quantity.h"

namespace orrery {

// Names of calib/profiles/FOLDER.
std::vector<std::string> FactNames(const std::string& folder);

struct Range {
  double value = 0, low = 0, high = 0;
};

// Stops per 1000 nodes and day.
struct FailureFacts {
  std::string name, title, source;
  Range rate;
};
FailureFacts LoadFailures(const std::string& name);

struct RecoveryFacts {
  std::string name, title;
  Seconds detection;  // and replacement; the job is down
  Seconds
      restart;     // processes, communicators, slow first steps; without the load of the checkpoint
  Seconds repair;  // of a node
  bool elastic = false;
  Seconds pause;  // elastic: until the others go on
};
RecoveryFacts LoadRecovery(const std::string& name);

struct CheckpointFacts {
  std::string name, title;
  bool blocks = false;  // until it is on storage
  Seconds overhead;
  double copy_efficiency = 0;  // of a GPU's PCIe rate
  double front_end_share = 0;  // of a node's NICs
};
CheckpointFacts LoadCheckpoint(const std::string& name);

struct StorageFacts {
  std::string name, title;
  std::optional<BytesPerSecond> write,
      read;                               // of the file system; empty: ordered for `write_within`
  std::optional<BytesPerSecond> client;   // of one node
  std::optional<BytesPerSecond> per_tib;  // throughput that a TiB brings
  Seconds write_within;
};
StorageFacts LoadStorage(const std::string& name);

struct InputFacts {
  std::string name, title, source;
  double bytes_per_token = 0;
  std::optional<double> reader;  // tokens/s of the reader of one GPU; empty: it only copies
};
InputFacts LoadInput(const std::string& name);

struct BatchFacts {
  struct Published {
    double tokens = 0, batch = 0;  // of the run; the most per step
  };
  double exponent = 0, anchor_batch = 0, anchor_tokens = 0, least_share = 0;
  std::map<std::string, Published> published;
  std::string source, note;
};
BatchFacts LoadBatch();

struct EnergyFacts {
  double node_factor = 0, pue = 0;
  std::map<std::string, double> power;  // W by GPU
};
EnergyFacts LoadEnergy();

struct LongRunFacts {
  Range straggler;
  Seconds setup, old_price;
  double shortage = 0;
};
LongRunFacts LoadLongRun();

}  // namespace orrery
