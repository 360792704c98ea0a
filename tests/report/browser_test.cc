// SPDX-License-Identifier: Apache-2.0
// Pages in Debian's headless Chromium: says nothing in the console, can be used with the keyboard and on a
// phone, names what it draws, and prints. Skipped where the package chromium is missing.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

// Runs in the page after it has loaded; its result becomes the title.
constexpr const char* kProbe = R"js(
<script>addEventListener('load',function(){setTimeout(function(){
 var r={wrong:[]},q=function(s){return Array.from(document.querySelectorAll(s));};
 r.load_ms=performance.getEntriesByType('navigation')[0].loadEventEnd;
 r.requests=performance.getEntriesByType('resource').length;
 r.overflow=document.documentElement.scrollWidth-document.documentElement.clientWidth;
 r.width=document.documentElement.clientWidth;r.paper=document.documentElement.className.indexOf('paper')>=0;
 var ids={};q('[id]').forEach(function(e){if(ids[e.id])r.wrong.push('twice: '+e.id);ids[e.id]=1;});
 q('svg:not([aria-hidden=true])').forEach(function(e){if(e.getAttribute('role')!='img'||!e.getAttribute('aria-label'))r.wrong.push('svg without a name');});
 q('button').forEach(function(e){if(!(e.getAttribute('aria-label')||e.textContent).trim())r.wrong.push('button without a name');
  var b=e.getBoundingClientRect();if(b.width&&(b.width<24||b.height<24))r.wrong.push('small button');});
 q('[role=region],[role=group]').forEach(function(e){if(!e.getAttribute('aria-label'))r.wrong.push('region without a name');});
 q('[aria-labelledby]').forEach(function(e){if(!document.getElementById(e.getAttribute('aria-labelledby')))r.wrong.push('label is gone');});
 q('nav a').forEach(function(e){if(!document.querySelector(e.getAttribute('href')))r.wrong.push('link to nothing');});
 q('table').forEach(function(e){if(!e.caption)r.wrong.push('table without a caption');});
 if(q('h1').length!=1||!document.documentElement.lang||!q('main').length)r.wrong.push('outline');
 q('svg text').forEach(function(e){var b=e.getBoundingClientRect(),s=e.ownerSVGElement.getBoundingClientRect();
  if(b.left<s.left-1||b.right>s.right+1||b.bottom>s.bottom+1)r.wrong.push('text leaves its drawing: '+e.textContent);});
 function lum(c){var v=c.match(/[\d.]+/g).slice(0,3).map(function(x){x/=255;return x<=.04045?x/12.92:Math.pow((x+.055)/1.055,2.4);});
  return .2126*v[0]+.7152*v[1]+.0722*v[2];}
 function ground(e){for(;e;e=e.parentElement){var c=getComputedStyle(e).backgroundColor;if(c&&c!='rgba(0, 0, 0, 0)')return c;}return 'rgb(255, 255, 255)';}
 r.texts=0;q('h1,h2,h3,p,li,th,td,a,caption,figcaption,summary,span,div.v,svg text').forEach(function(e){
  if(!e.textContent.trim())return;var s=getComputedStyle(e),a=lum(e.tagName=='text'?s.fill:s.color),b=lum(ground(e));++r.texts;
  if((Math.max(a,b)+.05)/(Math.min(a,b)+.05)<4.5)r.wrong.push('contrast of '+e.tagName+' '+e.textContent.slice(0,20));});
 function rgb(c){return c.match(/[\d.]+/g).map(Number);}
 function over(c,o,g){var a=(c.length>3?c[3]:1)*o;return 'rgb('+[0,1,2].map(function(i){return a*c[i]+(1-a)*g[i];})+')';}
 function far(c,o,g){if(c=='none')return 1;var a=lum(over(rgb(c),o,rgb(g))),b=lum(g);return (Math.max(a,b)+.05)/(Math.min(a,b)+.05);}
 r.marks=0;q('svg path,svg rect,svg line').forEach(function(e){if(/grid|track|under/.test(e.getAttribute('class')))return;
  var o=1,s=getComputedStyle(e),g=ground(e.ownerSVGElement);for(var p=e;p;p=p.parentElement)o*=getComputedStyle(p).opacity;++r.marks;
  if(Math.max(far(s.fill,o*s.fillOpacity,g),far(s.stroke,o*s.strokeOpacity,g))<3)r.wrong.push('faint '+e.tagName+' '+e.getAttribute('class'));});
 if(r.width>=700)q('.chart').forEach(function(e){if(e.clientWidth&&e.scrollWidth>e.clientWidth+1)r.wrong.push('cut: '+e.getAttribute('aria-label'));});
 if(r.width>=1200||r.paper)q('.scroll').forEach(function(e){if(e.clientWidth&&e.scrollWidth>e.clientWidth+1)r.wrong.push('cut: '+e.getAttribute('aria-label'));});
 if(r.width>=1000)q('#ranking th').forEach(function(e){if(e.textContent=='layout'&&/^Ranked/.test(e.closest('table').caption.textContent)&&e.clientWidth<220)r.wrong.push('squeezed: '+e.clientWidth+' px of layouts');});
 var z=document.querySelector('svg.zoomed');
 if(z){var before=z.getAttribute('viewBox'),key=function(k){z.dispatchEvent(new KeyboardEvent('keydown',{key:k,bubbles:true,cancelable:true}));};
  key('+');r.zoomed=z.getAttribute('viewBox')!=before;r.axis=z.parentElement.querySelector('.axis span').textContent;
  key('0');r.back=z.getAttribute('viewBox').split(' ')[2]==before.split(' ')[2];
  document.querySelector('[data-key="+"]').click();r.clicked=z.getAttribute('viewBox')!=before;key('0');}
 document.title='probe '+JSON.stringify(r);if(parent!==window)parent.postMessage(document.title,'*');},0);});</script>
)js";

// Chromium's windows are at least 500 pixels wide: a phone is a frame in one, and so is a sheet of paper. One browser shows all
// frames, one after the other: to start one takes longer than to look at a page.
constexpr int kDesk = 1200, kWindow = 1000, kPhone = 360,
              kPaper = 718;  // A4 between Chromium's margins
constexpr const char* kFrames =
    "<!doctype html><title>frames</title><body style='margin:0'><script>"
    "var views={},said=[];"
    "function next(){{if(said.length==views.length){{document.title='probe "
    "'+JSON.stringify(said);return;}}"
    "document.title='no answer of '+views[said.length][0];"
    "var "
    "f=document.createElement('iframe');f.style='border:0;height:780px;width:'+views[said.length]["
    "1]+'px';"
    "f.src=views[said.length][0];document.body.replaceChildren(f);}}"
    "onmessage=function(e){{said.push(JSON.parse(e.data.slice(6)));next();}};next();</script></"
    "body>";

std::string Chromium() {
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser"}) {
    if (fs::exists(path)) return path;
  }
  return "";
}

struct Seen {
  json probe;
  std::string console;
};

// Everything of the browser stays in the test's folder.
std::string CommandLine(const std::string& flags, const std::string& page) {
  return fmt::format(
      "HOME={0} timeout 600 {1} --headless --no-sandbox --disable-gpu --hide-scrollbars "
      "--user-data-dir={0}/browser --enable-logging=stderr {2} file://{3} 2>{0}/console",
      ScratchFolder(), Chromium(), flags, page);
}

std::string Probed(const std::string& page, int width) {
  std::string html = ReadText(page);
  if (width == kPaper) {  // the rules for paper apply
    const std::string_view screen = "@media screen", print = "@media print";
    for (std::size_t at; (at = html.find(screen)) != std::string::npos;)
      html.replace(at, screen.size(), "@media speech");
    const std::size_t at = html.find(print);
    EXPECT_NE(at, std::string::npos);
    html.replace(at, print.size(), "@media all")
        .replace(html.find("<html"), 5, "<html class=paper");
    for (std::size_t folded = 0; (folded = html.find("<details>", folded)) != std::string::npos;)
      html.replace(folded, 9, "<details open>");
  }
  html.insert(html.rfind("</body>"), kProbe);
  const std::string probed =
      fmt::format("{}-{}.probed.html", page.substr(0, page.rfind('.')), width);
  WriteText(probed, html);
  return probed;
}

// What the title of a page says when it has been looked at, and the console.
Seen Titled(const std::string& command) {
  const Outcome outcome = RunShell(command);
  const std::size_t at = outcome.out.find("<title>probe ");
  if (at == std::string::npos) {
    const std::size_t title = outcome.out.find("<title>");
    return {json(), outcome.out.substr(std::min(title, outcome.out.size()), 200) +
                        ReadText(ScratchFolder() + "/console")};
  }
  const std::size_t begin = at + std::string_view("<title>probe ").size();
  std::string said = outcome.out.substr(begin, outcome.out.find("</title>", begin) - begin);
  for (std::size_t amp; (amp = said.find("&amp;")) != std::string::npos;) said.replace(amp, 5, "&");
  std::string console;
  std::istringstream lines(ReadText(ScratchFolder() + "/console"));
  for (std::string line; std::getline(lines, line);) {
    if (line.find("CONSOLE") != std::string::npos) console += line + "\n";
  }
  return {json::parse(said, nullptr, false), console};
}

// In a window of its own: the clock is that of the wall.
Seen Look(const std::string& page, const std::string& flags) {
  return Titled(CommandLine(flags + " --dump-dom", Probed(page, 0)));
}

// An answer of each page at each width, in that order.
Seen LookAtAll(const std::vector<std::string>& pages, const std::vector<int>& widths,
               const std::string& flags) {
  json views = json::array();
  for (const std::string& page : pages) {
    for (const int width : widths) views.push_back({"file://" + Probed(page, width), width});
  }
  const std::string frames = ScratchFolder() + "/frames.html";
  WriteText(frames, fmt::format(kFrames, views.dump()));
  // A frame answers behind the load of its page; on this clock no time is measured.
  return Titled(CommandLine(flags + " --virtual-time-budget=600000 --dump-dom", frames));
}

constexpr std::uintmax_t kMostBytes = 2'000'000;
constexpr double kMostMilliseconds = 1000;

class InTheBrowser : public testing::Test {
 protected:
  void SetUp() override {
    if (Chromium().empty()) GTEST_SKIP() << "needs the Debian package chromium";
    const std::string empty = ScratchFolder() + "/empty.html";
    WriteText(empty, "<title>probe</title>");
    if (RunShell(CommandLine("--dump-dom", empty)).out.find("probe") == std::string::npos)
      GTEST_SKIP() << "Chromium shows no page here: " << ReadText(ScratchFolder() + "/console");
  }

  // A page of each command; the first has the most on it, the second the most marks.
  static std::vector<std::string> Pages() {
    static const std::vector<std::string> pages = [] {
      const std::vector<std::string> tiny = {"--model", "linear-20-1", "--global-batch",
                                             "8",       "--dp",        "2"};
      const std::string measured = ScratchFolder() + "/run.json",
                        predicted = ScratchFolder() + "/simulate.json",
                        runs = std::string(ORRERY_SOURCE_DIR) + "/calib/data/published_runs.csv";
      const std::vector<std::vector<std::string>> commands = {
          {"--model", "llama2-7b", "--topology", "aws-p4d", "--nodes", "4", "--pp", "4"},
          {"predict", "--model", "gpt3-175b", "--topology", "dgx-h100", "--nodes", "64", "--tp",
           "8", "--pp", "16", "--vpp", "6", "--global-batch", "1024"},
          {"provision", "--model", "gpt2-xl", "--tokens", "30B", "--offers", "aws-p4d,nebius",
           "--nodes", "1..8"},
          With(With({"simulate"}, tiny),
               {"--topology", "localhost", "--gpus-per-node", "2", "--precision", "fp32",
                "--framework", "orrery", "--json", predicted}),
          With(With({"run"}, tiny), {"--comm", "local", "--steps", "2", "--json", measured}),
          {"compare", predicted, measured},
          {"validate", runs},
          {"--model", "gpt2-xl", "--topology", "aws-p4d,dgx-h100", "--nodes", "1,2", "--tokens",
           "30B", "--deadline", "3d", "--budget", "5kUSD"},
          {"provision", "--published"},
          {"provision", "--model", "llama3-8b", "--tokens", "2T", "--deadline", "30d", "--budget",
           "500kUSD"},
          // 32 NICs a node.
          {"predict", "--model", "gpt2-xl", "--topology", "aws-p5", "--nodes", "3",
           "--global-batch", "768"}};
      std::vector<std::string> all;
      for (const std::vector<std::string>& words : commands) {
        all.push_back(fmt::format("{}/page{}.html", ScratchFolder(), all.size()));
        const Outcome outcome = RunPlan(With(words, {"--html", all.back()}));
        EXPECT_TRUE(outcome.code == 0 || outcome.code == 4) << words.front() << outcome.err;
      }
      return all;
    }();
    return pages;
  }
};

TEST_F(InTheBrowser, NothingIsWrongInLightAndDarkOnAPhoneAndOnPaper) {
  const std::vector<int> widths = {kDesk, kWindow, kPhone, kPaper};
  for (const std::string look :
       {"--window-size=1300,900",
        "--window-size=1300,900 --blink-settings=preferredColorScheme=0"}) {
    const Seen seen = LookAtAll(Pages(), widths, look);
    ASSERT_EQ(seen.probe.size(), Pages().size() * widths.size()) << look << seen.console;
    EXPECT_EQ(seen.console, "") << look;
    for (std::size_t i = 0; i < seen.probe.size(); ++i) {
      const json& probe = seen.probe[i];
      const std::string where =
          fmt::format("{} {} px {}", Pages()[i / widths.size()], widths[i % widths.size()], look);
      EXPECT_EQ(probe["wrong"], json::array()) << where;
      EXPECT_EQ(probe["requests"], 0) << where;
      EXPECT_LE(probe["overflow"].get<int>(), 0) << where;
      EXPECT_EQ(probe["width"], widths[i % widths.size()]) << where;
      EXPECT_GT(probe["texts"].get<int>(), 5) << where;
    }
  }
}

TEST_F(InTheBrowser, PagesAreSmallAndLoadWithinASecond) {
  for (const std::string& page : Pages()) {
    EXPECT_LE(fs::file_size(page), kMostBytes) << page;
    Seen seen;
    double load = 2 * kMostMilliseconds;
    // Other programs may take the cores for a while.
    for (int i = 0; i < 5 && load > kMostMilliseconds; ++i) {
      seen = Look(page, "--window-size=1200,900");
      ASSERT_TRUE(seen.probe.is_object()) << page << seen.console;
      load = seen.probe["load_ms"].get<double>();
    }
    EXPECT_LE(load, kMostMilliseconds) << page;
    EXPECT_EQ(seen.console, "") << page;
    EXPECT_EQ(seen.probe["wrong"], json::array()) << page;
    std::printf("%s: loaded in %.0f ms\n", page.c_str(), load);
  }
}

TEST_F(InTheBrowser, TheTimelineZoomsByKeyAndButton) {
  const json probe = Look(Pages()[0], "--window-size=1100,900").probe;
  ASSERT_TRUE(probe.is_object());
  EXPECT_TRUE(probe["zoomed"]);
  EXPECT_TRUE(probe["back"]);
  EXPECT_TRUE(probe["clicked"]);
  EXPECT_THAT(probe["axis"].get<std::string>(), HasSubstr("from "));
}

// Sheets of a PDF that Chromium wrote.
int PagesOf(const std::string& paper) {
  const std::string pdf = ReadText(paper);
  int pages = 0;
  for (std::size_t at = 0; (at = pdf.find("/Type /Page", at)) != std::string::npos; at += 11)
    pages += pdf[at + 11] != 's';
  return pages;
}

TEST_F(InTheBrowser, ItCanBePrintedAndPhotographed) {
  constexpr int kMostPages = 8;  // what is folded stays so
  for (const std::string& page : {Pages()[0], Pages()[2]}) {
    const std::string paper = ScratchFolder() + "/page.pdf",
                      picture = ScratchFolder() + "/page.png";
    EXPECT_EQ(RunShell(CommandLine("--print-to-pdf=" + paper, page)).code, 0);
    EXPECT_GT(fs::file_size(paper), 20'000u);
    EXPECT_LE(PagesOf(paper), kMostPages) << page;
    EXPECT_EQ(RunShell(CommandLine("--window-size=1100,3000 --screenshot=" + picture, page)).code,
              0);
    EXPECT_GT(fs::file_size(picture), 50'000u);
  }
}

}  // namespace
}  // namespace orrery
