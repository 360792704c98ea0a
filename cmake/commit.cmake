# SPDX-License-Identifier: Apache-2.0
# Writes ${OUT}: the commit of ${SOURCE}, for `plan version`. Unchanged: the file keeps its time, nothing is compiled.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT
"// Written by cmake/commit.cmake.
namespace orrery::cli {
extern const char* const kCommit;
const char* const kCommit = \"@commit@\";
}  // namespace orrery::cli
")
