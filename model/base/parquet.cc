// SPDX-License-Identifier: Apache-2.0
// Pages of plain values, and headers by Thrift's compact protocol.
#include "model/base/parquet.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

#include "model/base/check.h"

namespace orrery {
namespace {

// Numbers of parquet.thrift.
constexpr int kInt64 = 2, kDouble = 5, kByteArray = 6;  // Type
constexpr int kMayBeNull = 1;                           // FieldRepetitionType
constexpr int kUtf8 = 0;                                // ConvertedType
constexpr int kPlain = 0, kRle = 3;                     // Encoding
constexpr int kUncompressed = 0;                        // CompressionCodec
constexpr int kDataPage = 0;                            // PageType
constexpr int kVersion = 2;
constexpr char kMagic[] = "PAR1";

int TypeOf(ParquetKind kind) {
  switch (kind) {
    case ParquetKind::kInteger:
      return kInt64;
    case ParquetKind::kNumber:
      return kDouble;
    case ParquetKind::kText:
      return kByteArray;
  }
  ORRERY_CHECK(false, "kind {}", static_cast<int>(kind));
}

// Little endian, as all of the format.
template <class Number>
void PutPlain(Number number, std::string* out) {
  static_assert(std::endian::native == std::endian::little);
  char bytes[sizeof(Number)];
  std::memcpy(bytes, &number, sizeof(Number));
  out->append(bytes, sizeof(Number));
}

void PutVarint(uint64_t number, std::string* out) {
  for (; number >= 0x80; number >>= 7) *out += static_cast<char>((number & 0x7F) | 0x80);
  *out += static_cast<char>(number);
}

// A struct by Thrift's compact protocol: a field begins with the distance to the one before and its type.
class ThriftStruct {
 public:
  void Int32(int field, int32_t value) { Head(field, 5), Zigzag(value); }
  void Int64(int field, int64_t value) { Head(field, 6), Zigzag(value); }
  void Text(int field, std::string_view value) { Head(field, kText), Bytes(value); }
  void Struct(int field, const ThriftStruct& value) {
    Head(field, kStruct), text_ += value.Ended();
  }
  void Structs(int field, const std::vector<ThriftStruct>& values) {
    List(field, values.size(), kStruct);
    for (const ThriftStruct& value : values) text_ += value.Ended();
  }
  void Texts(int field, const std::vector<std::string>& values) {
    List(field, values.size(), kText);
    for (const std::string& value : values) Bytes(value);
  }
  void Int32s(int field, const std::vector<int32_t>& values) {
    List(field, values.size(), 5);
    for (const int32_t value : values) Zigzag(value);
  }
  std::string Ended() const { return text_ + '\0'; }

 private:
  static constexpr int kText = 8, kList = 9, kStruct = 12;

  void Head(int field, int type) {
    ORRERY_CHECK(field > last_ && field - last_ < 16, "field {} after {}", field, last_);
    text_ += static_cast<char>((field - last_) << 4 | type);
    last_ = field;
  }
  void List(int field, std::size_t size, int type) {
    Head(field, kList);
    text_ += static_cast<char>((size < 15 ? size : 15) << 4 | static_cast<std::size_t>(type));
    if (size >= 15) PutVarint(size, &text_);
  }
  void Zigzag(int64_t value) {
    PutVarint(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63), &text_);
  }
  void Bytes(std::string_view value) {
    PutVarint(value.size(), &text_);
    text_ += value;
  }

  std::string text_;
  int last_ = 0;
};

// Which rows have a value, one bit each: runs of the hybrid of run lengths and packed bits, behind their size.
std::string Levels(const std::vector<bool>& present) {
  std::string runs;
  for (std::size_t begin = 0, end = 0; begin < present.size(); begin = end) {
    while (end < present.size() && present[end] == present[begin]) ++end;
    PutVarint((end - begin) << 1, &runs);
    runs += static_cast<char>(present[begin]);
  }
  std::string levels;
  PutPlain(static_cast<uint32_t>(runs.size()), &levels);
  return levels + runs;
}

ThriftStruct PageHeader(std::size_t rows, std::size_t bytes) {
  ThriftStruct data, header;
  data.Int32(1, static_cast<int32_t>(rows));
  data.Int32(2, kPlain);
  data.Int32(3, kRle);
  data.Int32(4, kRle);
  header.Int32(1, kDataPage);
  header.Int32(2, static_cast<int32_t>(bytes));
  header.Int32(3, static_cast<int32_t>(bytes));
  header.Struct(5, data);
  return header;
}

ThriftStruct SchemaRoot(std::size_t columns) {
  ThriftStruct root;
  root.Text(4, "rows");
  root.Int32(5, static_cast<int32_t>(columns));
  return root;
}

ThriftStruct SchemaOf(const ParquetColumn& column) {
  ThriftStruct element;
  element.Int32(1, TypeOf(column.kind));
  element.Int32(3, kMayBeNull);
  element.Text(4, column.name);
  if (column.kind != ParquetKind::kText) return element;
  element.Int32(6, kUtf8);
  ThriftStruct logical;  // a union: its first member is STRING
  logical.Struct(1, {});
  element.Struct(10, logical);
  return element;
}

template <class Number>
bool Parse(std::string_view cell, Number* number) {
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), *number);
  return error == std::errc() && end == cell.data() + cell.size();
}

void PutCell(const std::string& cell, ParquetKind kind, std::string* out) {
  int64_t integer = 0;
  double number = 0;
  switch (kind) {
    case ParquetKind::kInteger:
      ORRERY_CHECK(Parse(cell, &integer), "no whole number: {}", cell);
      return PutPlain(integer, out);
    case ParquetKind::kNumber:
      ORRERY_CHECK(Parse(cell, &number), "no number: {}", cell);
      return PutPlain(number, out);
    case ParquetKind::kText:
      PutPlain(static_cast<uint32_t>(cell.size()), out);
      *out += cell;
  }
}

}  // namespace

bool HoldsKind(std::string_view cell, ParquetKind kind) {
  int64_t integer = 0;
  double number = 0;
  return kind == ParquetKind::kText ||
         (kind == ParquetKind::kInteger ? Parse(cell, &integer) : Parse(cell, &number));
}

ParquetWriter::ParquetWriter(std::ostream* out, std::vector<ParquetColumn> columns,
                             int64_t rows_of_group)
    : out_(*out),
      columns_(std::move(columns)),
      rows_of_group_(rows_of_group),
      held_(columns_.size()) {
  Put({kMagic, 4});
}

void ParquetWriter::Put(std::string_view bytes) {
  out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  written_ += static_cast<int64_t>(bytes.size());
}

void ParquetWriter::Row(const std::vector<std::string>& cells) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 28;  // a page holds less than 2 GiB
  ORRERY_CHECK(cells.size() == columns_.size(), "{} cells", cells.size());
  bool full = ++held_rows_ == rows_of_group_;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    held_[i].present.push_back(!cells[i].empty());
    if (!cells[i].empty()) PutCell(cells[i], columns_[i].kind, &held_[i].values);
    full |= held_[i].values.size() > kMostBytes;
  }
  if (full) WriteGroup();
}

void ParquetWriter::WriteGroup() {
  Group group;
  group.rows = held_rows_;
  for (Held& held : held_) {
    const std::string levels = Levels(held.present);
    const int64_t at = written_;
    Put(PageHeader(held.present.size(), levels.size() + held.values.size()).Ended());
    Put(levels);
    Put(held.values);
    group.chunks.push_back({at, written_ - at});
    held = {};
  }
  groups_.push_back(std::move(group));
  held_rows_ = 0;
}

void ParquetWriter::Finish() {
  if (held_rows_ > 0) WriteGroup();
  std::vector<ThriftStruct> schema = {SchemaRoot(columns_.size())}, groups;
  for (const ParquetColumn& column : columns_) schema.push_back(SchemaOf(column));
  int64_t rows = 0;
  for (const Group& group : groups_) {
    std::vector<ThriftStruct> chunks;
    int64_t bytes = 0;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const Chunk& chunk = group.chunks[i];
      ThriftStruct meta, one;
      meta.Int32(1, TypeOf(columns_[i].kind));
      meta.Int32s(2, {kPlain, kRle});
      meta.Texts(3, {columns_[i].name});
      meta.Int32(4, kUncompressed);
      meta.Int64(5, group.rows);
      meta.Int64(6, chunk.bytes);
      meta.Int64(7, chunk.bytes);
      meta.Int64(9, chunk.page_at);
      one.Int64(2, chunk.page_at);
      one.Struct(3, meta);
      chunks.push_back(one);
      bytes += chunk.bytes;
    }
    ThriftStruct all;
    all.Structs(1, chunks);
    all.Int64(2, bytes);
    all.Int64(3, group.rows);
    groups.push_back(all);
    rows += group.rows;
  }
  ThriftStruct file;
  file.Int32(1, kVersion);
  file.Structs(2, schema);
  file.Int64(3, rows);
  file.Structs(4, groups);
  file.Text(6, "orrery");
  std::string footer = file.Ended();
  PutPlain(static_cast<uint32_t>(footer.size()), &footer);
  Put(footer + kMagic);
}

}  // namespace orrery
