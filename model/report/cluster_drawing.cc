// SPDX-License-Identifier: Apache-2.0
// Nodes with their devices in rows, above and below the fabric, no wider than paper; links by how busy they are.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "model/report/figures.h"

namespace orrery::report {
namespace {

constexpr double kStep = 46, kLetter = 5.7, kRowHeight = 62, kLineHeight = 34, kBoxGap = 26;
constexpr double kPaper = 800;          // width that screens and A4 show at a readable size
constexpr std::size_t kMostInLine = 8;  // devices of a node
constexpr const char* kRows[] = {"GPU", "scale-up switch", "PCIe switch", "host", "NIC"};

struct Place {
  double x = 0, y = 0;
  double room = kStep;  // width for the device and the gap behind it
};

// Lines of devices from top to bottom, those of one kind together.
struct NodeDrawing {
  struct Line {
    std::vector<std::size_t> devices;
    double below = 0;  // distance from the line above
  };
  std::vector<Line> lines;
  double width = 0, height = 0;
};

// Devices of the cluster on paper.
class Paper {
 public:
  explicit Paper(const Ref& cluster) : devices_(cluster["devices"]) {
    std::map<int64_t, std::vector<std::size_t>> nodes;
    std::vector<std::size_t> fabric;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const auto node = static_cast<int64_t>(devices_[i]["node"].number());
      if (node < 0) {
        fabric.push_back(i);
      } else {
        nodes[node].push_back(i);
      }
    }
    double widest = 1;
    for (const auto& [node, own] : nodes) widest = std::max(widest, Draw(own, false).width);
    const std::size_t most =
        std::max<std::size_t>(1, static_cast<std::size_t>((kPaper + kBoxGap) / (widest + kBoxGap)));
    const std::size_t rows = (nodes.size() + most - 1) / most;
    const std::size_t in_row = rows == 0 ? 1 : (nodes.size() + rows - 1) / rows;
    // Half of the rows stand below the fabric, upside down: links to it cross no other node where there are two.
    const std::size_t above = (rows + 1) / 2;
    auto at = nodes.begin();
    for (std::size_t row = 0; row < rows; ++row) {
      if (row == above) PlaceFabric(fabric);
      const double top = height == 0 ? 0 : height + kBoxGap;
      double x = 0;
      for (std::size_t i = 0; i < in_row && at != nodes.end(); ++i, ++at) {
        const NodeDrawing drawing = Draw(at->second, row >= above);
        PlaceNode(at->first, drawing, {x, top});
        height = std::max(height, top + drawing.height);
        x += drawing.width + kBoxGap;
        width = std::max(width, x - kBoxGap);
      }
    }
    if (rows <= above) PlaceFabric(fabric);
  }

  const Place* Find(const std::string& name) const {
    const auto at = places_.find(name);
    return at == places_.end() ? nullptr : &at->second;
  }
  std::string Boxes() const { return boxes_; }
  std::string Devices() const {
    std::string out;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const std::string full = devices_[i]["name"].text();
      const Place& at = places_.at(full);
      const std::string name = full.substr(full.find('.') + 1);
      out += fmt::format(
          "<g><rect class=device x={:.0f} y={:.0f} width={:.0f} height=22 rx=4></rect><text "
          "x={:.0f} "
          "y={:.0f} text-anchor=middle class=small>{}</text><title>{}, {}</title></g>",
          at.x - Wide(name, at) / 2, at.y - 11, Wide(name, at), at.x, at.y + 4,
          Escape(Short(name, at)), Escape(full), Escape(devices_[i]["kind"].text()));
    }
    return out;
  }

  double width = 0, height = 0;

 private:
  static double Wide(const std::string& name, const Place& at) {
    return std::clamp(kLetter * static_cast<double>(name.size()) + 6, kStep - 4,
                      std::max(kStep, at.room) - 4);
  }
  static std::string Short(const std::string& name, const Place& at) {
    const auto most = static_cast<std::size_t>((Wide(name, at) - 2) / kLetter);
    return name.size() <= most ? name : name.substr(0, most - 1) + "…";
  }

  NodeDrawing Draw(const std::vector<std::size_t>& own, bool upside_down) const {
    NodeDrawing drawing;
    std::size_t widest = 2;
    for (const char* kind : kRows) {
      std::vector<std::size_t> row;
      for (const std::size_t i : own) {
        if (devices_[i]["kind"].text() == kind) row.push_back(i);
      }
      // Neighbours stand below each other: those of one PCIe switch are a column under it.
      const std::size_t lines = (row.size() + kMostInLine - 1) / kMostInLine;
      for (std::size_t line = 0; line < lines; ++line) {
        NodeDrawing::Line drawn;
        drawn.below = line == 0 ? kRowHeight : kLineHeight;
        for (std::size_t i = line; i < row.size(); i += lines) drawn.devices.push_back(row[i]);
        widest = std::max(widest, drawn.devices.size());
        drawing.lines.push_back(std::move(drawn));
      }
    }
    if (upside_down) {
      std::ranges::reverse(drawing.lines);
      // Distances belong to the gaps.
      for (std::size_t i = drawing.lines.size(); i-- > 1;)
        drawing.lines[i].below = drawing.lines[i - 1].below;
    }
    drawing.width = static_cast<double>(widest) * kStep + 16;
    drawing.height = 68;
    for (std::size_t i = 1; i < drawing.lines.size(); ++i) drawing.height += drawing.lines[i].below;
    return drawing;
  }

  void PlaceNode(int64_t node, const NodeDrawing& drawing, Place corner) {
    double y = corner.y + 40;
    for (std::size_t l = 0; l < drawing.lines.size(); ++l) {
      const auto& [devices, below] = drawing.lines[l];
      if (l > 0) y += below;
      const double room = drawing.width / static_cast<double>(devices.size());
      for (std::size_t i = 0; i < devices.size(); ++i)
        places_[devices_[devices[i]]["name"].text()] = {
            corner.x + room * (static_cast<double>(i) + 0.5), y, room};
    }
    boxes_ += fmt::format(
        "<rect class=frame x={:.0f} y={:.0f} width={:.0f} height={:.0f} rx=6></rect><text x={:.0f} "
        "y={:.0f}>node {}</text>",
        corner.x, corner.y, drawing.width, drawing.height, corner.x + 8, corner.y + 18, node);
  }

  // Levels of a fabric, as their names tell them: "leaf3" is of another than "spine3".
  std::vector<std::vector<std::size_t>> Levels(const std::vector<std::size_t>& fabric) const {
    std::vector<std::vector<std::size_t>> levels;
    std::string last;
    for (const std::size_t i : fabric) {
      const std::string name = devices_[i]["name"].text();
      const std::string letters = name.substr(0, name.find_first_of("0123456789"));
      if (levels.empty() || letters != last) levels.emplace_back();
      levels.back().push_back(i);
      last = letters;
    }
    return levels;
  }

  void PlaceFabric(const std::vector<std::size_t>& fabric) {
    if (fabric.empty()) return;
    width = std::max(width, std::min(static_cast<double>(fabric.size()) * kStep, 12 * kStep));
    for (const std::vector<std::size_t>& level : Levels(fabric)) PlaceLevel(level);
    height += 20;
  }

  void PlaceLevel(const std::vector<std::size_t>& level) {
    std::size_t longest = 0;
    for (const std::size_t i : level)
      longest = std::max(longest, devices_[i]["name"].text().size());
    // Whole names side by side; a very long one is cut.
    const double step =
        std::clamp(kLetter * static_cast<double>(longest) + 12, kStep, std::max(kStep, width / 4));
    const auto in_row = static_cast<std::size_t>(std::max(1.0, width / step));
    for (std::size_t i = 0; i < level.size(); ++i) {
      const std::size_t row = i / in_row;
      const std::size_t of_row = std::min(in_row, level.size() - row * in_row);
      const double room = width / static_cast<double>(of_row);
      places_[devices_[level[i]]["name"].text()] = {
          room * (static_cast<double>(i % in_row) + 0.5),
          height + kRowHeight * static_cast<double>(row + 1), room};
    }
    height += kRowHeight * static_cast<double>((level.size() - 1) / in_row + 1);
  }

  const Ref devices_;
  std::map<std::string, Place> places_;
  std::string boxes_;
};

// Four steps of load, told apart by width, too.
int LoadStep(double busy) { return busy <= 0 ? 0 : busy < 0.1 ? 1 : busy < 0.4 ? 2 : 3; }

std::string LinkTitle(const Ref& link) {
  return fmt::format("{} -> {}: busy {} of the step, {}", link["from"].text(), link["to"].text(),
                     PercentOf(link["busy"]), BytesOf(link["bytes"]));
}

constexpr std::size_t kMostLinks = 40;  // of the table

std::string LinkTable(const Ref& links) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (links[i]["bytes"].number() > 0) order.push_back(i);
  }
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return links[a]["busy"].number() > links[b]["busy"].number();
  });
  std::string rows;
  for (std::size_t i = 0; i < std::min(order.size(), kMostLinks); ++i) {
    const Ref link = links[order[i]];
    rows += Row({TextCell(link["from"].text() + " -> " + link["to"].text()),
                 NumberCell(link["busy"], PercentOf(link["busy"])),
                 NumberCell(link["bytes"], BytesOf(link["bytes"])),
                 NumberCell(link["efficiency"], PercentOf(link["efficiency"]))});
  }
  return HtmlTable(fmt::format("The {} busiest of {} links with traffic",
                               std::min(order.size(), kMostLinks), order.size()),
                   {"link", "busy", "carries", "rate reached"}, rows);
}

}  // namespace

std::string ClusterDrawing(const Ref& cluster) {
  const Ref links = cluster["links"];
  if (cluster["devices"].empty()) return "";
  const Paper paper(cluster);
  std::string lines[4];
  for (std::size_t i = 0; i < links.size(); ++i) {
    const Ref link = links[i];
    const Place* from = paper.Find(link["from"].text());
    const Place* to = paper.Find(link["to"].text());
    if (from == nullptr || to == nullptr) continue;
    // The two directions of a link lie side by side, each on its left.
    const double dx = to->x - from->x, dy = to->y - from->y;
    const double length = std::max(1.0, std::hypot(dx, dy));
    const double off_x = -2.2 * dy / length, off_y = 2.2 * dx / length;
    const int step = LoadStep(link["busy"].number());
    lines[step] += fmt::format(
        "<line class=load{} x1={:.1f} y1={:.1f} x2={:.1f} y2={:.1f}{}><title>{}</title></line>",
        step, from->x + off_x, from->y + off_y, to->x + off_x, to->y + off_y, Data(link["busy"]),
        Escape(LinkTitle(link)));
  }
  std::string body = paper.Boxes();
  for (const std::string& some : lines) body += some;
  body += paper.Devices();
  const std::string legend =
      "<ul class=legend><li><svg class=key aria-hidden=true viewBox=\"0 0 24 12\"><line "
      "class=load0 y1=6 x2=24 "
      "y2=6></line></svg>no traffic</li><li><svg class=key aria-hidden=true viewBox=\"0 0 24 "
      "12\"><line class=load1 "
      "y1=6 x2=24 y2=6></line></svg>busy below 10 %</li><li><svg class=key aria-hidden=true "
      "viewBox=\"0 0 24 "
      "12\"><line class=load2 y1=6 x2=24 y2=6></line></svg>10 to 40 %</li><li><svg class=key "
      "aria-hidden=true "
      "viewBox=\"0 0 24 12\"><line class=load3 y1=6 x2=24 y2=6></line></svg>above 40 % of the "
      "step</li></ul>";
  const std::size_t shown = cluster["nodes_shown"].size();
  const double nodes = cluster["nodes"].number();
  const std::string which =
      static_cast<double>(shown) < nodes
          ? fmt::format("{} of {:.0f} nodes, those with the busiest links", shown, nodes)
          : fmt::format("All {:.0f} node{}", nodes, nodes == 1 ? "" : "s");
  const std::string drawing = fmt::format(
      "<div class=chart role=region tabindex=0 aria-label=\"cluster with the load of its "
      "links\"><svg "
      "viewBox=\"-8 -8 {:.0f} {:.0f}\" style=\"--least:{:.0f}px;--most:{:.0f}px\" role=img "
      "aria-label=\"The cluster; the table below names the busiest links\">{}</svg></div>{}",
      paper.width + 16, paper.height + 16, 0.85 * (paper.width + 16), 1.3 * (paper.width + 16),
      body, legend);
  return Figure(
      drawing,
      which +
          ". Busy: share of the step in which messages occupy a link, each direction by itself.",
      LinkTable(links));
}

}  // namespace orrery::report
