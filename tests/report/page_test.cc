// SPDX-License-Identifier: Apache-2.0
// Text from users on a page: escaped, without folders, and nothing that loads.
#include "model/report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "model/report/figures.h"
#include "model/report/markup.h"

namespace orrery::report {
namespace {

using testing::HasSubstr;
using testing::Not;

Json Prediction(const std::string& name) {
  return Json::parse(R"({"schema": "orrery.predict/1", "topology": {"name": "t", "nodes": [1],
    "gpu": "g", "gpus_per_node": 2}, "workload": {"seq_len": 8, "precision": "bf16",
    "framework": "f"}, "prediction": {"layout": "tp 1", "step_time_s": 2, "step_time_interval_s":
    [1, 3], "tokens_per_s": 5, "mfu": 0.5, "breakdown": {"compute_s": 1.5, "bubble_s": 0.5}}})")
      .patch(Json::array(
          {{{"op", "add"}, {"path", "/model"}, {"value", {{"name", name}, {"parameters", 1e9}}}}}));
}

TEST(Page, EscapesWhatUsersName) {
  const std::string page = Page(Prediction("</title><script>alert('1')</script>&\"x\" onload=y"));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, HasSubstr("&lt;/title&gt;&lt;script&gt;alert(&#39;1&#39;)"));
}

// One layout that ties with the best, a near miss, nothing priced.
Json Search() {
  Json answer = Prediction("m");
  answer["schema"] = "orrery.plan/1";
  const Json one = answer["prediction"];
  answer["ranked"] = {one, one};
  answer["ranked"][1]["tie_with_first"] = true;
  answer["ranked"][0]["interval_from"] = "11 groups of runs";
  answer["remarks"] = {{"nearly_full", "Nearly full, not ranked: tp 2."},
                       {"ties", "Plans 1 and 2 are tied."}};
  answer["near_misses"] = {{{"words", "Near miss: tp 4."}}};
  answer["refinement"] = {{"remarks", {"The two engines agree within 0.1 %"}}};
  return answer;
}

// The step in the order of ranks that a search finds is the answer, not the one in the default order.
TEST(Page, LeadsWithThePlacementThatWasFound) {
  Json answer = Search();
  Json& placed = answer["ranked"][0]["placement"];
  placed = Json::parse(R"({"placement": "tp-cp-pp-dp", "layers": [7, 9], "step_time_s": 1.5,
    "step_time_interval_s": [1.25, 2.25], "default_step_time_s": 2, "gain": 0.25,
    "tokens_per_s": 6, "mfu": 0.625, "given": false, "engine": "event",
    "breakdown": {"compute_s": 1.2, "bubble_s": 0.3}})");
  std::string page = Page(answer);
  const std::string lead = page.substr(page.find("<p class=lead>"), 500);
  EXPECT_THAT(lead, HasSubstr("tp 1, --placement tp-cp-pp-dp, layers [7,9]: one step takes 1.50 s "
                              "(80 % of such runs: 1.25 s to 2.25 s), 6.00 tokens/s, 62.5 %"));
  EXPECT_THAT(lead, HasSubstr("In the default order of ranks it takes 2.00 s: placement saves "
                              "25.0 % of it, simulated."));
  EXPECT_THAT(page, HasSubstr("compute 80.0 %"));
  EXPECT_THAT(page, HasSubstr("data-p=\"/ranked/0/placement/breakdown/compute_s\""));
  answer["ranked"][1]["placement"] = placed;
  answer["placed"] = {{"order", {2, 1}}, {"words", "With placements, plans 1 and 2 rank 2, 1"}};
  EXPECT_THAT(Page(answer), HasSubstr("<p>With placements, plans 1 and 2 rank 2, 1.</p>"));
  placed["gain"] = 0;
  EXPECT_THAT(Page(answer), HasSubstr("tp 1: one step takes 2.00 s"));
  placed["gain"] = -0.25, placed["given"] = true;
  EXPECT_THAT(Page(answer), HasSubstr("the given order takes 25.0 % more, simulated."));
}

// Columns that say the same in each row took the room of the layouts.
TEST(Page, SaysOnceWhatAllRankedLayoutsShare) {
  Json answer = Search();
  for (Json& row : answer["ranked"]) row["nodes"] = 8, row["global_batch"] = 512;
  EXPECT_THAT(Page(answer), HasSubstr("Ranked layouts, 8 nodes, batch 512; = tied with 1"));
  EXPECT_THAT(Page(answer), Not(HasSubstr("data-p=\"/ranked/0/nodes\"")));
  answer["ranked"][1]["nodes"] = 4;
  EXPECT_THAT(Page(answer), HasSubstr("Ranked layouts, batch 512; = tied with 1"));
  EXPECT_THAT(Page(answer), HasSubstr("data-p=\"/ranked/0/nodes\" data-v=\"8\">8</td>"));
}

TEST(Page, LeavesFoldersOut) {
  EXPECT_EQ(Shown("/home/me/secret/model.yaml is new"), "model.yaml is new");
  EXPECT_EQ(Shown("read ../up/a.csv:2, ./b.yaml and ~/c/d.json"),
            "read a.csv:2, b.yaml and d.json");
  EXPECT_EQ(Shown("'/tmp/x y' (see=/etc/passwd)"), "'x y' (see=passwd)");
  EXPECT_EQ(Shown("tokens/s, 3 / 4, USD/h, https://example.org/a/b"),
            "tokens/s, 3 / 4, USD/h, https://example.org/a/b");
  EXPECT_THAT(Page(Prediction("/home/me/model")), Not(HasSubstr("/home/me")));
}

TEST(Page, ShowsTheRemarksOfASearch) {
  const std::string page = Page(Search());
  for (const char* words : {"Nearly full, not ranked: tp 2.", "Plans 1 and 2 are tied.",
                            "Near miss: tp 4.", "The two engines agree within 0.1 %",
                            "The interval comes from: 11 groups of runs.", ">= 1<", ">= 2<"})
    EXPECT_THAT(page, HasSubstr(words));
  EXPECT_THAT(page, Not(HasSubstr("per 1e9 tokens")));
  Json priced = Search();
  priced["ranked"][0]["price_per_billion_tokens_usd"] = 70;
  EXPECT_THAT(Page(priced), HasSubstr("per 1e9 tokens"));
}

TEST(Page, ShowsTheSentencesOfAComparison) {
  const Json part = {{"work", "collective"},      {"predicted_s", 1},
                     {"measured_s", 2},           {"difference_s", 1},
                     {"share_of_differences", 1}, {"constants", {"tensor_latency", "scaleup_use"}}};
  const Json answer = {{"schema", "orrery.compare/1"},
                       {"words", {"First.", "Second."}},
                       {"predicted", "/home/me/step.json"},
                       {"measured", "train.log"},
                       {"measured_steps", 4},
                       {"by_work", {part}}};
  const std::string page = Page(answer);
  EXPECT_THAT(page, HasSubstr("<p class=lead>First.</p>\n<p>Second.</p>"));
  EXPECT_THAT(page, HasSubstr("Predicted: step.json. Measured: train.log, 4 steps."));
  EXPECT_THAT(page, HasSubstr("kinds add up to more than the step"));
  EXPECT_THAT(page, HasSubstr("<td>tensor_latency, scaleup_use</td>"));
}

int CountOf(const std::string& text, const std::string& word) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST(Chart, HasTicksWhereAllMarksLieClose) {
  const Json answer = Json::parse(R"({"schema": "orrery.validate/1", "sources": [], "cases": [
    {"case": "a", "source": "s", "measured_step_s": 1.10, "predicted_step_s": 1.12, "interval_s": [1, 2]},
    {"case": "b", "source": "s", "measured_step_s": 1.15, "predicted_step_s": 1.18, "interval_s": [1, 2]},
    {"case": "c", "source": "s", "measured_step_s": null, "predicted_step_s": 1.2, "interval_s": [1, 2]}]})");
  const std::string page = Page(answer);
  EXPECT_GE(CountOf(page, "<line class=grid"), 6);
  EXPECT_THAT(page, HasSubstr("3 of 3 runs predicted; mean error 2.2 %"));
}

// A deadline of seconds lies at the left end of the axis, where the words stood on its dollars.
TEST(Chart, WordsOfALimitStayInTheFrame) {
  const Json answer = {{"day", 86400}, {"dollars", 100}, {"second", 1}};
  const Ref ref(answer);
  for (const char* deadline : {"second", "day"}) {
    Chart chart;
    chart.x = DaysAxis(ref[deadline]);
    chart.y = DollarsAxis(Ref::None());
    chart.marks = {{ref["day"], ref["dollars"], "", 0, false, Ref::None(), Ref::None()},
                   {ref["second"], ref["dollars"], "", 0, false, Ref::None(), Ref::None()}};
    const std::string drawn = DrawChart(chart);
    const std::string words =
        deadline == std::string("second")
            ? "text-anchor=start data-p=\"/second\" data-v=\"1\">deadline 1.00 s"
            : "text-anchor=end data-p=\"/day\" data-v=\"86400\">deadline 1.00 d";
    EXPECT_THAT(drawn, HasSubstr(words));
  }
}

TEST(Chart, NoTwoOfTwentyGroupsLookAlike) {
  Json answer = {{"schema", "orrery.validate/1"}, {"sources", Json::array()}};
  for (int i = 0; i < 20; ++i)
    answer["cases"].push_back({{"case", "c"},
                               {"source", "s" + std::to_string(i)},
                               {"measured_step_s", 1 + i},
                               {"predicted_step_s", 1 + i},
                               {"interval_s", {1, 2}}});
  const std::string page = Page(answer), key = "<li><svg aria-hidden=true viewBox=\"-7 -7 14 14\">";
  std::set<std::string> looks;
  for (std::size_t at = 0; (at = page.find(key, at)) != std::string::npos; ++at)
    looks.insert(page.substr(at, page.find("</svg>", at) - at));
  EXPECT_EQ(looks.size(), 20u);
}

TEST(Timeline, SaysWhatItDoesNotDraw) {
  Json answer = Prediction("m");
  answer["timeline"] = Json::parse(R"({"seconds": 1.9, "stages": 1, "joined": 0, "lanes": [{"stage":
    0, "rank": 0, "stream": "compute", "compute": true, "spans": [{"start_s": 0, "end_s": 1.9,
    "name": "mm", "phase": "forward", "micro_batch": 0, "passes": 1, "busy_s": 1.9}]}]})");
  EXPECT_THAT(Page(answer), Not(HasSubstr("Not drawn")));
  answer["prediction"]["breakdown"]["fixed_s"] = 0.1;
  EXPECT_THAT(Page(answer), HasSubstr("Not drawn: fixed costs, 100 ms of 2.00 s."));
  EXPECT_THAT(Page(answer), Not(HasSubstr("Simulated for this figure")));
  answer["prediction"]["engine"] = "closed";
  EXPECT_THAT(Page(answer), HasSubstr("Simulated for this figure"));
}

std::string ClassIn(const std::string& page, const std::string& pointer) {
  static const std::regex kClass("class=(c[0-9]+)");
  const std::size_t at = page.find("data-p=\"" + pointer + "\"");
  EXPECT_NE(at, std::string::npos) << pointer;
  const std::size_t tag = page.rfind('<', at);
  std::smatch match;
  const std::string text = page.substr(tag, at - tag);
  return std::regex_search(text, match, kClass) ? match[1].str() : "none";
}

// The red of the bubble was that of the reductions of gradients, too.
TEST(Timeline, HasTheColoursOfTheBreakdown) {
  Json answer = Prediction("m");
  Json& terms = answer["prediction"]["breakdown"];
  terms["data_exposed_s"] = terms["pipeline_exposed_s"] = terms["optimizer_s"] = 0.1;
  const std::map<std::string, std::string> same = {{"forward", "compute_s"},
                                                   {"grad_reduce", "data_exposed_s"},
                                                   {"pipeline", "pipeline_exposed_s"},
                                                   {"optimizer", "optimizer_s"},
                                                   {"grad_norm", "optimizer_s"}};
  const std::vector<std::string> own = {"backward", "weight_grad",  "recompute", "mixed",
                                        "setup",    "param_gather", "input"};
  Json spans = Json::array();
  std::vector<std::string> phases = own;
  for (const auto& [phase, term] : same) phases.push_back(phase);
  for (const std::string& phase : phases)
    spans.push_back({{"start_s", 0}, {"end_s", 1}, {"name", "x"}, {"phase", phase}, {"busy_s", 1}});
  answer["timeline"] = {{"seconds", 2}, {"stages", 1}, {"joined", 0}};
  answer["timeline"]["lanes"].push_back({{"stage", 0}, {"compute", true}, {"spans", spans}});
  const std::string page = Page(answer);
  std::set<std::string> of_terms, of_phases;
  for (const auto& [term, value] : terms.items())
    of_terms.insert(ClassIn(page, "/prediction/breakdown/" + term));
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const std::string span = "/timeline/lanes/0/spans/" + std::to_string(i);
    if (const auto term = same.find(phases[i]); term != same.end()) {
      EXPECT_EQ(ClassIn(page, span), ClassIn(page, "/prediction/breakdown/" + term->second))
          << phases[i];
      continue;
    }
    EXPECT_FALSE(of_terms.contains(ClassIn(page, span))) << phases[i];
    EXPECT_TRUE(of_phases.insert(ClassIn(page, span)).second) << phases[i];
  }
}

TEST(MemoryOverTime, HasRoundTicksAndNamesTheLimit) {
  Json answer = Prediction("m");
  const double gib = 1024. * 1024 * 1024;
  answer["prediction"]["memory"] = {{"capacity_bytes", 79.1 * gib}};
  answer["memory_over_time"] = Json::array();
  answer["memory_over_time"].push_back(
      {{"stage", 0},
       {"rank", 0},
       {"seconds", 2},
       {"peak_at_s", 1},
       {"peak_bytes", 60 * gib},
       {"time_s", {0, 1}},
       {"total_bytes", {1, 60 * gib}},
       {"series", Json::array({{{"name", "x"}, {"bytes", {1, 60 * gib}}}})}});
  const std::string page = Page(answer);
  EXPECT_THAT(page, HasSubstr("<span>100 GiB</span><span>80.0 GiB</span><span>60.0 GiB</span>"));
  EXPECT_THAT(page, HasSubstr("Dashed: the 79.1 GiB of the GPU."));
}

Json ClusterOf(int nodes, int nics) {
  Json cluster = {{"nodes", nodes}, {"nodes_shown", Json::array()}, {"links", Json::array()}};
  const auto device = [&](const std::string& name, const char* kind, int node) {
    cluster["devices"].push_back({{"name", name}, {"kind", kind}, {"node", node}});
  };
  for (int n = 0; n < nodes; ++n) {
    const std::string at = "n" + std::to_string(n) + ".";
    cluster["nodes_shown"].push_back(n);
    for (int i = 0; i < 8; ++i) device(at + "gpu" + std::to_string(i), "GPU", n);
    device(at + "host0", "host", n);
    for (int i = 0; i < nics; ++i) device(at + "nic" + std::to_string(i), "NIC", n);
  }
  device("leaf0", "switch", -1);
  cluster["links"].push_back({{"from", "n0.nic0"}, {"to", "leaf0"}, {"bytes", 5}, {"busy", 0.5}});
  return cluster;
}

// viewBox of the drawing, and the middle line of each device.
std::pair<double, std::map<std::string, std::pair<double, double>>> Drawn(const std::string& page) {
  static const std::regex kBox("viewBox=\"-8 -8 ([0-9]+) ([0-9]+)\""),
      kDevice("text x=([0-9]+) y=([0-9]+) [^<]*<[^<]*<title>([^,]*),");
  std::smatch box;
  std::regex_search(page, box, kBox);
  std::map<std::string, std::pair<double, double>> devices;
  for (std::sregex_iterator at(page.begin(), page.end(), kDevice), end; at != end; ++at)
    devices[(*at)[3]] = {std::stod((*at)[1]), std::stod((*at)[2])};
  return {std::stod(box[1]), devices};
}

// Wider than this a screen has to scroll, and A4 shows letters that nobody reads.
TEST(Cluster, ANodeOfManyNicsIsNoWiderThanAPage) {
  constexpr double kReadable = 850;
  for (const auto& [nodes, nics] : {std::pair{3, 32}, {4, 4}, {20, 1}, {1, 72}}) {
    Json answer = Prediction("m");
    answer["cluster"] = ClusterOf(nodes, nics);
    const std::string page = Page(answer);
    const auto& [width, devices] = Drawn(page);
    EXPECT_LE(width, kReadable) << nodes << " x " << nics;
    EXPECT_EQ(devices.size(), static_cast<std::size_t>(nodes * (9 + nics) + 1));
    std::set<std::pair<double, double>> places;
    for (const auto& [name, place] : devices) {
      EXPECT_GE(place.first, 0);
      EXPECT_LE(place.first, width);
      EXPECT_TRUE(places.insert(place).second) << name << " stands on another";
    }
    // A style of its own would win over the rule for paper.
    EXPECT_THAT(page, Not(HasSubstr("style=\"min-width")));
  }
}

// "spine10" had a box over its neighbours', in one row with the leaves.
TEST(Cluster, NamesOfTheFabricDoNotOverlapAndLevelsHaveTheirRows) {
  Json answer = Prediction("m");
  answer["cluster"] = ClusterOf(1, 8);
  for (int i = 1; i < 24; ++i)
    answer["cluster"]["devices"].push_back(
        {{"name", (i < 8 ? "leaf" : "spine") + std::to_string(i < 8 ? i : i - 8)},
         {"kind", "switch"},
         {"node", -1}});
  const std::string page = Page(answer);
  static const std::regex kBox("class=device x=([-0-9]+) y=([-0-9]+) width=([0-9]+)[^>]*>");
  std::map<double, std::map<double, double>> rows;  // y -> x -> end
  for (std::sregex_iterator at(page.begin(), page.end(), kBox), end; at != end; ++at) {
    const double x = std::stod((*at)[1]);
    rows[std::stod((*at)[2])][x] = x + std::stod((*at)[3]);
  }
  for (const auto& [y, boxes] : rows) {
    double last = -INFINITY;
    for (const auto& [x, end] : boxes) {
      EXPECT_GE(x, last) << "in the row at " << y;
      last = end;
    }
  }
  const auto devices = Drawn(page).second;
  EXPECT_EQ(devices.at("leaf0").second, devices.at("leaf7").second);
  EXPECT_GT(devices.at("spine0").second, devices.at("leaf7").second);
}

TEST(Cluster, TheFabricStandsBetweenTwoRowsOfNodes) {
  Json answer = Prediction("m");
  answer["cluster"] = ClusterOf(4, 4);
  const auto devices = Drawn(Page(answer)).second;
  const double fabric = devices.at("leaf0").second;
  EXPECT_LT(devices.at("n0.nic0").second, fabric);
  EXPECT_GT(devices.at("n3.nic0").second, fabric);
  // NICs look to the fabric from both sides.
  EXPECT_LT(devices.at("n0.gpu0").second, devices.at("n0.nic0").second);
  EXPECT_GT(devices.at("n3.gpu0").second, devices.at("n3.nic0").second);
}

Json TrainingRun() {
  return Json::parse(
      R"({"schema": "orrery.run/1", "name": "m", "ranks": 1, "step_time_s": {"median": 1},
    "steps": [{"step": 1, "seconds": 90, "loss": 10.9776}, {"step": 2, "seconds": 1, "loss": 10.9933}],
    "breakdown": {"compute_s": 1.25, "bubble_s": 0.25}})");
}

TEST(Run, SaysLossesInDigitsThatDiffer) {
  EXPECT_THAT(Page(TrainingRun()), HasSubstr("loss 10.978 to 10.993."));
}

// Means over steps may come to more than the median step.
TEST(Run, ItsBarStaysInItsTrack) {
  const std::string page = Page(TrainingRun());
  EXPECT_THAT(page, HasSubstr("width=\"833.333\" height=20 class=c0"));
  EXPECT_THAT(page, Not(HasSubstr("on the GPU that computes longest")));
}

// The first step may take a thousand times as long: the others would lie on the axis.
TEST(Run, StepsThatAreFarApartStandOnALogarithmicAxis) {
  EXPECT_THAT(Page(TrainingRun()), HasSubstr(">10.0 s</text>"));
  Json even = TrainingRun();
  even["steps"][0]["seconds"] = 2;
  EXPECT_THAT(Page(even), HasSubstr(">0 s</text>"));
}

// A line of the colour of an area would be lost on it.
// Bars of tensors end below the total of the words: the page says what lies between.
TEST(Memory, SaysWhatFrameworkAndAllocatorAdd) {
  Json answer = Prediction("m");
  answer["prediction"]["memory"] = Json::parse(R"({"fits": true, "verdict": "fits: it does",
    "fullest_stage": 1, "total_bytes": 3e9, "capacity_bytes": 4e9, "context_bytes": 5e8,
    "fragmentation_bytes": 2e8, "loss_copies_bytes": 0, "stages": [
    {"stage": 0, "live_peak_bytes": 1e9, "live_at_peak": {"weights_bytes": 1e9, "scalars_bytes": 0}},
    {"stage": 1, "live_peak_bytes": 2e9, "live_at_peak": {"weights_bytes": 2e9, "scalars_bytes": 0}}
    ]})");
  const std::string page = Page(answer);
  EXPECT_THAT(page, HasSubstr("With what framework and allocator add, stage 1 needs 2.79 GiB."));
  EXPECT_THAT(page, HasSubstr("What fills a GPU of stage 1"));
  EXPECT_THAT(page, HasSubstr("<td>framework context and communication buffers</td>"));
  EXPECT_THAT(page, HasSubstr("data-p=\"/prediction/memory/total_bytes\""));
  EXPECT_THAT(page, Not(HasSubstr("logits copies")));
  EXPECT_EQ(CountOf(page, "fits: it does"), 1);
  EXPECT_EQ(CountOf(page, "</svg>scalars</li>"), 0);  // of none there is no colour to look for
  answer["prediction"]["memory"]["fits"] = false;
  EXPECT_EQ(CountOf(Page(answer), "fits: it does"), 1);
}

TEST(MemoryOverTime, ItsLimitIsSeenOnEveryArea) {
  Json answer = Prediction("m");
  answer["prediction"]["memory"] = {{"capacity_bytes", 10}};
  answer["memory_over_time"] = Json::parse(R"([{"stage": 0, "rank": 0, "seconds": 2, "peak_at_s": 1,
    "peak_bytes": 20, "time_s": [0, 1], "total_bytes": [20, 20], "series": [{"name": "x", "bytes": [20, 20]}]}])");
  const std::string page = Page(answer);
  EXPECT_LT(page.find("<line class=under"), page.find("<line class=limit"));
}

TEST(Validation, APageOfVeryManyRunsStaysSmall) {
  Json answer = {{"schema", "orrery.validate/1"}, {"sources", Json::array()}};
  for (int i = 0; i < 30'000; ++i)
    answer["cases"].push_back({{"case", "run-of-some-length-" + std::to_string(i)},
                               {"source", "s"},
                               {"measured_step_s", 1.0 + i / 7.0},
                               {"predicted_step_s", 1.1 + i / 7.0},
                               {"interval_s", {0.9 + i / 7.0, 1.2 + i / 7.0}}});
  const std::string page = Page(answer);
  EXPECT_LT(page.size(), 2'000'000u);
  EXPECT_THAT(page, HasSubstr("One mark for one run in 15, by source."));
}

TEST(Page, SurvivesBytesThatAreNoText) {
  EXPECT_THAT(Page(Prediction("a\xff\x01z")), HasSubstr("a\xEF\xBF\xBD z"));
}

TEST(Page, LoadsNothing) {
  const std::string page = Page(Prediction("m"));
  for (const char* word : {"http:", "https:", "src=", "url(", "@import", "<link", "<iframe"})
    EXPECT_THAT(page, Not(HasSubstr(word)));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

TEST(Page, SaysAnUnknownAnswerInsteadOfFailing) {
  EXPECT_THAT(Page(Json{{"schema", "orrery.other/1"}}), HasSubstr("<h1>Answer</h1>"));
  EXPECT_THAT(Page(Json::object()), HasSubstr("</html>"));
}

TEST(Ref, KnowsItsPlace) {
  const Json json = {{"a/b", {1, {{"~c", 2.5}}}}};
  const Ref place = Ref(json)["a/b"][1]["~c"];
  EXPECT_EQ(place.pointer(), "/a~1b/1/~0c");
  EXPECT_EQ(json.at(Json::json_pointer(place.pointer())), 2.5);
  EXPECT_TRUE(Ref(json)["no"]["such"][3].empty());
}

}  // namespace
}  // namespace orrery::report
