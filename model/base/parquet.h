// SPDX-License-Identifier: Apache-2.0
// Writes a table as a Parquet file (format 2, https://github.com/apache/parquet-format): flat columns that may hold nulls, PLAIN
// values without compression, a page for each column and group of rows. What every reader takes, and no reader of its own.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

enum class ParquetKind { kInteger, kNumber, kText };  // int64, double, UTF-8
struct ParquetColumn {
  std::string name;
  ParquetKind kind = ParquetKind::kText;
};

// Numbers that a cell of the kind holds as text: all of it.
bool HoldsKind(std::string_view cell, ParquetKind kind);

class ParquetWriter {
 public:
  // `rows_of_group`: held in memory until they are written. The stream must be binary and outlive the writer.
  ParquetWriter(std::ostream* out, std::vector<ParquetColumn> columns,
                int64_t rows_of_group = int64_t{1} << 16);

  // A cell for each column; "" is null, a number stands as text.
  void Row(const std::vector<std::string>& cells);
  // The footer: without it the file is none. Whether all was written the stream says.
  void Finish();

 private:
  struct Chunk {  // of a column in one group
    int64_t page_at = 0, bytes = 0;
  };
  struct Group {
    int64_t rows = 0;
    std::vector<Chunk> chunks;
  };
  struct Held {  // of the group that is filled
    std::string values;
    std::vector<bool> present;
  };

  void Put(std::string_view bytes);
  void WriteGroup();

  std::ostream& out_;
  const std::vector<ParquetColumn> columns_;
  const int64_t rows_of_group_;
  std::vector<Held> held_;
  std::vector<Group> groups_;
  int64_t held_rows_ = 0, written_ = 0;
};

}  // namespace orrery
