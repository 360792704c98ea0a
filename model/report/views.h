// SPDX-License-Identifier: Apache-2.0
// What the page says of each kind of answer.
#pragma once

#include <string>
#include <vector>

#include "model/report/markup.h"

namespace orrery::report {

// words.cc: the answer in a few sentences, as HTML paragraphs; the first is the lead.

std::string TitleOf(const Ref& answer);
std::string WordsOf(const Ref& answer);
// "Most of it is compute (79.9 %), then pipeline bubble (8.1 %)."
std::string BreakdownWords(const Ref& breakdown);
std::string Paragraph(std::string_view text, bool lead = false);
std::string Counted(double number, const std::string& noun);  // "2 nodes"
std::string ProvisionWords(const Ref& answer);                // provision_words.cc
// A ranked layout, with its nodes and batch where the search of `answer` had a choice of them.
std::string FoundWords(const Ref& answer, const Ref& row);
// "placement" of a layout: its ranks are not in the default order, or its layers not in the default split.
bool IsMoved(const Ref& placement);
std::string PlacementFlags(const Ref& placement);  // "--placement tp-cp-pp-dp, layers [7,9]"
// "within 30.0 d, at most 500 kUSD": deadline_s and budget_usd of it; "": there are none.
std::string LimitsOf(const Ref& asked);

// tables.cc

std::string RankedTable(const Ref& ranked);
std::string NearestRuns(const Ref& runs);
std::string Assumptions(const Ref& answer);  // defaults, facts, notes, profiles
std::string Listed(const std::vector<std::string>& items);
// The word of each element, or its member `key`.
std::vector<std::string> TextsIn(const Ref& array, const char* key = nullptr);
std::string NumbersInARow(const Ref& numbers);  // "15, 16, 5, 4"

// answer_view.cc: sections of a layout, a search, several topologies.

// Timeline, memory over time and cluster, which --html adds to answers about one step; `of`: behind the titles.
std::string PictureSections(const Ref& answer, const Ref& prediction, const std::string& of);
std::string PredictionSections(const Ref& answer, const Ref& prediction);
std::string SearchSections(const Ref& answer);
std::string SeveralSections(const Ref& answer);  // of several topologies

// measured_view.cc: sections of a run, a comparison, a validation.

std::string RunSections(const Ref& answer);
std::string ComparisonSections(const Ref& answer);
std::string ValidationSections(const Ref& answer);

// provision_view.cc

std::string ProvisionSections(const Ref& answer);
std::string PublishedSections(const Ref& answer);

}  // namespace orrery::report
