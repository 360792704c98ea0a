// SPDX-License-Identifier: Apache-2.0
// torchtitan's TOML files, by toml++ where the build has it.
#include <fmt/format.h>

#include "model/exchange/document.h"

#ifdef ORRERY_HAS_TOML
#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include <sstream>
#endif

namespace orrery::exchange {

bool LooksLikeToml(std::string_view text) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
    begin = end + 1;
    if (line.empty() || line[0] == '#') continue;
    return line.starts_with('[') && line.ends_with(']');
  }
  return false;
}

#ifdef ORRERY_HAS_TOML

namespace {

Location At(const SourcePtr& source, const toml::source_region& region) {
  return {source, static_cast<int>(region.begin.line), static_cast<int>(region.begin.column)};
}

// On one line, whatever its length: toml++ breaks long ones.
void WriteList(const toml::array& list, std::ostream& text) {
  text << '[';
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i > 0) text << ", ";
    const toml::node& element = list[i];
    if (const auto* words = element.as_string(); words != nullptr) {
      text << '"' << words->get() << '"';
    } else if (const auto* inner = element.as_array(); inner != nullptr) {
      WriteList(*inner, text);
    } else {
      element.visit([&](const auto& value) { text << value; });
    }
  }
  text << ']';
}

void Flatten(const SourcePtr& source, const toml::table& table, const std::string& prefix,
             Settings* settings) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    if (const toml::table* inner = node.as_table(); inner != nullptr) {
      Flatten(source, *inner, key + ".", settings);
      continue;
    }
    std::ostringstream text;
    if (const auto* words = node.as_string(); words != nullptr) {
      text << words->get();
    } else if (const auto* list = node.as_array(); list != nullptr) {
      WriteList(*list, text);
    } else {
      node.visit([&](const auto& value) { text << value; });
    }
    std::string value = text.str();
    if (value.ends_with(".0")) value.resize(value.size() - 2);
    settings->push_back({key, std::move(value), At(source, node.source()), ""});
  }
}

}  // namespace

std::string WithoutToml() { return ""; }

Document ReadToml(const SourcePtr& source) {
  Document document{source, "a TOML file of torchtitan", kTitanToml, {}, {}};
  try {
    Flatten(source, toml::parse(source->text), "", &document.settings);
  } catch (const toml::parse_error& error) {
    throw InputError({{At(source, error.source()), "TOML syntax: it cannot be read from here on",
                       "texts stand in quotes, each key in a line of its own"}});
  }
  return document;
}

#else

std::string WithoutToml() { return "this build has no toml++ (libtomlplusplus-dev)"; }

Document ReadToml(const SourcePtr& source) {
  throw InputError({{{source, 1, 1},
                     fmt::format("cannot read TOML: {}", WithoutToml()),
                     "install it and build again"}});
}

#endif

}  // namespace orrery::exchange
