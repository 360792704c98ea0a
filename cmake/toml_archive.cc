// SPDX-License-Identifier: Apache-2.0
// toml++ compiled once, for programs that are linked with archives alone: Debian has only its shared library.
#define TOML_IMPLEMENTATION
#include <toml++/toml.h>
