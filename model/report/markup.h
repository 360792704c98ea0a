// SPDX-License-Identifier: Apache-2.0
// Escaped text, values of the JSON with their place, and the frame around a figure.
#pragma once

#include <concepts>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::report {

using Json = nlohmann::ordered_json;

// A value of the answer and where it stands: its JSON pointer.
class Ref {
 public:
  explicit Ref(const Json& root) : value_(&root) {}
  static Ref None();

  // Without such a member or element: a reference to null.
  Ref operator[](std::string_view key) const;
  template <std::integral I>
  Ref operator[](I index) const {
    return Element(static_cast<std::size_t>(index));
  }

  bool empty() const { return value_->is_null() || (value_->is_structured() && value_->empty()); }
  bool is_number() const { return value_->is_number(); }
  bool is_true() const { return value_->is_boolean() && value_->get<bool>(); }
  std::size_t size() const { return value_->is_array() ? value_->size() : 0; }
  double number() const;     // NaN where it is none
  std::string text() const;  // as a reader should see it: see Shown(); "" where it is none
  const Json& json() const { return *value_; }
  const std::string& pointer() const { return pointer_; }
  std::vector<std::string> keys() const;

 private:
  Ref Element(std::size_t index) const;
  Ref(const Json& value, std::string pointer) : value_(&value), pointer_(std::move(pointer)) {}

  const Json* value_;
  std::string pointer_;
};

// For text and for attribute values in double quotes.
std::string Escape(std::string_view text);
// Paths lose their folders: a report is passed on.
std::string Shown(std::string_view text);

// " data-p=... data-v=...": the number, or the members of an object with a comma in between.
std::string Data(const Ref& number);
std::string Data(const Ref& object, std::initializer_list<const char*> keys);
// All numbers of an array.
std::string DataAll(const Ref& array);

// A cell with `text`, which says the number of `ref` in short.
std::string NumberCell(const Ref& ref, const std::string& text);
std::string TextCell(std::string_view text);
// A short name, which takes little room on a phone.
std::string NameCell(std::string_view text);
// A layout, which needs some room.
std::string LayoutCell(std::string_view text);
// A number that `text` says in words, over several lines where it has to.
std::string WordsCell(const Ref& ref, const std::string& text);
// Both ends of [low, high]; "-" without them.
std::string SpanCell(const Ref& pair, const std::string& text);
// A number and, below it, its interval.
std::string NumberCell(const Ref& ref, const std::string& text, const Ref& pair,
                       const std::string& span);
// The head of a row that is a number, perhaps behind a mark.
std::string NumberHead(const std::string& text);

// By the unit that ends the key in JSON: "2.88 s", "14.4 GiB", "42.1 %".
std::string SecondsOf(const Ref& ref);
std::string BytesOf(const Ref& ref);
std::string ScaledOf(const Ref& ref);
std::string PercentOf(const Ref& ref);
std::string DaysSpanOf(const Ref& pair);     // "18.1 to 25.6 d"
std::string DollarsSpanOf(const Ref& pair);  // "204 to 289 kUSD"
std::string SecondsSpanOf(const Ref& pair);  // "1.02 s to 1.31 s"
std::string RateOf(const Ref& ref);          // "4.52 MB/s"
std::string NodesOf(const Ref& ref);         // "1 node"
std::string EnergyOf(const Ref& run);        // "13.9 MWh": its energy_kwh

// A table that scrolls sideways by itself on a narrow page. `rows`: "<tr>...</tr>" each. Heads stand
// over numbers as the first row has them: to the right.
std::string HtmlTable(const std::string& caption, const std::vector<std::string>& heads,
                      const std::string& rows);
std::string Row(const std::vector<std::string>& cells);

// A section with a heading and an anchor; "" without a body.
std::string Section(const std::string& id, const std::string& title, const std::string& body);
// A drawing with its caption, and the same as a table behind a button.
std::string Figure(const std::string& drawing, const std::string& caption,
                   const std::string& table);

// Colour number i of the palette, for marks; see style.cc. Colours repeat from kColours on.
inline constexpr int kColours = 19;
std::string Colour(std::size_t i);
std::string LegendItem(std::size_t colour, std::string_view text);

}  // namespace orrery::report
