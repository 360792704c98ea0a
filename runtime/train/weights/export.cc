// SPDX-License-Identifier: Apache-2.0
// One parameter at a time: from slices of all ranks to the tensors of a family.
#include "runtime/train/weights/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "model/base/text.h"
#include "runtime/comm/gather.h"
#include "runtime/exec/index.h"
#include "runtime/half.h"
#include "runtime/train/weights/checkpoint.h"

namespace orrery::weights {
namespace {

namespace fs = std::filesystem;
using exec::At;
using snapshot::Manifest;
using snapshot::Slice;

constexpr char kOwnSnapshot[] = ".snapshot", kConfigFile[] = "config.json";

struct Source {
  const Slice* slice;
  std::string file;
};

struct Parameter {
  std::string name;
  HeldParam held;
  std::vector<Source> sources;
  ir::Dtype dtype = ir::Dtype::kF32;
  int64_t elements = 0;  // without padding
  int64_t bytes() const { return elements * ir::DtypeBytes(dtype); }
};

int64_t Elements(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t n : shape) elements *= n;
  return elements;
}

std::vector<Parameter> ParametersOf(const Manifest& manifest, const std::string& folder,
                                    const ExportOptions& options) {
  std::map<std::string, Parameter> by_name;
  for (const auto& [name, shape] : manifest.model) {
    Parameter& p = by_name[name];
    p.name = name;
    p.held = HeldIn(options.table, options.model, name, shape);
    p.elements = Elements(shape);
    if (p.held.tensors.empty())
      throw WeightsError(
          fmt::format("family {} has no tensor for parameter {}", options.table.family, name));
  }
  for (const snapshot::ShardFile& shard : manifest.shards) {
    for (const Slice& slice : shard.slices) {
      const auto found = by_name.find(slice.param);
      if (slice.state != "weights" || found == by_name.end()) continue;
      found->second.sources.push_back({&slice, folder + "/" + shard.name});
      found->second.dtype = slice.dtype;
    }
  }
  std::vector<Parameter> all;
  for (auto& [name, p] : by_name) all.push_back(std::move(p));
  return all;
}

// The whole parameter, row-major.
std::vector<std::byte> Assembled(const Parameter& p) {
  const int64_t width = ir::DtypeBytes(p.dtype);
  std::vector<std::byte> whole(At(p.bytes()));
  int64_t there = 0;
  for (const Source& source : p.sources) {
    const Slice& slice = *source.slice;
    std::vector<std::byte> bytes(At((slice.end - slice.begin) * width));
    snapshot::ReadPart(source.file, slice.at, &bytes);
    for (const snapshot::Run& run : snapshot::RunsOf(slice.cut(), slice.begin, slice.end)) {
      const int64_t n = std::clamp<int64_t>(p.elements - run.global, 0, run.n);
      std::memcpy(whole.data() + run.global * width,
                  bytes.data() + (run.local - slice.begin) * width, At(n * width));
      there += n;
    }
  }
  if (there != p.elements)
    throw WeightsError(
        fmt::format("the snapshot holds {} of the {} elements of {}", there, p.elements, p.name));
  return whole;
}

// Adds to a number of a storage type.
void AddTo(std::byte* element, ir::Dtype dtype, double more) {
  if (ir::DtypeBytes(dtype) == sizeof(float)) {
    float value = 0;
    std::memcpy(&value, element, sizeof value);
    value += static_cast<float>(more);
    std::memcpy(element, &value, sizeof value);
    return;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, element, sizeof bits);
  const bool bf16 = dtype == ir::Dtype::kBf16;
  const float value = (bf16 ? FromBf16(bits) : FromF16(bits)) + static_cast<float>(more);
  bits = bf16 ? ToBf16(value) : ToF16(value);
  std::memcpy(element, &bits, sizeof bits);
}

// Its tensors, one behind the other.
std::vector<std::vector<std::byte>> TensorsOfParam(const Parameter& p) {
  const std::vector<std::byte> whole = Assembled(p);
  const int64_t width = ir::DtypeBytes(p.dtype);
  std::vector<std::vector<std::byte>> tensors;
  for (const HeldParam::Tensor& tensor : p.held.tensors)
    tensors.emplace_back(At(Elements(tensor.shape) * width));
  for (int64_t i = 0; i < p.elements; ++i) {
    const HeldParam::Row at = p.held.At(i);
    std::byte* to = tensors[At(at.tensor)].data() + at.row * width;
    std::memcpy(to, whole.data() + i * width, At(width));
    if (p.held.plus != 0) AddTo(to, p.dtype, -p.held.plus);
  }
  return tensors;
}

// Parameters of one file, and its header.
struct File {
  std::vector<const Parameter*> parameters;
  Tensors tensors;
  int64_t bytes = 0;

  void Add(const Parameter& p) {
    parameters.push_back(&p);
    for (const HeldParam::Tensor& tensor : p.held.tensors) {
      const int64_t size = Elements(tensor.shape) * ir::DtypeBytes(p.dtype);
      tensors.emplace(tensor.name, Tensor{TypeName(p.dtype), tensor.shape, bytes, bytes + size});
      bytes += size;
    }
  }

  void Write(const std::string& path) const {
    snapshot::WholeFile file(path);
    const std::string header = HeaderText(tensors);
    const uint64_t length = header.size();
    file.Write(&length, sizeof length);
    file.Write(header.data(), header.size());
    for (const Parameter* p : parameters) {
      for (const auto& tensor : TensorsOfParam(*p)) file.Write(tensor.data(), tensor.size());
    }
    file.Commit();
  }
};

std::string TextOf(const std::string& path) {
  try {
    return snapshot::ReadWhole(path);
  } catch (const snapshot::SnapshotError& error) {
    throw InputError(error.what(), "another folder, or remove it");
  }
}

void WriteText(const std::string& path, const std::string& text) {
  snapshot::WholeFile file(path);
  file.Write(text.data(), text.size());
  file.Commit();
}

}  // namespace

int64_t ExportSnapshot(const std::string& step_folder, const ExportOptions& options) {
  const Manifest manifest =
      snapshot::ReadManifest(snapshot::ReadWhole(step_folder + "/" + snapshot::kManifestName));
  const std::vector<Parameter> parameters = ParametersOf(manifest, step_folder, options);
  std::vector<File> files(1);
  int64_t total = 0;
  for (const Parameter& p : parameters) {
    if (files.back().bytes > 0 && files.back().bytes + p.bytes() > options.most_bytes)
      files.emplace_back();
    files.back().Add(p);
    total += p.bytes();
  }
  snapshot::MakeFolder(options.folder);
  if (!options.config.empty()) WriteText(options.folder + "/" + kConfigFile, options.config);
  nlohmann::ordered_json map;
  for (std::size_t f = 0; f < files.size(); ++f) {
    const std::string name =
        files.size() == 1 ? kSingleName
                          : fmt::format("model-{:05}-of-{:05}.safetensors", f + 1, files.size());
    files[f].Write(options.folder + "/" + name);
    for (const auto& [tensor, unused] : files[f].tensors) map[tensor] = name;
  }
  if (files.size() > 1) {
    const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}},
                                          {"weight_map", map}};
    WriteText(options.folder + "/" + kIndexName, index.dump(2) + "\n");
  }
  return total;
}

void CheckExport(const ExportOptions& options, const ir::Plan& plan) {
  if (HasAdapters(plan))
    throw InputError("adapters are not exported: their checkpoints have another format",
                     "--save keeps them");
  if (!options.table.differs.empty())
    throw InputError(fmt::format("checkpoints of family {} are not written: {}",
                                 options.table.family, options.table.differs));
  for (const StoredParam& param : StoredParams(plan)) {
    if (HeldIn(options.table, options.model, param.name, param.shape).tensors.empty())
      throw InputError(fmt::format("family {} has no tensor for parameter {}", options.table.family,
                                   param.name));
  }
  std::error_code error;
  for (const char* name : {kSingleName, kIndexName}) {
    if (fs::exists(fs::path(options.folder) / name, error))
      throw InputError(fmt::format("'{}' holds {} already", options.folder, name),
                       "another folder, or remove it");
  }
  const std::string config = options.folder + "/" + kConfigFile;
  if (fs::exists(config, error) && TextOf(config) != options.config)
    throw InputError(fmt::format("'{}' holds another {} already", options.folder, kConfigFile),
                     "another folder, or remove it");
}

std::vector<std::string> DifferencesOf(const std::string& config, const HfTensors& table) {
  std::vector<std::string> all;
  if (HfActivation(table.family, config) == "gelu")
    all.emplace_back(
        "its activation is gelu by the error function, which is computed here in its tanh form");
  return all;
}

void ExportHook::AfterTraining(exec::Executor* executor) {
  if (executor->steps_done() < steps_) return;
  const std::string own = options_.folder + "/" + kOwnSnapshot;
  const std::string from =
      (saved_.empty() ? own : saved_) + "/" + snapshot::StepFolder(executor->steps_done());
  if (saved_.empty()) {
    snapshot::Saver saver({own, seed_, "", deadline_s_}, endpoint_);
    saver.Begin(executor, 0);
    saver.Finish();
  }
  // Storage may take as long as it likes: the others are asked again and again, so that no deadline passes.
  std::future<int64_t> writing;
  if (endpoint_->rank() == 0)
    writing = std::async(std::launch::async, [&] { return ExportSnapshot(from, options_); });
  const auto busy = [&] {
    return writing.valid() &&
           writing.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  };
  while (comm::LargestOf(endpoint_, busy() ? 1 : 0, deadline_s_) != 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (endpoint_->rank() != 0) return;
  const int64_t bytes = writing.get();
  std::error_code ignored;
  if (saved_.empty()) fs::remove_all(own, ignored);
  if (progress_)
    progress_(fmt::format("exported {} of weights into {}", Format(Bytes{double(bytes)}),
                          options_.folder));
}

}  // namespace orrery::weights
