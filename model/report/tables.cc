// SPDX-License-Identifier: Apache-2.0
// Tables that several kinds of answers share.
#include <fmt/format.h>

#include "model/report/short_number.h"
#include "model/report/views.h"

namespace orrery::report {

std::vector<std::string> TextsIn(const Ref& array, const char* key) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < array.size(); ++i) {
    const std::string text = key == nullptr ? array[i].text() : array[i][key].text();
    if (!text.empty()) texts.push_back(text);
  }
  return texts;
}

std::string Listed(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) out += "<li>" + Escape(item) + "</li>";
  return out.empty() ? "" : "<ul>" + out + "</ul>\n";
}

namespace {

bool Differ(const Ref& rows, const char* key) {
  for (std::size_t i = 1; i < rows.size(); ++i)
    if (rows[i][key].json() != rows[0][key].json()) return true;
  return false;
}

}  // namespace

std::string NumbersInARow(const Ref& numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    out += (out.empty() ? "" : ", ") + numbers[i].json().dump();
  return out;
}

std::string RankedTable(const Ref& ranked) {
  std::string rows;
  bool priced = false, tied = false, shared = false;
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    priced |= ranked[i]["price_per_billion_tokens_usd"].is_number();
    tied |= ranked[i]["tie_with_first"].is_true();
    shared |= !ranked[i]["layers_by_stage"].empty();
  }
  // What all rows say stands once, above them.
  const bool nodes = Differ(ranked, "nodes"), batches = Differ(ranked, "global_batch");
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    const Ref row = ranked[i], memory = row["memory"], span = row["step_time_interval_s"];
    const bool ties = i == 0 ? tied : row["tie_with_first"].is_true();
    rows += fmt::format("<tr{}>", i == 0 ? " class=best" : "");
    rows +=
        NumberHead(fmt::format("{}{}", ties ? "= " : "", i + 1)) + TextCell(row["layout"].text()) +
        (nodes ? NumberCell(row["nodes"], row["nodes"].json().dump()) : "") +
        (batches ? NumberCell(row["global_batch"], row["global_batch"].json().dump()) : "") +
        NumberCell(row["step_time_s"], SecondsOf(row["step_time_s"]), span, SecondsSpanOf(span)) +
        NumberCell(row["tokens_per_s"], ScaledOf(row["tokens_per_s"])) +
        NumberCell(row["mfu"], PercentOf(row["mfu"])) +
        NumberCell(memory["total_bytes"], BytesOf(memory["total_bytes"]));
    if (shared) rows += NameCell(NumbersInARow(row["layers_by_stage"]));
    if (priced)
      rows += NumberCell(row["price_per_billion_tokens_usd"],
                         DollarsOf(row["price_per_billion_tokens_usd"].number()));
    rows += "</tr>\n";
  }
  std::vector<std::string> heads = {"", "layout"};
  if (nodes) heads.emplace_back("nodes");
  if (batches) heads.emplace_back("batch");
  heads.insert(heads.end(), {"step (80 % interval)", "tokens/s", "MFU", "memory"});
  if (shared) heads.push_back("layers by stage");
  if (priced) heads.push_back("per 1e9 tokens");
  std::string caption = "Ranked layouts";
  if (!nodes && ranked[0]["nodes"].is_number()) caption += ", " + NodesOf(ranked[0]["nodes"]);
  if (!batches && ranked[0]["global_batch"].is_number())
    caption += ", batch " + ranked[0]["global_batch"].json().dump();
  return HtmlTable(caption + (tied ? "; = tied with 1" : ""), heads, rows);
}

std::string NearestRuns(const Ref& runs) {
  std::string rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Ref run = runs[i];
    rows += Row(
        {TextCell(run["case"].text()),
         TextCell(run["topology"].text() + ", " + run["framework"].text()),
         NumberCell(run["nodes"], fmt::format("{:g}", run["nodes"].number())),
         NumberCell(run["measured_s"], SecondsOf(run["measured_s"])),
         NumberCell(run["predicted_s"], SecondsOf(run["predicted_s"])),
         NumberCell(run["distance_doublings"], ThreeDigits(run["distance_doublings"].number()))});
  }
  return HtmlTable(
      "Nearest published runs, predicted without their model's runs. Distance in doublings of "
      "scale and shape",
      {"run", "on", "nodes", "measured", "predicted", "distance"}, rows);
}

std::string Assumptions(const Ref& answer) {
  std::vector<std::string> items;
  const Ref defaults = answer["defaults"], facts = answer["facts"];
  for (std::size_t i = 0; i < defaults.size(); ++i) {
    const Ref one = defaults[i];
    items.push_back(fmt::format("{}{} ({})", one["what"].text(),
                                one["why"].text().empty() ? "" : ", " + one["why"].text(),
                                one["flag"].text()));
  }
  for (std::size_t i = 0; i < facts.size(); ++i)
    items.push_back(fmt::format("{}: {}", facts[i]["stated"].is_true() ? "stated" : "assumed",
                                facts[i]["what"].text()));
  for (const std::string& note : TextsIn(answer["notes"])) items.push_back("note: " + note);
  std::string out = Listed(items);
  const Ref profiles = answer["provenance"];
  std::string rows;
  for (std::size_t i = 0; i < profiles.size(); ++i) {
    const Ref one = profiles[i];
    rows += Row({TextCell(one["role"].text()), TextCell(one["profile"].text()),
                 NumberCell(one["constants"], one["constants"].json().dump()),
                 NumberCell(one["fitted"], one["fitted"].json().dump()),
                 TextCell(one["title"].text())});
  }
  return out + HtmlTable("Profiles", {"of", "profile", "constants", "fitted", "title"}, rows);
}

}  // namespace orrery::report
