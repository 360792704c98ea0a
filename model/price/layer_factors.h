// SPDX-License-Identifier: Apache-2.0
// Measured layers: how much longer a software takes for one shape of layer on one chip than the
// formulas say.
//
// Libraries choose kernels by tables of their own: two shapes next to each other may differ by a
// quarter, at every depth, stage and data-parallel degree alike, and no smooth formula follows.
// `plan calibrate` estimates a factor per shape that runs of several models share, as a random
// effect: log(factor) is normal around 0 with the spread that its job names, so that few rows move
// it little. A shape without an entry has the factor 1.
// File: calib/profiles/layer/<framework>.yaml, for the framework profile of that name.
#pragma once

#include <string>

#include "model/arch/model_spec.h"
#include "model/framework/profile.h"
#include "model/price/layer_ops.h"

namespace orrery {

// What the kernels of a layer can see, on one rank.
std::string LayerShapeText(const std::string& gpu, const ModelSpec& model, const Workload& work,
                           const MicroBatchKey& key);
// The same, read off the ops of a plan; "": it has no attention.
std::string LayerShapeText(const std::string& gpu, const ir::Plan& plan);

// On the device and host time of a layer's own operations; collectives are not scaled.
double LayerFactor(const GpuProfile& gpu, const FrameworkProfile& framework, const ModelSpec& model,
                   const Workload& work, const MicroBatchKey& key);
// The same, read off the ops of a plan; 1 for plans without attention.
double LayerFactor(const GpuProfile& gpu, const FrameworkProfile& framework, const ir::Plan& plan);

// Of the plan's first product.
Precision PrecisionOf(const ir::Plan& plan);

}  // namespace orrery
