// SPDX-License-Identifier: Apache-2.0
// A recursive reader with bounds.
#include "calib/import/xml_tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/plain_text.h"

namespace orrery::measured {
namespace {

constexpr int kMostLevels = 64;
constexpr int kMostElements = 100'000;

[[noreturn]] void Fail(const Location& where, std::string message, std::string hint = "") {
  throw InputError(std::vector<Diagnostic>{{where, std::move(message), std::move(hint)}});
}

class Reader {
 public:
  explicit Reader(const SourcePtr& source)
      : source_(source), text_(WithoutByteOrderMark(source->text)) {}

  XmlElement Read() {
    SkipBetween();
    if (Done() || text_[at_] != '<') Wrong("no XML element", "NCCL's dumps begin with '<system'");
    XmlElement root = Element(1);
    SkipBetween();
    if (!Done()) Wrong("text behind the last element");
    return root;
  }

 private:
  bool Done() const { return at_ >= text_.size(); }
  Location Here() const { return {source_, line_, static_cast<int>(at_ - line_start_) + 1}; }
  [[noreturn]] void Wrong(std::string message, std::string hint = "") const {
    Fail(Here(), std::move(message), std::move(hint));
  }

  void Step() {
    if (text_[at_++] != '\n') return;
    ++line_;
    line_start_ = at_;
  }

  static bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
  void SkipBlanks() {
    while (!Done() && IsBlank(text_[at_])) Step();
  }

  void SkipPast(std::string_view end) {
    const std::size_t found = text_.find(end, at_);
    if (found == std::string_view::npos) Wrong(fmt::format("no '{}' ends this", end));
    while (at_ < found + end.size()) Step();
  }

  void SkipBetween() {
    for (SkipBlanks(); !Done(); SkipBlanks()) {
      if (text_.substr(at_).starts_with("<!--"))
        SkipPast("-->");
      else if (text_.substr(at_).starts_with("<?"))
        SkipPast("?>");
      else
        return;
    }
  }

  std::string Name() {
    const std::size_t start = at_;
    const auto fits = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '-' || c == '.' || c == ':';
    };
    while (!Done() && fits(text_[at_])) Step();
    if (at_ == start) Wrong("a name is missing here");
    return std::string(text_.substr(start, at_ - start));
  }

  void Expect(char c) {
    if (Done() || text_[at_] != c)
      Wrong(fmt::format("'{}' is missing here", c),
            Done() ? "the file ends early: was the dump cut?" : "");
    Step();
  }

  std::pair<std::string, std::string> Attribute() {
    std::string name = Name();
    SkipBlanks();
    Expect('=');
    SkipBlanks();
    Expect('"');
    const std::size_t start = at_;
    while (!Done() && text_[at_] != '"' && text_[at_] != '<') Step();
    const std::size_t end = at_;
    Expect('"');
    return {std::move(name), std::string(text_.substr(start, end - start))};
  }

  XmlElement Element(int level) {
    XmlElement element;
    element.where = Here();
    if (level > kMostLevels) Wrong(fmt::format("more than {} levels", kMostLevels));
    if (++elements_ > kMostElements) Wrong(fmt::format("more than {} elements", kMostElements));
    Expect('<');
    element.name = Name();
    for (SkipBlanks(); !Done() && text_[at_] != '>' && text_[at_] != '/'; SkipBlanks())
      element.attributes.push_back(Attribute());
    if (!Done() && text_[at_] == '/') {
      Step();
      Expect('>');
      return element;
    }
    Expect('>');
    for (SkipBetween(); !text_.substr(std::min(at_, text_.size())).starts_with("</");
         SkipBetween()) {
      if (Done() || text_[at_] != '<')
        Wrong(fmt::format("'</{}>' is missing here", element.name),
              Done() ? "the file ends early: was the dump cut?" : "");
      element.children.push_back(Element(level + 1));
    }
    Step();
    Step();
    const Location end = Here();
    if (const std::string name = Name(); name != element.name)
      Fail(end,
           fmt::format("'</{}>' ends '<{}>' of line {}", name, element.name, element.where.line));
    SkipBlanks();
    Expect('>');
    return element;
  }

  SourcePtr source_;
  std::string_view text_;
  std::size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
  int elements_ = 0;
};

}  // namespace

const std::string* XmlElement::Find(std::string_view attribute) const {
  const auto found =
      std::ranges::find_if(attributes, [&](const auto& one) { return one.first == attribute; });
  return found == attributes.end() ? nullptr : &found->second;
}

const std::string& XmlElement::Text(std::string_view attribute) const {
  const std::string* text = Find(attribute);
  if (text == nullptr)
    Fail(where, fmt::format("<{}> without '{}'", name, attribute),
         "NCCL writes it; was the file changed by hand?");
  return *text;
}

double XmlElement::Number(std::string_view attribute, double min, double max) const {
  const std::string& text = Text(attribute);
  double value = 0;
  if (ParseNumber(text, &value) != NumberFault::kNone || !(value >= min && value <= max))
    Fail(where, fmt::format("'{}' of <{}> is '{}'", attribute, name, text),
         fmt::format("a number from {:g} to {:g}", min, max));
  return value;
}

int XmlElement::Whole(std::string_view attribute, int min, int max) const {
  const double value = Number(attribute, min, max);
  if (value != static_cast<int>(value))
    Fail(where, fmt::format("'{}' of <{}> is '{}'", attribute, name, Text(attribute)),
         "a whole number");
  return static_cast<int>(value);
}

int XmlElement::Whole(std::string_view attribute, int min, int max, int fallback) const {
  return Find(attribute) == nullptr ? fallback : Whole(attribute, min, max);
}

XmlElement ReadXml(const SourcePtr& source) { return Reader(source).Read(); }

}  // namespace orrery::measured
