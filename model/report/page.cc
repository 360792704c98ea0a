// SPDX-License-Identifier: Apache-2.0
// Puts the page together.
#include "model/report/page.h"

#include <fmt/format.h>

#include <regex>

#include "model/report/style.h"
#include "model/report/views.h"

namespace orrery::report {
namespace {

std::string SectionsOf(const Ref& answer) {
  const std::string schema = answer["schema"].text();
  const auto is = [&](const char* name) { return schema.starts_with(name); };
  if (is("orrery.predict/") || is("orrery.simulate/"))
    return PredictionSections(answer, answer["prediction"]);
  if (is("orrery.plan/")) return SearchSections(answer);
  if (is("orrery.plans/")) return SeveralSections(answer);
  if (is("orrery.provision/")) return ProvisionSections(answer);
  if (is("orrery.published-goodput/")) return PublishedSections(answer);
  if (is("orrery.run/")) return RunSections(answer);
  if (is("orrery.compare/")) return ComparisonSections(answer);
  if (is("orrery.validate/")) return ValidationSections(answer);
  return "";
}

// Of the headings of the sections.
std::string Contents(const std::string& sections) {
  static const std::regex kHeading("<h2 id=([a-z0-9-]+)-h>([^<]*)</h2>");
  std::string items;
  for (std::sregex_iterator at(sections.begin(), sections.end(), kHeading), end; at != end; ++at)
    items += fmt::format("<li><a href=\"#{}\">{}</a></li>", (*at)[1].str(), (*at)[2].str());
  return items.empty() ? "" : "<nav aria-label=contents><ul>" + items + "</ul></nav>\n";
}

}  // namespace

std::string Page(const nlohmann::ordered_json& answer) {
  // As --json prints it: names from user files may hold bytes that are no UTF-8.
  const Json printed = Json::parse(answer.dump(-1, ' ', false, Json::error_handler_t::replace));
  const Ref ref(printed);
  const std::string title = Escape(TitleOf(ref)), sections = SectionsOf(ref);
  std::string footer =
      "Orrery. Predictions, not promises; every number of a figure stands in the JSON of the "
      "same command, with --json next to --html.";
  if (const std::string digest = ref["digest"].text(); !digest.empty())
    footer += " Plan " + Escape(digest) + ".";
  return fmt::format(
      "<!doctype html>\n<html "
      "lang=en>\n<head>\n{}<title>{}</title>\n</head>\n<body>\n<header><h1>{}</h1>\n"
      "{}</header>\n<main>\n<section id=answer aria-label=\"the answer in "
      "words\">\n{}</section>\n{}</main>\n"
      "<footer class=muted><p>{}</p></footer>\n{}</body>\n</html>\n",
      Head(), title, title, Contents(sections), WordsOf(ref), sections, footer, Script());
}

}  // namespace orrery::report
