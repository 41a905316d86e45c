#include "runtime/cli/banks.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>

#include "generator/template_file.hpp"
#include "runtime/base/text.hpp"

namespace attune::cli {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// A line of a source that has conflicts.
struct Conflict {
  emulator::BankSite site;
  std::string text;
};

std::vector<Conflict> conflicts_of(const Source& source, const std::vector<emulator::BankSite>& sites) {
  const std::vector<std::string> lines = lines_of(source.text);
  std::vector<Conflict> found;
  for (const emulator::BankSite& site : sites) {
    if (!site.conflicts()) continue;
    const bool known = site.line >= 1 && site.line <= static_cast<int>(lines.size());
    found.push_back({site, known ? std::string(trimmed(lines[site.line - 1])) : std::string()});
  }
  return found;
}

}  // namespace

void add_sites(std::vector<emulator::BankSite>& total, const std::vector<emulator::BankSite>& more) {
  for (const emulator::BankSite& site : more) {
    auto at = std::ranges::lower_bound(total, site.line, {}, &emulator::BankSite::line);
    if (at == total.end() || at->line != site.line) at = total.insert(at, {.line = site.line});
    at->accesses += site.accesses;
    at->wavefronts += site.wavefronts;
    at->ideal += site.ideal;
  }
}

std::string bank_report(const Source& source, const std::vector<emulator::BankSite>& sites) {
  const std::vector<Conflict> conflicts = conflicts_of(source, sites);
  if (conflicts.empty()) return fmt::format("{}: none\n", source.name);
  Table table({{"line", Align::right},
               {"warp accesses", Align::right},
               {"wavefronts", Align::right},
               {"ideal", Align::right},
               {"source"}});
  for (const Conflict& conflict : conflicts) {
    table.add({std::to_string(conflict.site.line), std::to_string(conflict.site.accesses),
               std::to_string(conflict.site.wavefronts), std::to_string(conflict.site.ideal), conflict.text});
  }
  return fmt::format("{}:\n{}", source.name, table.text());
}

nlohmann::ordered_json bank_json(const Source& source, const std::vector<emulator::BankSite>& sites) {
  auto lines = nlohmann::ordered_json::array();
  for (const Conflict& conflict : conflicts_of(source, sites)) {
    lines.push_back({{"line", conflict.site.line},
                     {"source", conflict.text},
                     {"accesses", conflict.site.accesses},
                     {"wavefronts", conflict.site.wavefronts},
                     {"ideal", conflict.site.ideal}});
  }
  return {{"variant", source.name}, {"lines", lines}};
}

}  // namespace attune::cli
