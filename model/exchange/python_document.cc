// SPDX-License-Identifier: Apache-2.0
// Literal assignments of a Python file. Nothing of it is run: a value that is no literal is unknown.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "model/base/text.h"
#include "model/exchange/document.h"
#include "model/hardware/cluster_file.h"

namespace orrery::exchange {
namespace {

bool IsName(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::ranges::all_of(text, [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
         });
}
bool IsConstant(std::string_view name) {
  return std::ranges::all_of(
      name, [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; });
}

// A list of texts, or of lists of them, on one line and without a comma behind its last; "": it is none.
std::string TextList(std::string_view text) {
  if (!text.starts_with('[') || !text.ends_with(']')) return "";
  std::string list;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      const std::size_t end = text.find(c, at + 1);
      if (end == std::string_view::npos) return "";
      list += fmt::format("\"{}\"", text.substr(at + 1, end - at - 1));
      at = end;
    } else if (c == ',') {
      list += ", ";
    } else if (c == '[' || c == ']') {
      if (c == ']' && list.ends_with(", ")) list.resize(list.size() - 2);
      list += c;
    } else if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      return "";
    }
  }
  return list.find('"') != std::string::npos ? list : "";
}

}  // namespace

// The literal as other formats spell it; "" where it is none.
std::string PythonLiteral(std::string_view text) {
  text = Trim(text);
  if (text == "True" || text == "False") return std::string(text);
  if (text == "None") return "None";
  if (text.size() >= 2 && (text[0] == '"' || text[0] == '\'') && text.back() == text[0] &&
      text.find(text[0], 1) == text.size() - 1)
    return std::string(text.substr(1, text.size() - 2));
  if (std::string list = TextList(text); !list.empty()) return list;
  if (text.ends_with("AC.Config()")) return std::string(text);
  const bool number = !text.empty() && std::ranges::all_of(text, [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.' || c == 'e' || c == '-' ||
           c == '_';
  });
  std::string out(text);
  std::erase(out, '_');
  return number ? out : "";
}

namespace {

std::string_view WithoutComment(std::string_view line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quote != 0) {
      if (line[i] == quote) quote = 0;
    } else if (line[i] == '"' || line[i] == '\'') {
      quote = line[i];
    } else if (line[i] == '#') {
      return line.substr(0, i);
    }
  }
  return line;
}

// How many brackets of a list stay open.
int OpenBrackets(std::string_view code) {
  int open = 0;
  char quote = 0;
  for (const char c : code) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == ']') {
      open += c == '[' ? 1 : -1;
    }
  }
  return open;
}

}  // namespace

bool LooksLikePython(std::string_view text) {
  return text.find("Trainer.Config") != std::string_view::npos ||
         text.find("fully_shard(") != std::string_view::npos ||
         text.find("DistributedDataParallel(") != std::string_view::npos;
}

Document ReadPython(const SourcePtr& source) {
  const std::string_view text = source->text;
  const bool titan = text.find("Trainer.Config") != std::string_view::npos;
  Document document{
      source, titan ? "a configuration of torchtitan" : "a PyTorch program", kFsdp, {}, {}};
  if (titan) document.target = kTitan;
  if (!titan && text.find("fully_shard(") == std::string_view::npos) document.target = kDdp;
  std::string_view rest = text;
  int next = 1;
  const auto take = [&rest, &next] {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view code = WithoutComment(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++next;
    return code;
  };
  while (!rest.empty()) {
    const int line = next;
    std::string code(take());
    int open = code.find(" = [") == std::string::npos ? 0 : OpenBrackets(code);
    for (; open > 0 && !rest.empty();) {  // a list goes on in the next lines
      const std::string_view more = take();
      open += OpenBrackets(more);
      code.append(" ").append(more);
    }
    const std::size_t equals = code.find(" = ");
    if (equals == std::string::npos) continue;
    std::string_view name = Trim(std::string_view(code).substr(0, equals));
    // "config = llama3_8b()": a function of torchtitan's registry.
    if (std::string_view call = Trim(std::string_view(code).substr(equals + 3));
        titan && name == "config" && call.ends_with("()") &&
        IsName(call.substr(0, call.size() - 2))) {
      document.settings.push_back(
          {"model.flavor", std::string(call.substr(0, call.size() - 2)), {source, line, 1}, ""});
      continue;
    }
    if (titan && name.starts_with("config.")) {
      name.remove_prefix(7);
    } else if (titan || !IsConstant(name)) {
      continue;
    }
    if (!IsName(name)) continue;
    std::string value = PythonLiteral(std::string_view(code).substr(equals + 3));
    if (titan && (value == "True" || value == "False")) value = value == "True" ? "true" : "false";
    const std::string key = name == "NODES" ? "NNODES" : std::string(name);
    document.settings.push_back(
        {key, value, {source, line, 1}, value.empty() ? "its value is computed" : ""});
  }
  if (std::ranges::all_of(document.settings,
                          [](const Setting& setting) { return !setting.unresolved.empty(); }))
    throw InputError(
        {{{source, 1, 1},
          fmt::format("{}: Python is not run here, and no setting is a literal", source->name),
          titan ? "config.SECTION.KEY = VALUE lines, or give the layout by flags"
                : "MICRO_BATCH = 1 and the like, as plan export writes them"}});
  return document;
}

void RefuseClusterFile(const SourcePtr& source) {
  const ClusterFile kind = KindOfClusterFile(*source);
  if (kind == ClusterFile::kNone || (kind == ClusterFile::kHostfile && ReadsAsWords(*source)))
    return;
  throw InputError(
      {{{source, 1, 1},
        fmt::format("{} is {}: it describes machines, no job", source->name, Name(kind)),
        "plan discover " + source->name + " --out cluster.yaml, then --topology cluster.yaml"}});
}

namespace {

Document ReadByContent(const SourcePtr& source, const OpenNamed& open) {
  const std::string_view text = source->text;
  const auto named = [&](const char* ending) { return source->name.ends_with(ending); };
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos)
    throw InputError({{{source, 1, 1}, fmt::format("{} is empty", source->name), ""}});
  if (HasArgumentDump(text)) return ReadArgumentDump(source);
  if (HasLoggedSettings(text)) return ReadLoggedSettings(source);
  if (text[first] == '<' || text[first] == '{') RefuseClusterFile(source);
  if (text[first] == '{') return ReadTree(WithoutJsonComments(source));
  if (text.substr(first).starts_with("//") || text.substr(first).starts_with("/*"))
    return ReadTree(WithoutJsonComments(source));
  if (CallsTrainingArguments(text)) return ReadTrainingArguments(source);
  if (LooksLikePython(text)) return ReadPython(source);
  if (LooksLikeToml(text)) return ReadToml(source);
  // A line "key: value" in front is YAML; scripts begin with #!, an assignment or a command.
  for (std::size_t begin = first; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("#!")) break;
    if (line.empty() || line[0] == '#' || line == "---") continue;
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && IsName(line.substr(0, colon)) &&
        (colon + 1 == line.size() || line[colon + 1] == ' '))
      return ReadTree(source);
    break;
  }
  // Damage hides what the content is.
  if (named(".toml")) return ReadToml(source);
  if (named(".json") || named(".yaml") || named(".yml")) return ReadTree(source);
  return ReadScript(source, open);
}

}  // namespace

// By the line that all files of `plan export` have.
bool IsOwnProgram(const Source& source) {
  return source.text.find("# Predict again: plan predict ") != std::string::npos &&
         source.name.ends_with(".py");
}

bool IsAroundTrainScript(const Source& source) {
  return source.text.find("# Predict again: plan predict ") != std::string::npos &&
         !source.name.ends_with("train.sh");
}

void RefuseAroundTrainScript(const SourcePtr& source) {
  throw InputError({{{source, 1, 1},
                     fmt::format("{} was written by plan export and starts train.sh, which holds "
                                 "the layout",
                                 source->name),
                     "--from train.sh, or --from plan.json, in the same folder"}});
}

Document ReadDocument(const SourcePtr& source, const OpenNamed& open) {
  // Its ConfigMap holds files in whatever syntax.
  if (IsAroundTrainScript(*source) && source->text.find("\nkind: ConfigMap\n") != std::string::npos)
    RefuseAroundTrainScript(source);
  try {
    return ReadByContent(source, open);
  } catch (const InputError&) {
    if (!IsAroundTrainScript(*source)) throw;
    RefuseAroundTrainScript(source);
  }
}

}  // namespace orrery::exchange
