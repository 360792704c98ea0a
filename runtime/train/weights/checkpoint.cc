// SPDX-License-Identifier: Apache-2.0
// Opens checkpoints and finds the parameters of a plan in them.
#include "runtime/train/weights/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "model/base/read_file.h"
#include "model/plan/ir/packed.h"
#include "runtime/exec/index.h"
#include "runtime/half.h"
#include "runtime/train/snapshot/files.h"
#include "runtime/train/snapshot/manifest_check.h"

namespace orrery::weights {
namespace {

namespace fs = std::filesystem;
using exec::At;
using snapshot::PlainText;

constexpr std::size_t kMostShards = 10'000;
constexpr std::size_t kMostIndexBytes = std::size_t{1} << 30;
constexpr std::size_t kMostOfAKind = 4;  // named in an error

std::string FileIn(const fs::path& folder) {
  std::error_code error;
  for (const char* name : {kSingleName, kIndexName}) {
    if (fs::exists(folder / name, error)) return folder / name;
  }
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (fs::exists(folder / name, error))
      throw WeightsError(
          fmt::format("{} holds {}, PyTorch's own format, which can hold programs and is not read",
                      folder.string(), name),
          "save_pretrained(..., safe_serialization=True) of transformers writes safetensors");
  }
  throw WeightsError(
      fmt::format("there is neither {} nor {} in {}", kSingleName, kIndexName, folder.string()),
      "a folder as save_pretrained of transformers writes it, or a .safetensors file");
}

}  // namespace

Checkpoint::Checkpoint(const std::string& path) : path_(path) {
  std::error_code error;
  if (!fs::exists(path, error)) throw WeightsError(fmt::format("there is no '{}'", path));
  if (fs::is_directory(path, error)) path_ = FileIn(path);
  if (path_.ends_with(".json")) {
    ReadIndex(path_);
  } else {
    files_.emplace_back(path_);
    Add(files_.back());
  }
}

void Checkpoint::CheckWhole() const {
  for (const SafetensorsFile& file : files_) file.CheckWhole();
}

void Checkpoint::Add(const SafetensorsFile& file) {
  for (const auto& [name, tensor] : file.tensors()) {
    const auto [at, added] = tensors_.emplace(name, Entry{&file, &tensor});
    if (!added)
      throw WeightsError(fmt::format("tensor {} is in {} and in {}", PlainText(name),
                                     at->second.file->path(), file.path()));
  }
}

void Checkpoint::ReadIndex(const std::string& path) {
  std::map<std::string, std::string> where;  // tensor: file
  std::error_code error;
  try {
    // The caches of HuggingFace's hub consist of links.
    const auto json =
        nlohmann::json::parse(RegularFile(path, Links::kFollow).Text(kMostIndexBytes));
    const nlohmann::json& map = json.at("weight_map");
    if (!map.is_object() || map.empty())
      throw WeightsError(
          fmt::format("{}: is no index of safetensors files: its weight_map is empty", path));
    for (const auto& [name, file] : map.items()) where.emplace(name, file.get<std::string>());
  } catch (const FileError& cause) {
    throw WeightsError(fmt::format("{}: cannot be read: {}", path, cause.what()));
  } catch (const nlohmann::json::parse_error& cause) {
    throw WeightsError(fmt::format("{}: is no JSON from its byte {} on", path, cause.byte));
  } catch (const nlohmann::json::exception&) {
    throw WeightsError(fmt::format(
        "{}: is no index of safetensors files: it has no weight_map from tensors to files", path));
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : where) {
    // A name could lead out of the folder.
    if (file.empty() || file.find('/') != std::string::npos || !file.ends_with(".safetensors"))
      throw WeightsError(
          fmt::format("{}: tensor {} is said to be in '{}', which is no file name "
                      "next to it",
                      path, PlainText(tensor), PlainText(file)));
    names.insert(file);
  }
  if (names.size() > kMostShards)
    throw WeightsError(fmt::format("{}: names {} files", path, names.size()));
  for (const std::string& name : names) {
    const fs::path file = fs::path(path).parent_path() / name;
    if (!fs::exists(file, error))
      throw WeightsError(fmt::format("{}: names {}, and there is none", path, PlainText(name)));
    files_.emplace_back(file.string());
    Add(files_.back());
  }
  for (const auto& [tensor, file] : where) {
    const auto found = tensors_.find(tensor);
    if (found == tensors_.end() || fs::path(found->second.file->path()).filename() != file)
      throw WeightsError(fmt::format("{}: tensor {} is said to be in {}, and is not", path,
                                     PlainText(tensor), PlainText(file)));
  }
  for (const auto& [tensor, entry] : tensors_) {
    if (where.count(tensor) == 0)
      throw WeightsError(fmt::format("{}: tensor {} of {} is not in it", path, PlainText(tensor),
                                     entry.file->path()));
  }
}

bool HasAdapters(const ir::Plan& plan) {
  return std::ranges::any_of(plan.params, [](const ir::Param& p) { return p.frozen; });
}

std::vector<StoredParam> StoredParams(const ir::Plan& plan) {
  const bool adapters = HasAdapters(plan);
  std::map<std::string, std::vector<int64_t>> by_name;
  for (const ir::Param& param : plan.params) {
    if (adapters && !param.frozen) continue;
    const bool packed = !param.of.empty();
    std::vector<int64_t> shape = packed ? param.of : param.shape;
    if (!packed && param.real_rows > 0) shape.at(0) = param.real_rows;
    by_name.emplace(packed ? ir::PackedName(param) : param.name, std::move(shape));
  }
  std::vector<StoredParam> all;
  for (auto& [name, shape] : by_name) all.push_back({name, std::move(shape)});
  return all;
}

class HfWeights::Given : public train::GivenTensor {
 public:
  Given(HeldParam held, std::vector<Checkpoint::Entry> entries)
      : held_(std::move(held)), entries_(std::move(entries)) {}

  double At(int64_t index) const override {
    const HeldParam::Row at = held_.At(index);
    const Checkpoint::Entry& entry = entries_[exec::At(at.tensor)];
    const double value = Number(entry, at.row);
    if (entry.file->torn()) entry.file->CheckWhole();
    if (!std::isfinite(value))
      throw WeightsError(fmt::format("{}: element {} of tensor {} is {}", entry.file->path(),
                                     at.row, held_.tensors[exec::At(at.tensor)].name, value));
    return value + held_.plus;
  }

 private:
  // Data of a file begin anywhere.
  static double Number(const Checkpoint::Entry& entry, int64_t index) {
    const std::byte* data = entry.file->Data(*entry.tensor);
    if (entry.tensor->dtype == "F32") {
      float value = 0;
      std::memcpy(&value, data + index * 4, sizeof value);
      return value;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, data + index * 2, sizeof bits);
    return entry.tensor->dtype == "BF16" ? FromBf16(bits) : FromF16(bits);
  }

  HeldParam held_;
  std::vector<Checkpoint::Entry> entries_;
};

// Which tensors a plan's parameters are in, under one family's names.
class HfWeights::Matcher {
 public:
  Matcher(const Checkpoint& checkpoint, HfTensors table, const ModelSpec& model,
          const std::vector<StoredParam>& params)
      : checkpoint_(checkpoint), table_(std::move(table)) {
    for (const StoredParam& param : params) {
      HeldParam held;
      try {
        held = HeldIn(table_, model, param.name, param.shape);
      } catch (const InputError&) {
      }
      int64_t found = 0;
      for (const HeldParam::Tensor& tensor : held.tensors) found += Find(tensor.name) != nullptr;
      complete_ += found > 0 && found == static_cast<int64_t>(held.tensors.size());
      held_.emplace(param.name, std::move(held));
    }
  }

  int64_t complete() const { return complete_; }  // parameters whose tensors are all there
  const HfTensors& table() const { return table_; }

  // Moves what it found into `weights`.
  void Fill(HfWeights* weights) {
    for (auto& [param, held] : held_) Take(param, std::move(held), weights);
    Diagnostics diagnostics;
    for (const auto& [name, entry] : checkpoint_.tensors()) {
      if (used_.contains(name)) continue;
      const std::string full = FullName(name);
      const auto copy = table_.copies.find(full);
      if (copy != table_.copies.end() && held_.contains(copy->second)) {
        CheckCopy(name, entry, copy->second, *weights);
      } else if (!Ignored(name, full)) {
        unknown_.push_back(PlainText(name));
      }
    }
    const std::string where = checkpoint_.path() + ": ";
    Report(where + "lacks tensor ", missing_, "those of another model, or of a part of it?",
           &diagnostics);
    Report(where + "tensor ", wrong_, "", &diagnostics);
    Report(where + "the model has no parameter for tensor ", unknown_,
           "another --model? config.json next to it says which", &diagnostics);
    diagnostics.ThrowIfAny();
    weights->used_ = static_cast<int64_t>(used_.size());
  }

 private:
  using Found = std::map<std::string, Checkpoint::Entry>::const_iterator;

  // Under its name, without the prefix that bare models leave out, or under the names of TensorFlow's norms.
  const Found::value_type* Find(const std::string& name) const {
    std::vector<std::string> names = {name};
    for (auto [now, then] :
         {std::pair{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}}) {
      if (name.ends_with(now))
        names.push_back(name.substr(0, name.size() - std::string_view(now).size()) + then);
    }
    for (const std::string& one : names) {
      for (const bool bare : {false, true}) {
        if (bare && (table_.base.empty() || !one.starts_with(table_.base))) continue;
        const auto found = checkpoint_.tensors().find(bare ? one.substr(table_.base.size()) : one);
        if (found != checkpoint_.tensors().end()) return &*found;
      }
    }
    return nullptr;
  }

  std::string FullName(const std::string& name) const {
    return name.starts_with(table_.base) || table_.copies.contains(name) ? name
                                                                         : table_.base + name;
  }

  bool Ignored(const std::string& name, const std::string& full) const {
    return std::ranges::any_of(table_.ignored, [&](const std::string& pattern) {
      return MatchesPattern(name, pattern) || MatchesPattern(full, pattern);
    });
  }

  void Take(const std::string& param, HeldParam held, HfWeights* weights) {
    if (held.tensors.empty()) {
      missing_.push_back(fmt::format("for parameter {}: family {} has none", param, table_.family));
      return;
    }
    std::vector<Checkpoint::Entry> entries;
    for (const HeldParam::Tensor& tensor : held.tensors) {
      const auto* found = Find(tensor.name);
      if (found == nullptr) {
        missing_.push_back(tensor.name);
        continue;
      }
      used_.insert(found->first);
      const Tensor& there = *found->second.tensor;
      if (there.shape != tensor.shape) {
        wrong_.push_back(fmt::format("{} is [{}], and the model's is [{}]", tensor.name,
                                     fmt::join(there.shape, ", "), fmt::join(tensor.shape, ", ")));
      } else if (!IsWeightType(there.dtype)) {
        wrong_.push_back(fmt::format("{} is of type {}, which is not read: F32, F16 and BF16 are",
                                     tensor.name, there.dtype));
      } else {
        weights->elements_ += there.elements();
        entries.push_back(found->second);
      }
    }
    if (entries.size() == held.tensors.size())
      weights->given_.emplace(param, std::make_unique<Given>(std::move(held), std::move(entries)));
  }

  // Tied parameters stand once in a plan, and often twice in a file.
  void CheckCopy(const std::string& name, const Checkpoint::Entry& entry, const std::string& param,
                 const HfWeights& weights) {
    const auto given = weights.given_.find(param);
    if (given == weights.given_.end()) return;  // reported already
    const std::string& tied = table_.rows.at(param).names.front();
    const auto* first = Find(tied);
    const Tensor &a = *entry.tensor, &b = *first->second.tensor;
    const auto bytes = At(a.end - a.begin);
    if (a.dtype == b.dtype && a.shape == b.shape &&
        std::memcmp(entry.file->Data(a), first->second.file->Data(b), bytes) == 0)
      return;
    checkpoint_.CheckWhole();  // zeros in place of what is gone differ, too
    wrong_.push_back(fmt::format("{} differs from {}, and the model ties them", PlainText(name),
                                 PlainText(first->first)));
  }

  static void Report(const std::string& what, const std::vector<std::string>& names,
                     const std::string& hint, Diagnostics* diagnostics) {
    for (std::size_t i = 0; i < std::min(names.size(), kMostOfAKind); ++i) {
      const bool last = i + 1 == kMostOfAKind && names.size() > kMostOfAKind;
      diagnostics->Error(
          {},
          what + names[i] + (last ? fmt::format(", and {} more", names.size() - kMostOfAKind) : ""),
          i + 1 == std::min(names.size(), kMostOfAKind) ? hint : "");
    }
  }

  const Checkpoint& checkpoint_;
  HfTensors table_;
  std::map<std::string, HeldParam> held_;
  std::set<std::string> used_;
  std::vector<std::string> missing_, wrong_, unknown_;
  int64_t complete_ = 0;
};

HfWeights::HfWeights(const std::string& path, const std::string& family, const ModelSpec& model,
                     const ir::Plan& plan)
    : checkpoint_([&] {
        try {
          return Checkpoint(path);
        } catch (const WeightsError& error) {
          throw InputError(error.what(), error.hint);
        }
      }()) {
  static std::atomic<uint64_t> last{0};
  id_ = ++last;
  const std::vector<StoredParam> params = StoredParams(plan);
  std::optional<Matcher> best;
  for (const std::string& name :
       family.empty() ? HfTensorFamilies() : std::vector<std::string>{family}) {
    HfTensors table = TensorsOf(name);
    if (!table.differs.empty())
      throw InputError(
          fmt::format("checkpoints of family {} are not read: {}", name, table.differs));
    Matcher matcher(checkpoint_, std::move(table), model, params);
    if (!best || matcher.complete() > best->complete()) best.emplace(std::move(matcher));
  }
  if (best->complete() == 0)
    throw InputError(
        fmt::format("{}: holds no parameter of {}{}", checkpoint_.path(), model.name,
                    checkpoint_.tensors().empty()
                        ? ""
                        : fmt::format("; its first tensor is {}",
                                      PlainText(checkpoint_.tensors().begin()->first))),
        "names of tensors as transformers writes them");
  best->Fill(this);
  table_ = best->table();
  notes_ = table_.notes;
  if (HasAdapters(plan)) notes_.emplace_back("adapters are not in the checkpoint: they begin anew");
}

HfWeights::~HfWeights() = default;

void HfWeights::CheckWhole() const { checkpoint_.CheckWhole(); }

const train::GivenTensor* HfWeights::Find(const std::string& param) const {
  const auto found = given_.find(param);
  return found == given_.end() ? nullptr : found->second.get();
}

}  // namespace orrery::weights
