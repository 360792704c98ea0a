// SPDX-License-Identifier: Apache-2.0
// Parquet files read back by the specification of the format: a footer in Thrift's compact protocol, pages where it says.
#include "model/base/parquet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using nlohmann::json;
using Cells = std::vector<std::vector<std::string>>;

// Structs become objects by field number, "1" and so on.
class Thrift {
 public:
  Thrift(const std::string& text, std::size_t at) : text_(text), at_(at) {}

  json Struct() {
    json fields = json::object();
    int field = 0;
    for (;;) {
      const unsigned head = Byte();
      if (head == 0) return fields;
      field += static_cast<int>(head >> 4);
      fields[std::to_string(field)] = Value(head & 15);
    }
  }
  std::size_t at() const { return at_; }

 private:
  unsigned Byte() { return static_cast<unsigned char>(text_.at(at_++)); }
  uint64_t Varint() {
    uint64_t number = 0;
    for (int shift = 0;; shift += 7) {
      const uint64_t byte = Byte();
      number |= (byte & 127) << shift;
      if (byte < 128) return number;
    }
  }
  int64_t Zigzag() {
    const uint64_t number = Varint();
    return static_cast<int64_t>(number >> 1) ^ -static_cast<int64_t>(number & 1);
  }
  json Value(unsigned type) {
    if (type == 5 || type == 6) return Zigzag();
    if (type == 12) return Struct();
    if (type == 8) {
      const std::size_t size = Varint();
      at_ += size;
      return text_.substr(at_ - size, size);
    }
    EXPECT_EQ(type, 9u);  // a list
    const unsigned head = Byte();
    const uint64_t size = head >> 4 == 15 ? Varint() : head >> 4;
    json list = json::array();
    for (uint64_t i = 0; i < size; ++i) list.push_back(Value(head & 15));
    return list;
  }

  const std::string& text_;
  std::size_t at_;
};

template <class Number>
Number Plain(const std::string& text, std::size_t* at) {
  Number number;
  std::memcpy(&number, text.data() + *at, sizeof(number));
  *at += sizeof(number);
  return number;
}

std::string CellOf(const std::string& text, int64_t type, std::size_t* at) {
  if (type == 2) return std::to_string(Plain<int64_t>(text, at));
  if (type == 5) return fmt::format("{}", Plain<double>(text, at));
  EXPECT_EQ(type, 6);
  const auto size = Plain<uint32_t>(text, at);
  *at += size;
  return text.substr(*at - size, size);
}

struct Read {
  json footer;
  std::vector<std::string> names;
  Cells rows;
};

// One column chunk from its page on; nulls are "".
void ReadPage(const std::string& text, const json& meta, std::size_t column, std::size_t first,
              Cells* rows) {
  Thrift header(text, meta["9"].get<std::size_t>());
  const json page = header.Struct();
  std::size_t at = header.at();
  const std::size_t end = at + page["3"].get<std::size_t>();
  EXPECT_EQ(end - meta["9"].get<std::size_t>(), meta["7"].get<std::size_t>());
  EXPECT_EQ(page["5"]["1"], meta["5"]);
  const auto levels = Plain<uint32_t>(text, &at);
  const std::size_t values = at + levels;
  std::size_t row = first, value = values;
  while (at < values) {  // runs of less than 64 rows take one byte, longer ones more
    uint64_t run = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(text[at++]);
      run |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) break;
    }
    EXPECT_EQ(run & 1, 0u);
    const bool present = text[at++] != 0;
    for (uint64_t i = 0; i < run >> 1; ++i)
      (*rows).at(row++).at(column) = present ? CellOf(text, meta["1"], &value) : "";
  }
  EXPECT_EQ(value, end);
}

Read ReadParquet(const std::string& text) {
  EXPECT_EQ(text.substr(0, 4), "PAR1");
  EXPECT_EQ(text.substr(text.size() - 4), "PAR1");
  std::size_t at = text.size() - 8;
  const auto size = Plain<uint32_t>(text, &at);
  Thrift footer(text, text.size() - 8 - size);
  Read read{footer.Struct(), {}, {}};
  EXPECT_EQ(footer.at(), text.size() - 8);
  const json& schema = read.footer["2"];
  EXPECT_EQ(schema[0]["5"], schema.size() - 1);
  for (std::size_t i = 1; i < schema.size(); ++i) read.names.push_back(schema[i]["4"]);
  read.rows.assign(read.footer["3"].get<std::size_t>(),
                   std::vector<std::string>(read.names.size()));
  std::size_t first = 0;
  for (const json& group : read.footer["4"]) {
    for (std::size_t c = 0; c < read.names.size(); ++c)
      ReadPage(text, group["1"][c]["3"], c, first, &read.rows);
    first += group["3"].get<std::size_t>();
  }
  EXPECT_EQ(first, read.rows.size());
  return read;
}

TEST(Parquet, HoldsCellsNullsAndGroups) {
  std::vector<ParquetColumn> columns = {{"row", ParquetKind::kInteger},
                                        {"time", ParquetKind::kNumber},
                                        {"words", ParquetKind::kText}};
  for (int i = 0; i < 20; ++i) columns.push_back({fmt::format("c{}", i), ParquetKind::kInteger});
  Cells rows;
  for (int row = 0; row < 1003; ++row) {
    rows.push_back({std::to_string((row - 500) * (int64_t{1} << 40)),
                    row % 7 == 3 ? "" : fmt::format("{}", row * 0.37),
                    row % 3 == 0 ? "" : "with, \"quotes\" \xc3\xa4 " + std::to_string(row)});
    for (int i = 0; i < 20; ++i) rows.back().push_back(i == 4 || row < 200 ? "" : "-7");
  }
  std::stringstream out;
  ParquetWriter writer(&out, columns, 100);
  for (const auto& row : rows) writer.Row(row);
  writer.Finish();
  const Read read = ReadParquet(out.str());
  EXPECT_EQ(read.rows, rows);
  EXPECT_EQ(read.names.back(), "c19");
  EXPECT_EQ(read.footer["4"].size(), 11u);
}

TEST(Parquet, OfNoRowsIsAFile) {
  std::stringstream out;
  ParquetWriter(&out, {{"a", ParquetKind::kText}}).Finish();
  EXPECT_TRUE(ReadParquet(out.str()).rows.empty());
}

TEST(Parquet, ASweepWritesTheRowsOfItsCsv) {
  const std::string folder = ScratchFolder() + "/parquet";
  ASSERT_EQ(mkdir(folder.c_str(), 0755), 0);
  WriteText(folder + "/study.yaml",
            "job: {model: gpt2-xl, topology: aws-p4d, global_batch: 64}\n"
            "layout: {tp: [1, 3], micro_batch: [1, 2], recompute: [none, full]}\n");
  for (const bool resumed : {false, true}) {
    const Outcome outcome =
        RunPlan({"sweep", folder + "/study.yaml", "--out", folder + "/rows.parquet"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Read read = ReadParquet(ReadText(folder + "/rows.parquet"));
    std::istringstream csv(ReadText(folder + "/rows.csv"));
    std::string line;
    std::getline(csv, line);
    EXPECT_EQ(line, fmt::format("{}", fmt::join(read.names, ",")));
    ASSERT_EQ(read.rows.size(), 8u);
    std::size_t refused = 0;
    for (const auto& row : read.rows) {
      std::getline(csv, line);
      EXPECT_EQ(line.rfind(row[0] + "," + row[1] + "," + row[2] + "," + row[3] + "," + row[4], 0),
                0u)
          << line;
      refused += row[4] == "refused";
      const std::size_t step = 7;  // behind status, GPUs and layout
      ASSERT_EQ(read.names[step], "step_time_s");
      EXPECT_EQ(row[step].empty(), row[4] == "refused");
      EXPECT_NE(line.find("," + row[step] + ","), std::string::npos) << line;
    }
    EXPECT_EQ(refused, 4u);
    const auto type = [&](std::size_t column) { return read.footer["2"][column + 1]["1"]; };
    EXPECT_EQ(type(1), 2);  // tp: whole numbers
    EXPECT_EQ(type(3), 6);  // recompute: words
    EXPECT_EQ(type(7), 5);
    if (!resumed) std::remove((folder + "/rows.parquet").c_str());
  }
}

}  // namespace
}  // namespace orrery
