// SPDX-License-Identifier: Apache-2.0
// Steps of an import that are of Accelerate and the Trainer alone: how many processes there are, and what they fill in.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/exchange/hostfile.h"
#include "model/exchange/mapping.h"
#include "model/exchange/rules.h"

namespace orrery::exchange {

// Throws InputError: processes that machines do not share out evenly. A topology's GPUs per node hide that from the fields.
void CheckMachines(const SettingIndex& index, const Values& given);
// accelerate starts its processes on one machine unless it is told otherwise.
void CountMachines(const Settings& launch, const Values& given,
                   std::map<Target, Settings>* targets);
// GPUs of a machine that --gpu_ids leaves (it becomes CUDA_VISIBLE_DEVICES): a process for each, where nothing counts
// processes. Takes the setting away. Throws InputError: more processes than these, or no numbers of GPUs.
void TakeGpuIds(Settings* accelerate, std::vector<std::string>* notes);
// The filter of hosts that accelerate hands to DeepSpeed's launcher, on several machines and unless `standard` starts them.
// `launched`: hostfiles of the command. Takes its settings away; `notes` says where they have no effect. nullopt: none.
std::optional<Hostfile> FilterOfAccelerate(Settings* accelerate,
                                           const std::vector<Hostfile>& launched,
                                           std::vector<std::string>* notes);
// Nodes and GPUs of a node in `made` replace those of Accelerate's own settings: DeepSpeed's launcher does not ask these.
void ReplaceMachines(const Settings& made, Settings* accelerate);
// bf16 and fp16 that are "auto" in DeepSpeed's file are off where the Trainer's arguments are known and say neither
// (HfTrainerDeepSpeedConfig.trainer_config_process).
void FillPrecision(std::map<Target, Settings>* targets, std::vector<std::string>* notes);
// Accumulation of Accelerate's and the Trainer's whose global batch is unknown. nullopt: the batch is known, or nothing is said
// of it.
std::optional<OpenBatch> StepsWithoutBatch(const SettingIndex& index, const Values& values);

}  // namespace orrery::exchange
