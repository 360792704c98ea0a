// SPDX-License-Identifier: Apache-2.0
// From parameters of plans to tensors of checkpoints.
#include "model/arch/hf_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "model/arch/hf_family.h"

namespace orrery {
namespace {

using Row = HeldParam::Row;

int64_t Product(const std::vector<int64_t>& shape, std::size_t from) {
  int64_t product = 1;
  for (std::size_t d = from; d < shape.size(); ++d) product *= shape[d];
  return product;
}

// "l7.qkv.w" as role and layer: ("l*.qkv.w", 7); of T5's decoder, whose layers stand behind the encoder's, ("d*.xq.w", 1).
struct Role {
  std::string name;
  int64_t layer = -1;
};
Role RoleOf(const ModelSpec& model, const std::string& param) {
  const std::size_t dot = param.find('.');
  if (param.front() != 'l' || dot == std::string::npos) return {param};
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(param.data() + 1, param.data() + dot, layer);
  if (error != std::errc() || end != param.data() + dot) return {param};
  const bool decoder = model.decoder_layers > 0 && layer >= model.layers;
  return {(decoder ? "d*" : "l*") + param.substr(dot), decoder ? layer - model.layers : layer};
}

// "qkv" of "l*.qkv.w".
std::string_view MapOf(std::string_view role) {
  const std::size_t first = role.find('.'), last = role.rfind('.');
  return first == last ? std::string_view() : role.substr(first + 1, last - first - 1);
}

// A parameter that is a part of another one where products are not split: "k" is part 1 of "qkv". map null: none.
struct PartOfMap {
  const char* map = nullptr;
  std::size_t part = 0;
};
PartOfMap PartIn(std::string_view map) {
  constexpr struct {
    std::string_view name;
    PartOfMap whole;
  } kParts[] = {{"q", {"qkv", 0}},
                {"k", {"qkv", 1}},
                {"v", {"qkv", 2}},
                {"gate", {"fc1", 0}},
                {"up", {"fc1", 1}}};
  for (const auto& [name, whole] : kParts)
    if (map == name) return whole;
  return {};
}

// Of a row that a table may have for models that are built in this way alone; null: none.
const char* VariantOf(const ModelSpec& model, std::string_view map) {
  if (map == "fc1" && model.gated) return "-gated";
  const bool norm = map == "ln1" || map == "ln2";
  return norm && model.parallel && !model.shared_norm ? "-parallel" : nullptr;
}

// Rows of a parameter by the parts that it joins: (part, row of the part). Empty: it is one part.
std::vector<Row> PartsOf(const ModelSpec& m, std::string_view map, int64_t rows) {
  std::vector<Row> all;
  const int64_t hd = m.head_dim;
  if (map == "qkv") {
    const int64_t queries = m.heads / m.kv_heads;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t group = r / ((queries + 2) * hd), head = r / hd % (queries + 2), d = r % hd;
      if (head < queries) {
        all.push_back({0, (group * queries + head) * hd + d});
      } else {
        all.push_back({head == queries ? 1 : 2, group * hd + d});
      }
    }
  } else if (map == "xkv") {
    for (int64_t r = 0; r < rows; ++r)
      all.push_back({static_cast<int32_t>(r / hd % 2), r / (2 * hd) * hd + r % hd});
  } else if (map == "fc1" && m.gated) {
    for (int64_t r = 0; r < rows; ++r) all.push_back({static_cast<int32_t>(r % 2), r / 2});
  } else if (map == "qkn") {
    const int64_t first = m.qk_norm == QkNorm::kHead ? hd : m.heads * hd;
    for (int64_t r = 0; r < rows; ++r) all.push_back(r < first ? Row{0, r} : Row{1, r - first});
  }
  return all;
}

// Queries and keys of families that turn (2i, 2i + 1) where plans turn (i, i + turn / 2).
void TurnNeighbours(const ModelSpec& m, std::vector<Row>* rows) {
  const int64_t turn = m.RotaryWidth(), half = turn / 2;
  for (Row& row : *rows) {
    const int64_t d = row.row % m.head_dim;
    if (row.tensor > 1 || d >= turn) continue;
    row.row += (d < half ? 2 * d : 2 * (d - half) + 1) - d;
  }
}

std::string WithLayer(std::string name, int64_t layer) {
  const std::size_t star = name.find('*');
  if (star != std::string::npos) name.replace(star, 1, std::to_string(layer));
  return name;
}

}  // namespace

namespace {

// A tensor of its own; a family with one tensor for all parts has none.
HeldParam HeldPart(const HfTensorRow& spec, const ModelSpec& model, const PartOfMap& whole,
                   int64_t layer, std::vector<int64_t> shape) {
  if (whole.part >= spec.names.size() || spec.names.size() == 1) return {};
  HeldParam held;
  held.transposed = spec.transposed && shape.size() == 2;
  held.width = Product(shape, 1);
  held.plus = spec.plus;
  for (int64_t r = 0; spec.pairs && r < shape.at(0); ++r)
    held.rows.push_back({static_cast<int32_t>(whole.part), r});
  TurnNeighbours(model, &held.rows);
  for (Row& row : held.rows) row.tensor = 0;
  if (held.transposed) std::swap(shape[0], shape[1]);
  held.tensors.push_back({WithLayer(spec.names[whole.part], layer), shape});
  return held;
}

}  // namespace

HeldParam HeldIn(const HfTensors& table, const ModelSpec& model, const std::string& param,
                 const std::vector<int64_t>& shape) {
  Role role = RoleOf(model, param);
  const PartOfMap whole = PartIn(MapOf(role.name));
  if (whole.map != nullptr) {
    const std::size_t end = role.name.rfind('.');
    role.name = role.name.substr(0, role.name.find('.') + 1) + whole.map + role.name.substr(end);
  }
  const std::string_view map = MapOf(role.name);
  const std::size_t dot = role.name.rfind('.');
  const char* variant = VariantOf(model, map);
  auto found = variant == nullptr
                   ? table.rows.end()
                   : table.rows.find(role.name.substr(0, dot) + variant + role.name.substr(dot));
  if (found == table.rows.end()) found = table.rows.find(role.name);
  if (found == table.rows.end()) return {};
  const HfTensorRow& spec = found->second;
  if (whole.map != nullptr) return HeldPart(spec, model, whole, role.layer, shape);
  HeldParam held;
  held.transposed = spec.transposed && shape.size() == 2;
  held.width = Product(shape, 1);
  held.plus = spec.plus;
  const int64_t rows = shape.at(0);
  std::vector<Row> parts = PartsOf(model, map, rows);
  if (spec.pairs) TurnNeighbours(model, &parts);
  std::vector<int64_t> heights(spec.names.size(), rows);
  if (spec.names.size() > 1 || spec.parts) {
    std::vector<int64_t> of_part(3, 0);
    for (const Row& row : parts) ++of_part[static_cast<std::size_t>(row.tensor)];
    std::erase(of_part, 0);
    if (of_part.empty() || (spec.names.size() > 1 && of_part.size() != spec.names.size())) {
      throw InputError(fmt::format("family {}: {} tensors for {}, which has {} parts", table.family,
                                   spec.names.size(), role.name, of_part.size()));
    }
    held.rows = parts;
    if (spec.names.size() > 1) {
      heights = of_part;
    } else {
      for (Row& row : held.rows) {
        for (int32_t p = 0; p < row.tensor; ++p) row.row += of_part[static_cast<std::size_t>(p)];
        row.tensor = 0;
      }
    }
  }
  if (spec.shift > 0) {
    for (int64_t r = 0; r < rows; ++r) held.rows.push_back({0, (r + spec.shift) % rows});
  }
  for (std::size_t t = 0; t < spec.names.size(); ++t) {
    std::vector<int64_t> one = shape;
    one[0] = heights[t];
    if (held.transposed) std::swap(one[0], one[1]);
    held.tensors.push_back({WithLayer(spec.names[t], role.layer), one});
  }
  return held;
}

bool MatchesPattern(const std::string& text, const std::string& pattern) {
  // The last star seen takes one character more whenever what follows it does not fit.
  std::size_t t = 0, p = 0, star = std::string::npos, after = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string::npos) {
      p = star + 1;
      t = ++after;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

HfTensors TensorsOf(const std::string& family) {
  Diagnostics diagnostics;
  const HfTensors table = HfFamily::Load(family, &diagnostics).Tensors();
  diagnostics.ThrowIfAny();
  return table;
}

std::vector<std::string> HfTensorFamilies() {
  std::vector<std::pair<std::size_t, std::string>> known;
  for (const std::string& name : HfFamilyNames()) {
    Diagnostics diagnostics;
    const HfFamily family = HfFamily::Load(name, &diagnostics);
    if (family.Tensors().differs.empty()) known.emplace_back(family.depth(), name);
  }
  std::sort(known.begin(), known.end());
  std::vector<std::string> names;
  for (auto& [depth, name] : known) names.push_back(std::move(name));
  return names;
}

std::string HfFamilyLike(const ModelSpec& model) {
  for (const std::string& name : HfTensorFamilies()) {
    if (!HfConfigText(name, model).empty()) return name;
  }
  return "";
}

std::string PeftTargets(const std::string& family) {
  Diagnostics diagnostics;
  const std::string targets = HfFamily::Load(family, &diagnostics).Text("peft_targets");
  diagnostics.ThrowIfAny();
  return targets;
}

LoraModules AdapterModules(const std::string& family, bool gated) {
  struct Map {
    const char* row;
    unsigned whole;
    std::vector<unsigned> parts;
  };
  const Map maps[] = {{"l*.qkv.w", kLoraQkv, {kLoraQ, kLoraK, kLoraV}},
                      {"l*.o.w", kLoraProj, {}},
                      {"l*.fc1.w", kLoraFc1, {kLoraGate, kLoraUp}},
                      {"l*.fc2.w", kLoraFc2, {}}};
  LoraModules modules;
  const HfTensors table = TensorsOf(family);
  for (const Map& map : maps) {
    auto row = table.rows.find(map.row);
    if (gated && map.whole == kLoraFc1 && table.rows.contains("l*.fc1-gated.w"))
      row = table.rows.find("l*.fc1-gated.w");
    if (row == table.rows.end()) continue;
    const std::vector<std::string>& names = row->second.names;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string module = names[i].substr(0, names[i].rfind('.'));
      LoraTargets& targets = modules.targets[module.substr(module.rfind('.') + 1)];
      const unsigned target = names.size() == map.parts.size() ? map.parts[i] : map.whole;
      targets = static_cast<LoraTargets>(targets | target);
    }
  }
  return modules;
}

HfTensors HfFamily::Tensors() const {
  HfTensors table;
  table.family = name_;
  bool any = false;
  for (const Node& file : files_) {
    const auto tensors = file.Find("tensors");
    if (!tensors) continue;
    const auto text = [&](const char* key, std::string* out) {
      const std::string said = tensors->String(key, "");  // asked for in each file: it is known
      if (out->empty()) *out = said;
    };
    text("differs", &table.differs);
    if (!table.differs.empty()) return table;
    any = true;
    text("base", &table.base);
    text("architecture", &table.architecture);
    if (const auto copies = tensors->Find("copies")) {
      for (const std::string& key : copies->Keys()) table.copies.emplace(key, copies->String(key));
    }
    for (auto [key, list] : {std::pair{"ignored", &table.ignored}, {"notes", &table.notes}}) {
      if (!tensors->Has(key)) continue;
      for (const Node& element : tensors->Items(key)) list->push_back(element.AsString());
    }
    const auto rows = tensors->Find("parameters");
    for (const std::string& key : rows ? rows->Keys() : std::vector<std::string>{}) {
      const auto value = rows->Find(key);
      HfTensorRow row;
      if (value->IsScalar()) {
        row.names = {value->AsString()};
      } else if (value->IsSequence()) {
        for (const Node& element : value->Elements()) row.names.push_back(element.AsString());
      } else {
        const auto in = value->Find("in");
        if (in && in->IsSequence()) {
          for (const Node& element : in->Elements()) row.names.push_back(element.AsString());
        } else {
          row.names = {value->String("in")};
        }
        row.parts = value->Bool("parts", false);
        row.transposed = value->Bool("transposed", false);
        row.pairs = value->Bool("pairs", false);
        row.shift = value->Integer("shift", 0, 1000, 0);
        row.plus = value->Number("plus", -1, 1, 0);
        value->RejectUnknownKeys();
      }
      table.rows.emplace(key, std::move(row));  // the nearest file's counts
    }
    tensors->RejectUnknownKeys();
  }
  if (!any) table.differs = "the names of its tensors are not known here";
  return table;
}

}  // namespace orrery
