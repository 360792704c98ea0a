// SPDX-License-Identifier: Apache-2.0
// Lines that are wider than a terminal.
#pragma once

#include <cstddef>
#include <string>

namespace orrery::cli {

// Columns of the terminal behind a descriptor; 0: it is none.
std::size_t ColumnsOf(int descriptor);

// Words broken over lines of `columns`; 0: as they are. A last column of text goes on below itself. Commands, `#` lines,
// shown source lines and rows of numbers stay whole: they are copied, read by programs, or say nothing broken.
std::string WithinColumns(const std::string& text, std::size_t columns);

}  // namespace orrery::cli
