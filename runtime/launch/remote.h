// SPDX-License-Identifier: Apache-2.0
// Programs on other machines, through the agent that mpirun uses: ssh, or what OMPI_MCA_plm_rsh_agent says.
#pragma once

#include <string>
#include <vector>

namespace orrery::launch {

bool HostIsHere(const std::string& host);  // a name or address of this machine

// A name or address that is neither an option of the agent nor anything to a shell.
bool IsHostName(const std::string& host);

// One word to a POSIX shell, whatever is in it.
std::string Quoted(const std::string& word);

// The path of the agent's program; "": there is none that could be started.
std::string AgentProgram();

// The words that have a shell on `host` do `script`; on this machine without an agent. `host`: IsHostName().
std::vector<std::string> OnHost(const std::string& host, const std::string& script);

}  // namespace orrery::launch
