// SPDX-License-Identifier: Apache-2.0
// Builds the tree from libexpat's events, with bounds.
#include "model/base/xml_tree.h"

#include <expat.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "model/base/plain_text.h"

namespace orrery {
namespace {

constexpr std::size_t kMostLevels = 64;
constexpr int kMostElements = 100'000;
constexpr std::size_t kMostXmlBytes = std::size_t{64} << 20;

[[noreturn]] void FailXml(const Location& where, std::string message, std::string hint = "") {
  throw InputError(std::vector<Diagnostic>{{where, std::move(message), std::move(hint)}});
}

// Expat is C: nothing may be thrown through it. What goes wrong is kept and stops the parser.
class XmlReader {
 public:
  explicit XmlReader(const SourcePtr& source)
      : source_(source),
        text_(WithoutByteOrderMark(source->text)),
        parser_(XML_ParserCreate("UTF-8"), XML_ParserFree) {}

  XmlElement Read() {
    if (text_.size() > kMostXmlBytes)
      FailXml({source_, 1, 1}, fmt::format("more than {} MiB of XML", kMostXmlBytes >> 20));
    XML_SetUserData(parser_.get(), this);
    XML_SetElementHandler(parser_.get(), Begin, End);
    XML_SetEntityDeclHandler(parser_.get(), RefuseEntity);
    const XML_Status status =
        XML_Parse(parser_.get(), text_.data(), static_cast<int>(text_.size()), XML_TRUE);
    if (!problem_.empty()) FailXml(problem_where_, problem_);
    if (status != XML_STATUS_OK) FailParse();
    return std::move(root_);
  }

 private:
  Location Here() const {
    return {source_, static_cast<int>(XML_GetCurrentLineNumber(parser_.get())),
            static_cast<int>(XML_GetCurrentColumnNumber(parser_.get())) + 1};
  }

  void Stop(std::string problem) {
    if (!problem_.empty()) return;
    problem_ = std::move(problem);
    problem_where_ = Here();
    XML_StopParser(parser_.get(), XML_FALSE);
  }

  static void XMLCALL Begin(void* self, const XML_Char* name, const XML_Char** attributes) {
    auto* reader = static_cast<XmlReader*>(self);
    if (!reader->problem_.empty()) return;
    if (reader->open_.size() >= kMostLevels)
      return reader->Stop(fmt::format("more than {} levels", kMostLevels));
    if (++reader->elements_ > kMostElements)
      return reader->Stop(fmt::format("more than {} elements", kMostElements));
    XmlElement element;
    element.name = name;
    element.where = reader->Here();
    for (; *attributes != nullptr; attributes += 2)
      element.attributes.emplace_back(attributes[0], attributes[1]);
    reader->open_.push_back(std::move(element));
  }

  static void XMLCALL End(void* self, const XML_Char* /*name*/) {
    auto* reader = static_cast<XmlReader*>(self);
    if (!reader->problem_.empty() || reader->open_.empty()) return;
    XmlElement done = std::move(reader->open_.back());
    reader->open_.pop_back();
    if (reader->open_.empty())
      reader->root_ = std::move(done);
    else
      reader->open_.back().children.push_back(std::move(done));
  }

  static void XMLCALL RefuseEntity(void* self, const XML_Char* name, int, const XML_Char*, int,
                                   const XML_Char*, const XML_Char*, const XML_Char*,
                                   const XML_Char*) {
    static_cast<XmlReader*>(self)->Stop(fmt::format("the document declares an entity, '{}'", name));
  }

  [[noreturn]] void FailParse() const {
    const XML_Error error = XML_GetErrorCode(parser_.get());
    const bool cut = error == XML_ERROR_NO_ELEMENTS || error == XML_ERROR_UNCLOSED_TOKEN ||
                     error == XML_ERROR_PARTIAL_CHAR || error == XML_ERROR_UNCLOSED_CDATA_SECTION;
    if (error == XML_ERROR_TAG_MISMATCH && !open_.empty()) {
      const auto at = static_cast<std::size_t>(XML_GetCurrentByteIndex(parser_.get()));
      const std::string_view rest = at < text_.size() ? text_.substr(at) : std::string_view();
      FailXml(Here(), fmt::format("'</{}>' ends '<{}>' of line {}",
                                  rest.substr(0, std::min<std::size_t>(rest.find('>'), 64)),
                                  open_.back().name, open_.back().where.line));
    }
    FailXml(Here(), fmt::format("XML: {}", XML_ErrorString(error)),
            cut ? "the file ends early: was the dump cut?" : "");
  }

  SourcePtr source_;
  std::string_view text_;
  std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser_;
  std::vector<XmlElement> open_;
  XmlElement root_;
  std::string problem_;
  Location problem_where_;
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
    FailXml(where, fmt::format("<{}> without '{}'", name, attribute),
            "was the file changed by hand?");
  return *text;
}

double XmlElement::Number(std::string_view attribute, double min, double max) const {
  const std::string& text = Text(attribute);
  double value = 0;
  if (ParseNumber(text, &value) != NumberFault::kNone || !(value >= min && value <= max))
    FailXml(where, fmt::format("'{}' of <{}> is '{}'", attribute, name, text),
            fmt::format("a number from {:g} to {:g}", min, max));
  return value;
}

int XmlElement::Whole(std::string_view attribute, int min, int max) const {
  const double value = Number(attribute, min, max);
  if (value != static_cast<int>(value))
    FailXml(where, fmt::format("'{}' of <{}> is '{}'", attribute, name, Text(attribute)),
            "a whole number");
  return static_cast<int>(value);
}

int XmlElement::Whole(std::string_view attribute, int min, int max, int fallback) const {
  return Find(attribute) == nullptr ? fallback : Whole(attribute, min, max);
}

XmlElement ReadXml(const SourcePtr& source) { return XmlReader(source).Read(); }

}  // namespace orrery
