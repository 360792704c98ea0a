// SPDX-License-Identifier: Apache-2.0
// Reads headers as somebody else's input, and writes them.
#include "runtime/train/weights/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/train/snapshot/manifest_check.h"

namespace orrery::weights {
namespace {

using Json = nlohmann::json;
using snapshot::PlainText;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr char kMetadata[] = "__metadata__";
constexpr int64_t kMostElements = int64_t{1} << 50;
constexpr int64_t kLengthBytes = 8;
constexpr std::size_t kMostDims = 16;

constexpr std::pair<const char*, int64_t> kTypes[] = {
    {"F64", 8},  {"F32", 4}, {"F16", 2},     {"BF16", 2},    {"I64", 8},    {"I32", 4},
    {"I16", 2},  {"I8", 1},  {"U64", 8},     {"U32", 4},     {"U16", 2},    {"U8", 1},
    {"BOOL", 1}, {"C64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};

[[noreturn]] void Refuse(const std::string& tensor, const std::string& what) {
  throw WeightsError(fmt::format("tensor {}: {}", PlainText(tensor), what));
}

// The library turns 4.7 and 1e300 into integers without a word: this does not.
int64_t Count(const std::string& tensor, const Json& json, const char* what) {
  const bool fits = json.is_number_integer() &&
                    (!json.is_number_unsigned() ||
                     json.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()}) &&
                    json.get<int64_t>() >= 0;
  if (!fits) Refuse(tensor, fmt::format("its {} has a number that is no count", what));
  return json.get<int64_t>();
}

const Json& Member(const std::string& tensor, const Json& json, const char* key) {
  if (!json.is_object() || !json.contains(key)) Refuse(tensor, fmt::format("it has no {}", key));
  return json.at(key);
}

Tensor TensorOf(const std::string& name, const Json& json, int64_t data_bytes) {
  Tensor tensor;
  const Json& dtype = Member(name, json, "dtype");
  const Json& shape = Member(name, json, "shape");
  const Json& offsets = Member(name, json, "data_offsets");
  if (!dtype.is_string() || BytesOfType(dtype.get_ref<const std::string&>()) == 0)
    Refuse(name, fmt::format("its dtype {} is unknown", PlainText(dtype.dump(-1, ' ', true))));
  tensor.dtype = dtype.get<std::string>();
  if (!shape.is_array() || shape.size() > kMostDims) Refuse(name, "its shape is none");
  int64_t elements = 1;
  bool empty = false;
  for (const Json& extent : shape) {
    const int64_t n = Count(name, extent, "shape");
    tensor.shape.push_back(n);
    empty = empty || n == 0;
    if (n > 0 && elements > kMostElements / n) Refuse(name, "its shape is larger than any file");
    elements *= std::max<int64_t>(n, 1);
  }
  if (empty) elements = 0;
  if (!offsets.is_array() || offsets.size() != 2) Refuse(name, "its data_offsets are no pair");
  tensor.begin = Count(name, offsets[0], "data_offsets");
  tensor.end = Count(name, offsets[1], "data_offsets");
  if (tensor.begin > tensor.end) Refuse(name, "its data end before they begin");
  if (tensor.end > data_bytes)
    Refuse(name, fmt::format("its data end at byte {}, and the file has {} behind its header",
                             tensor.end, data_bytes));
  const int64_t bytes = elements * BytesOfType(tensor.dtype);
  if (tensor.end - tensor.begin != bytes)
    Refuse(name,
           fmt::format("its data are {} bytes, and [{}] of {} are {}", tensor.end - tensor.begin,
                       fmt::join(tensor.shape, ", "), tensor.dtype, bytes));
  return tensor;
}

// Each byte belongs to one tensor.
void CheckCover(const Tensors& tensors, int64_t data_bytes) {
  std::vector<std::pair<const std::string*, const Tensor*>> by_place;
  for (const auto& [name, tensor] : tensors) by_place.emplace_back(&name, &tensor);
  std::sort(by_place.begin(), by_place.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  int64_t end = 0;
  for (const auto& [name, tensor] : by_place) {
    if (tensor->begin < end) Refuse(*name, "its data overlap those of another tensor");
    if (tensor->begin > end)
      Refuse(*name,
             fmt::format("{} bytes in front of its data belong to no tensor", tensor->begin - end));
    end = tensor->end;
  }
  if (end != data_bytes)
    throw WeightsError(fmt::format("{} bytes at the end belong to no tensor", data_bytes - end));
}

// The library keeps the last of several members of one name: they are counted on the way.
Json Parsed(std::string_view text) {
  constexpr int kMostDepth = 8;
  std::vector<std::set<std::string>> names(1);
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMostDepth) throw WeightsError("its header is nested too deep");
    const auto level = static_cast<std::size_t>(depth);
    if (names.size() <= level) names.resize(level + 1);
    if (event == Json::parse_event_t::object_start && names.size() > level + 1)
      names[level + 1].clear();
    if (event == Json::parse_event_t::key && !names[level].insert(value.get<std::string>()).second)
      throw WeightsError(fmt::format("tensor {}: it stands twice in the header",
                                     PlainText(value.get_ref<const std::string&>())));
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const Json::parse_error& error) {
    throw WeightsError(fmt::format("its header is no JSON from its byte {} on", error.byte));
  } catch (const Json::exception&) {
    throw WeightsError("its header is no JSON: a number in it is out of range");
  }
}

}  // namespace

int64_t Tensor::elements() const { return (end - begin) / BytesOfType(dtype); }

int64_t BytesOfType(const std::string& dtype) {
  for (const auto& [name, bytes] : kTypes) {
    if (dtype == name) return bytes;
  }
  return 0;
}

bool IsWeightType(const std::string& dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

std::string TypeName(ir::Dtype dtype) {
  switch (dtype) {
    case ir::Dtype::kF16:
      return "F16";
    case ir::Dtype::kBf16:
      return "BF16";
    default:
      return "F32";
  }
}

Tensors ParseHeader(std::string_view text, int64_t data_bytes) {
  if (text.empty() || text.front() != '{') throw WeightsError("its header does not begin with {");
  const Json json = Parsed(text);
  if (!json.is_object()) throw WeightsError("its header is no object");
  Tensors tensors;
  for (const auto& [name, value] : json.items()) {
    if (name != kMetadata) tensors.emplace(name, TensorOf(name, value, data_bytes));
  }
  CheckCover(tensors, data_bytes);
  return tensors;
}

std::string HeaderText(const Tensors& tensors) {
  nlohmann::ordered_json json;
  json[kMetadata] = {{"format", "pt"}};  // which transformers asks for
  for (const auto& [name, tensor] : tensors)
    json[name] = {{"dtype", tensor.dtype},
                  {"shape", tensor.shape},
                  {"data_offsets", {tensor.begin, tensor.end}}};
  std::string text = json.dump();
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  return text;
}

SafetensorsFile::SafetensorsFile(std::string path) : path_(std::move(path)) {
  try {
    file_ = std::make_unique<const MappedFile>(path_);
  } catch (const MappingError& error) {
    Fail(error.what());
  }
  try {
    Read();
  } catch (const WeightsError&) {
    CheckWhole();  // zeros in place of what is gone are no fault of the format
    throw;
  }
  CheckWhole();
}

void SafetensorsFile::CheckWhole() const {
  try {
    file_->CheckWhole();
  } catch (const MappingError& error) {
    Fail(error.what());
  }
}

void SafetensorsFile::Fail(const std::string& what, const std::string& hint) const {
  throw WeightsError(fmt::format("{}: {}", path_, what), hint);
}

void SafetensorsFile::Read() {
  const int64_t size = file_->size();
  if (size < kLengthBytes)
    Fail(fmt::format("has {} bytes: too short for a safetensors file", size));
  const std::byte* bytes = file_->bytes();
  uint64_t length = 0;
  std::memcpy(&length, bytes, sizeof length);
  if (length > uint64_t{kMostHeaderBytes} || static_cast<int64_t>(length) > size - kLengthBytes) {
    constexpr std::string_view kPickle("\x80\x02", 2), kZip("PK");
    const std::string_view first(reinterpret_cast<const char*>(bytes), 2);
    if (first == kPickle || first == kZip)
      Fail("is PyTorch's own format, which can hold programs and is not read",
           "save_pretrained(..., safe_serialization=True) of transformers writes safetensors");
    Fail(fmt::format("its header of {} bytes does not fit into the file of {}", length, size));
  }
  data_ = kLengthBytes + static_cast<int64_t>(length);
  const std::string_view text(reinterpret_cast<const char*>(bytes) + kLengthBytes,
                              static_cast<std::size_t>(length));
  try {
    tensors_ = ParseHeader(text, size - data_);
  } catch (const WeightsError& error) {
    Fail(error.what(), error.hint);
  }
}

}  // namespace orrery::weights
