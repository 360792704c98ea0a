// SPDX-License-Identifier: Apache-2.0
// What all files of an export share.
#include "model/exchange/bundle.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/plain_text.h"
#include "model/exchange/import_steps.h"
#include "model/framework/presets.h"

namespace orrery::exchange {
namespace {

// A prediction of another framework than the files start. Facts in which it differs from its own release are named one by one.
void CompareFrameworks(Bundle* bundle) {
  const std::string name = FindFramework(SplitReference(bundle->layout.framework).name).name;
  const std::string read = FindFramework(ReadBackAs(*bundle)).name;
  if (name == read) return;
  bundle->settings.fields.push_back(
      {"framework", name, Status::kNotExpressed,
       fmt::format("--from reads these files as {}, whose step may take another time", read)});
}

}  // namespace

Bundle MakeBundle(const Case& layout, Target target) {
  Bundle bundle;
  bundle.layout = layout;
  bundle.target = target;
  bundle.settings = ToSettings(layout, target);
  CompareFrameworks(&bundle);
  const std::string& name = layout.model.name;
  switch (target) {
    case kMegatron:
      bundle.model = MegatronModel(layout.model);
      break;
    case kBridge:
      if (FindRegistry(name) == nullptr)
        bundle.model.missing.push_back(
            fmt::format("{}: no recipe of Megatron-Bridge is known here, set RECIPE", name));
      break;
    case kTitan:
    case kTitanToml:
      if (FindRegistry(name) == nullptr)
        bundle.model.missing.push_back(
            fmt::format("{} is not in torchtitan's registry, name its flavour yourself", name));
      break;
    case kFsdp:
    case kDdp:
      if (!TorchHasModel(layout.model))
        bundle.model.missing.emplace_back("train.py builds models like Llama or GPT-2 only");
      break;
    case kDeepSpeed:
    case kAccelerate:
      bundle.model.missing.emplace_back("the program's own, set PROGRAM");
      break;
  }
  return bundle;
}

std::string Bundle::Refusal() const {
  for (const char* degree : {"tp", "pp", "cp", "ep"}) {
    const auto field = std::ranges::find(settings.fields, degree, &FieldReport::field);
    if (field != settings.fields.end() && field->status == Status::kNotExpressed)
      return fmt::format("{} {}: {}", degree, field->value, field->how);
  }
  return "";
}

std::vector<std::string> Bundle::Missing() const {
  std::vector<std::string> lines;
  for (const FieldReport& field : settings.fields) {
    if (!Differs(field.status)) continue;
    // A setting that only comes near may be spelt as the field is.
    const std::string front = fmt::format("{} {}: ", field.field, field.value);
    lines.push_back(field.how.starts_with(front) ? field.how : front + field.how);
  }
  for (const std::string& what : model.missing) lines.push_back("model: " + what);
  return lines;
}

std::string Bundle::Get(const std::string& key) const {
  const auto at = std::ranges::find(settings.settings, key, &Setting::key);
  return at == settings.settings.end() ? "" : at->value;
}

std::string OneLine(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const std::size_t length = Utf8Length(text);
    const std::string_view c = text.substr(0, std::max<std::size_t>(length, 1));
    text.remove_prefix(c.size());
    const auto first = static_cast<unsigned char>(c[0]);
    // YAML 1.1 takes U+0085, U+2028 and U+2029 as ends of lines, and no U+0080 to U+009F and U+FFFE or U+FFFF at all.
    const bool control = c.size() == 1
                             ? first < 32 || first == 127
                             : c == "\u2028" || c == "\u2029" ||
                                   (first == 0xC2 && static_cast<unsigned char>(c[1]) < 0xA0);
    if (length == 0 || c == "\uFFFE" || c == "\uFFFF") {
      line += '?';
    } else if (control) {
      line += ' ';
    } else {
      line += c;
    }
  }
  return line;
}

std::string ReadBackAs(const Bundle& bundle) {
  Values values;
  for (const FieldReport& field : bundle.settings.fields)
    if (!field.value.empty()) values[field.field] = {field.value, {}, ""};
  if (constexpr const char* kStage = "deepspeed_config.zero_stage"; !bundle.Get(kStage).empty())
    values["zero"].key = kStage;
  return FrameworkAlone(bundle.target, values);
}

std::string Comments(const Bundle& bundle, const std::string& mark) {
  std::string text;
  for (const std::string& line : bundle.header) text += fmt::format("{} {}\n", mark, OneLine(line));
  const std::vector<std::string> missing = bundle.Missing();
  if (missing.empty()) return text;
  text += fmt::format("{} Not expressed: here the job differs from the prediction:\n", mark);
  for (const std::string& line : missing) text += fmt::format("{}   {}\n", mark, OneLine(line));
  return text;
}

std::string ShellHosts(const std::vector<std::string>& hosts) {
  std::string text;
  for (const std::string& host : hosts) text += (text.empty() ? "" : " ") + ShellWord(host);
  return text;
}

NodePlaces PlacesOf(const Bundle& bundle) {
  NodePlaces all;
  const auto& placement = bundle.layout.strategy.placement;
  if (placement == nullptr || std::ranges::is_sorted(placement->nodes)) return all;
  all.nodes = placement->nodes;
  all.places.resize(all.nodes.size());
  for (std::size_t place = 0; place < all.nodes.size(); ++place)
    all.places[static_cast<std::size_t>(all.nodes[place])] = static_cast<int32_t>(place);
  return all;
}

std::string HostsCheck(const Bundle& bundle, const char* file, const std::string& indent) {
  if (!PlacesOf(bundle).any() || bundle.layout.hosts.empty()) return "";
  // A launcher may have the short name of a host or the long one.
  std::string text = fmt::format(
      R"sh(# The placement is one of these hosts in this order: node 0, 1, ... of the plan.
planned=({0})
for node in "${{!planned[@]}}"; do
  want="${{planned[$node]}}" given="${{hosts[$node]:-}}"
  if [ -z "${{ORRERY_ANY_HOSTS:-}}" ] && [ "$given" != "$want" ] &&
    [ "${{given%%.*}}" != "$want" ] && [ "$given" != "${{want%%.*}}" ]; then
    echo "{1}: node $node is ${{given:-missing}}, in the plan it is $want: the placement is for the" \
      "order ${{planned[*]}}. Give the hosts in this order, or plan again with the launcher's" \
      "(list 'hosts' of the topology); ORRERY_ANY_HOSTS=1 starts as it is" >&2
    exit 2
  fi
done
)sh",
      ShellHosts(bundle.layout.hosts), file);
  if (indent.empty()) return text;
  std::string indented;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin) + 1;
    indented += indent + text.substr(begin, end - begin);
    begin = end;
  }
  return indented;
}

std::string ShellList(const std::vector<int32_t>& numbers) {
  return fmt::format("{}", fmt::join(numbers, " "));
}

std::string ShellWord(const std::string& word) {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("-_./=:+@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace orrery::exchange
