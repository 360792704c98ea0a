// SPDX-License-Identifier: Apache-2.0
// The switch at work: frames from and to TAP devices, on the machine's clock.
#pragma once

#include <vector>

#include "runtime/lab/netns.h"
#include "runtime/lab/settings.h"
#include "runtime/lab/switch.h"

namespace orrery::lab {

// Address of a node on the data network, or on the control network (its head is kMostNodes).
MacAddress MacOf(bool control, int node);

struct Wiring {
  std::vector<Descriptor> data;     // eth0 of each node
  std::vector<Descriptor> control;  // ctl0 of each node, then of the head
};

// Forwards frames until SIGTERM, SIGINT or SIGHUP (which the caller must have blocked). Control
// frames go through at once. Takes real-time priority where that is allowed.
void RunSwitch(const Settings& settings, const Wiring& wiring, PortCounters* counters);

}  // namespace orrery::lab
