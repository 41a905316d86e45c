#include "runtime/tune/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/tune/statistics.hpp"

namespace attune::tune {
namespace {

constexpr int cell_width = 44;
constexpr int cell_height = 22;
constexpr int margin = 20;
constexpr int label_width = 40;  // of rows
constexpr int panel_gap = 28;
constexpr int title_height = 44;  // of a problem, with the titles of its panels
constexpr int axis_height = 36;
constexpr int head_height = 64;

/// A place in a panel, and the panel.
struct PanelCell {
  int stages;
  int row;
  int column;

  auto operator<=>(const PanelCell&) const = default;
};

/// What is drawn of one problem.
struct Chart {
  std::string title;
  std::string unit;
  std::string row_name;
  std::map<PanelCell, double> speeds;
  PanelCell chosen{};
  PanelCell heuristic{};
  bool is_decided = false;
};

PanelCell place_of(const Variant& variant, bool decodes) {
  return {variant.stages, decodes ? variant.warps : variant.B_r, variant.B_c};
}

std::vector<double> medians_of(const JournalContents& journal, const std::string& id, std::size_t candidates) {
  std::vector<std::vector<double>> seconds(candidates);
  for (auto round = journal.rounds.lower_bound({id, 0}); round != journal.rounds.end() && round->first.first == id;
       ++round) {
    for (std::size_t i = 0; i < round->second.order.size(); ++i) {
      const auto candidate = static_cast<std::size_t>(round->second.order[i]);
      if (candidate < candidates) seconds[candidate].push_back(round->second.seconds[i]);
    }
  }
  std::vector<double> medians;
  for (const std::vector<double>& own : seconds) medians.push_back(median(own));
  return medians;
}

Chart chart_of(const JournalContents& journal, const std::string& id, const RaceRecord& race) {
  constexpr double tera = 1e12;
  constexpr double giga = 1e9;
  Chart chart{.title = race.problem,
              .unit = race.decodes ? "GB/s" : "TFLOP/s",
              .row_name = race.decodes ? "warps" : "B_r",
              .speeds = {}};
  const std::vector<double> medians = medians_of(journal, id, race.candidates.size());
  for (std::size_t i = 0; i < medians.size(); ++i) {
    if (medians[i] <= 0) continue;
    double& best = chart.speeds[place_of(race.candidates[i], race.decodes)];
    best = std::max(best, race.work / medians[i] / (race.decodes ? giga : tera));
  }
  if (!race.candidates.empty()) chart.heuristic = place_of(race.candidates.front(), race.decodes);
  for (const auto& [other, outcome] : journal.outcomes) {
    if (text_of(outcome.row.problem) != race.problem) continue;
    const TunedResult& result = outcome.row.result;
    chart.chosen = place_of(result.variant, race.decodes);
    chart.is_decided = true;
    chart.title += fmt::format(": {}, {:.1f} us against {:.1f}", result.variant.name(), result.microseconds,
                               result.default_microseconds);
  }
  return chart;
}

std::string text_at(int x, int y, std::string_view kind, const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return fmt::format("<text x=\"{}\" y=\"{}\" class=\"{}\">{}</text>\n", x, y, kind, escaped);
}

std::string frame(int x, int y, std::string_view kind) {
  return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"{}\"/>\n", x, y, cell_width - 2,
                     cell_height - 2, kind);
}

template <class Of>
std::vector<int> values_of(const Chart& chart, const Of& of) {
  std::set<int> values;
  for (const auto& [place, speed] : chart.speeds) values.insert(of(place));
  return {values.begin(), values.end()};
}

/// Draws a chart with its upper edge at `top` and returns its lower one.
class Drawing {
 public:
  int add(const Chart& chart, int top) {
    const std::vector<int> stages = values_of(chart, [](const PanelCell& place) { return place.stages; });
    const std::vector<int> rows = values_of(chart, [](const PanelCell& place) { return place.row; });
    const std::vector<int> columns = values_of(chart, [](const PanelCell& place) { return place.column; });
    text += text_at(margin, top + 14, "title", chart.title);
    const auto [least, most] =
        std::ranges::minmax_element(chart.speeds, {}, [](const auto& one) { return one.second; });
    const double span = std::max(1e-9, most->second - least->second);
    int left = margin;
    for (const int stage : stages) {
      text += text_at(left + label_width, top + 36, "label",
                      fmt::format("{} stage{}, {}", stage, stage == 1 ? "" : "s", chart.unit));
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const int y = top + title_height + static_cast<int>(r) * cell_height;
        text += text_at(left + label_width - 6, y + 15, "row", std::to_string(rows[r]));
        for (std::size_t c = 0; c < columns.size(); ++c) {
          const PanelCell place{stage, rows[r], columns[c]};
          const auto cell = chart.speeds.find(place);
          if (cell == chart.speeds.end()) continue;
          const int x = left + label_width + static_cast<int>(c) * cell_width;
          add_cell(x, y, cell->second, (cell->second - least->second) / span);
          if (place == chart.heuristic) text += frame(x, y, "heuristic");
          if (chart.is_decided && place == chart.chosen) text += frame(x, y, "chosen");
        }
      }
      const int below = top + title_height + static_cast<int>(rows.size()) * cell_height;
      for (std::size_t c = 0; c < columns.size(); ++c) {
        text += text_at(left + label_width + static_cast<int>(c) * cell_width + cell_width / 2 - 1, below + 13,
                        "column", std::to_string(columns[c]));
      }
      text += text_at(left + label_width, below + 28, "label", chart.row_name + " down, B_c across");
      left += label_width + static_cast<int>(columns.size()) * cell_width + panel_gap;
    }
    width = std::max({width, left, margin * 2 + static_cast<int>(chart.title.size()) * 8});
    return top + title_height + static_cast<int>(rows.size()) * cell_height + axis_height;
  }

  std::string text;
  int width = 640;

 private:
  void add_cell(int x, int y, double speed, double part) {
    constexpr double faintest = 0.08;
    constexpr double dark = 0.6;  // from which on the number is white
    const double strength = faintest + (0.92 - faintest) * part;
    text += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"cell\" fill-opacity=\"{:.2f}\"/>\n",
                        x, y, cell_width - 2, cell_height - 2, strength);
    text += text_at(x + cell_width / 2 - 1, y + 14, strength > dark ? "number light" : "number",
                    fmt::format("{:.0f}", speed));
  }
};

constexpr std::string_view style = R"(<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; }
.label { fill: #59636e; }
.row { text-anchor: end; fill: #59636e; }
.column { text-anchor: middle; fill: #59636e; }
.number { text-anchor: middle; font-size: 11px; }
.light { fill: #ffffff; }
.page { fill: #ffffff; }
.cell { fill: #1a5fb4; }
.chosen { fill: none; stroke: #c64600; stroke-width: 3; }
.heuristic { fill: none; stroke: #1f2328; stroke-width: 1.5; stroke-dasharray: 4 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .label, .row, .column { fill: #9198a1; }
  .light { fill: #0d1117; }
  .page { fill: #0d1117; }
  .cell { fill: #78aeed; }
  .chosen { stroke: #ffa348; }
  .heuristic { stroke: #e6edf3; }
}
</style>
)";

}  // namespace

std::string report_svg(const JournalContents& journal, const std::string& only) {
  // Candidates may have changed between runs: of a problem's races the one with the most rounds is drawn.
  std::map<std::string, std::string> races;
  const auto rounds_of = [&](const std::string& id) {
    return std::distance(journal.rounds.lower_bound({id, 0}), journal.rounds.lower_bound({id + '\0', 0}));
  };
  for (const auto& [id, race] : journal.races) {
    if (race.problem.find(only) == std::string::npos || rounds_of(id) == 0) continue;
    const auto [known, is_new] = races.emplace(race.problem, id);
    if (!is_new && rounds_of(id) > rounds_of(known->second)) known->second = id;
  }
  std::vector<Chart> charts;
  for (const auto& [problem, id] : races) {
    Chart chart = chart_of(journal, id, journal.races.at(id));
    if (!chart.speeds.empty()) charts.push_back(std::move(chart));
  }
  if (charts.empty()) {
    throw Error(ATTUNE_INVALID_ARGUMENT, only.empty() ? "the journal has no measurements"
                                                      : fmt::format("no measured problem contains '{}'", only));
  }
  Drawing drawing;
  int bottom = head_height;
  for (const Chart& chart : charts) bottom = drawing.add(chart, bottom);
  const std::string head =
      text_at(margin, 26, "title", fmt::format("Speed of tiles on {}", journal.identity.gpu.name)) +
      text_at(
          margin, 46, "label",
          "of the other knobs the best; solid frame: chosen, dashed: the heuristic's choice; the darker (on dark pages "
          "the lighter) the faster");
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\">\n{2}"
      "<rect width=\"100%\" height=\"100%\" class=\"page\"/>\n{3}{4}</svg>\n",
      drawing.width, bottom + margin, style, head, drawing.text);
}

}  // namespace attune::tune
