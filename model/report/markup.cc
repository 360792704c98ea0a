// SPDX-License-Identifier: Apache-2.0
// The one place where text becomes HTML.
#include "model/report/markup.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "model/base/text.h"
#include "model/report/short_number.h"

namespace orrery::report {
namespace {

const Json kNull;

std::string PointerWord(const std::string& key) {
  std::string word;
  for (const char c : key) word += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return word;
}

bool StartsPath(std::string_view rest) {
  for (const std::string_view start : {"/", "./", "../", "~/"}) {
    if (rest.size() > start.size() && rest.starts_with(start) && rest[start.size()] != ' ' &&
        rest[start.size()] != '/')
      return true;
  }
  return false;
}

}  // namespace

Ref Ref::None() { return Ref(kNull); }

Ref Ref::operator[](std::string_view key) const {
  const std::string name(key);
  if (!value_->is_object() || !value_->contains(name)) return None();
  return Ref(value_->at(name), pointer_ + "/" + PointerWord(name));
}

Ref Ref::Element(std::size_t index) const {
  if (!value_->is_array() || index >= value_->size()) return None();
  return Ref((*value_)[index], fmt::format("{}/{}", pointer_, index));
}

double Ref::number() const {
  return value_->is_number() ? value_->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::string Ref::text() const {
  return value_->is_string() ? Shown(value_->get_ref<const std::string&>()) : "";
}

std::vector<std::string> Ref::keys() const {
  std::vector<std::string> keys;
  if (!value_->is_object()) return keys;
  for (const auto& item : value_->items()) keys.push_back(item.key());
  return keys;
}

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        // Control characters are no part of HTML.
        out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return out;
}

std::string Shown(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const bool word_start =
        i == 0 || std::string_view(" \t\n'\"(=:,;`>").find(text[i - 1]) != std::string_view::npos;
    if (!word_start || !StartsPath(text.substr(i))) {
      out += text[i++];
      continue;
    }
    const std::size_t end = std::min(text.find_first_of(" \t\n'\"),;:`<>", i), text.size());
    const std::string_view path = text.substr(i, end - i);
    out += path.substr(path.find_last_of('/') + 1);
    i = end;
  }
  return out;
}

std::string Data(const Ref& number) {
  return fmt::format(" data-p=\"{}\" data-v=\"{}\"", Escape(number.pointer()),
                     Escape(number.json().dump()));
}

std::string Data(const Ref& object, std::initializer_list<const char*> keys) {
  std::string names, values;
  for (const char* key : keys) {
    names += (names.empty() ? "" : ",") + std::string(key);
    values += (values.empty() ? "" : ",") + object[key].json().dump();
  }
  return fmt::format(" data-p=\"{}\" data-k=\"{}\" data-v=\"{}\"", Escape(object.pointer()), names,
                     Escape(values));
}

std::string DataAll(const Ref& array) {
  return fmt::format(" data-p=\"{}\" data-v=\"{}\"", Escape(array.pointer()),
                     Escape(array.json().dump()));
}

std::string NumberCell(const Ref& ref, const std::string& text) {
  if (!ref.is_number()) return "<td class=n>-</td>";
  return fmt::format("<td class=n{}>{}</td>", Data(ref), Escape(text));
}

std::string SpanCell(const Ref& pair, const std::string& text) {
  if (!pair[0].is_number() || !pair[1].is_number()) return "<td class=n>-</td>";
  return fmt::format("<td class=n{}>{}</td>", DataAll(pair), Escape(text));
}

std::string NumberCell(const Ref& ref, const std::string& text, const Ref& pair,
                       const std::string& span) {
  std::string cell = NumberCell(ref, text);
  if (!ref.is_number() || !pair[0].is_number() || !pair[1].is_number()) return cell;
  return cell.insert(cell.rfind("</td>"),
                     fmt::format(" <span class=of{}>{}</span>", DataAll(pair), Escape(span)));
}

std::string NameCell(std::string_view text) {
  return fmt::format("<td class=name>{}</td>", Escape(text));
}

std::string LayoutCell(std::string_view text) {
  return fmt::format("<td class=layout>{}</td>", Escape(text));
}

std::string WordsCell(const Ref& ref, const std::string& text) {
  return fmt::format("<td{}>{}</td>", Data(ref), Escape(text));
}

std::string NumberHead(const std::string& text) {
  return fmt::format("<th scope=row class=n>{}</th>", Escape(text));
}

std::string TextCell(std::string_view text) { return fmt::format("<td>{}</td>", Escape(text)); }

std::string SecondsOf(const Ref& ref) {
  return ref.is_number() ? Format(Seconds(ref.number())) : "-";
}
std::string BytesOf(const Ref& ref) { return ref.is_number() ? Format(Bytes(ref.number())) : "-"; }
std::string NodesOf(const Ref& ref) {
  return fmt::format("{} node{}", ref.json().dump(), ref.number() == 1 ? "" : "s");
}
std::string EnergyOf(const Ref& run) {
  const Ref energy = run["energy_kwh"];
  return energy.is_number() ? Scaled(1000 * energy.number()) + "Wh" : "-";
}
std::string ScaledOf(const Ref& ref) { return ref.is_number() ? Scaled(ref.number()) : "-"; }
std::string PercentOf(const Ref& ref) { return ref.is_number() ? Percent(ref.number()) : "-"; }

std::string DaysSpanOf(const Ref& pair) {
  return SpanOf(DaysOf(pair[0].number()), DaysOf(pair[1].number()));
}

std::string DollarsSpanOf(const Ref& pair) {
  return SpanOf(DollarsOf(pair[0].number()), DollarsOf(pair[1].number()));
}

std::string SecondsSpanOf(const Ref& pair) {
  return SecondsOf(pair[0]) + " to " + SecondsOf(pair[1]);
}

std::string RateOf(const Ref& ref) {
  return ref.is_number() ? Format(BytesPerSecond(ref.number())) : "-";
}

std::string HtmlTable(const std::string& caption, const std::vector<std::string>& heads,
                      const std::string& rows) {
  if (rows.empty()) return "";
  std::string head;
  const std::string first = rows.substr(0, rows.find("</tr>"));
  std::size_t cell = 0;
  for (const std::string& one : heads) {
    cell = std::min(first.find("<t", cell + 1), first.size());
    const std::size_t end = std::min(first.find('>', cell), first.size());
    const std::string tag = first.substr(cell, end - cell) + " ";
    const bool number = tag.find(" class=n ") != std::string::npos;
    head += fmt::format("<th scope=col{}>{}</th>", number ? " class=n" : "", Escape(one));
  }
  return fmt::format(
      "<div class=scroll role=region tabindex=0 "
      "aria-label=\"{0}\"><table><caption><span>{0}</span></caption>"
      "<thead><tr>{1}</tr></thead><tbody>{2}</tbody></table></div>\n",
      Escape(caption), head, rows);
}

std::string Row(const std::vector<std::string>& cells) {
  std::string row = "<tr>";
  for (const std::string& cell : cells) row += cell;
  return row + "</tr>\n";
}

std::string Section(const std::string& id, const std::string& title, const std::string& body) {
  if (body.empty()) return "";
  return fmt::format("<section id={0} aria-labelledby={0}-h><h2 id={0}-h>{1}</h2>\n{2}</section>\n",
                     id, Escape(title), body);
}

std::string Figure(const std::string& drawing, const std::string& caption,
                   const std::string& table) {
  if (drawing.empty()) return "";
  return fmt::format(
      "<figure>{}<figcaption>{}</figcaption>{}</figure>\n", drawing, Escape(caption),
      table.empty()
          ? ""
          : fmt::format("<details><summary>The same as a table</summary>{}</details>", table));
}

std::string Colour(std::size_t i) { return fmt::format("c{}", i % kColours); }

std::string LegendItem(std::size_t colour, std::string_view text) {
  return fmt::format(
      "<li><svg aria-hidden=true viewBox=\"0 0 12 12\"><rect width=12 height=12 "
      "class={}></rect></svg>{}</li>",
      Colour(colour), Escape(text));
}

}  // namespace orrery::report
