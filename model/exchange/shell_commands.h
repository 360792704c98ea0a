// SPDX-License-Identifier: Apache-2.0
// What commands of a script say without being run: those that only name files, and tests of known words.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace orrery::exchange {

using Command = std::vector<std::string>;

// What commands in a row print: cd, pwd, dirname, basename, realpath, readlink -f and echo, "." being the folder of the script.
// nullopt: another command is among them, or one with other options.
std::optional<std::string> PrintedBy(const std::vector<Command>& commands);

// Of "a/b" it is "a", of "b" ".".
std::string FolderOf(const std::string& path);

// [ A -gt B ], [[ A == B ]], test A = B, [ -n A ], [ -z A ], with ! or without; values of ((...)) and let. nullopt: another test, or a pattern.
std::optional<bool> Holds(const Command& test);

}  // namespace orrery::exchange
