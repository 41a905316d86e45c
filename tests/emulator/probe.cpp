#include "tests/emulator/probe.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

#include "runtime/embedded.hpp"
#include "runtime/emulator/host_compiler.hpp"

namespace attune::emulator_tests {
namespace {

std::string probe_text() {
  std::ifstream file(ATTUNE_SOURCE_DIR "/tests/emulator/probe.cu");
  return embedded_templates().at("types.h") + std::string{std::istreambuf_iterator<char>(file), {}};
}

/// What stands in `enum Which { ... };`, in order.
std::vector<std::string> names_in(const std::string& text) {
  const std::string begin = "enum Which {";
  const std::size_t from = text.find(begin) + begin.size();
  std::istringstream words(text.substr(from, text.find('}', from) - from));
  std::vector<std::string> names;
  for (std::string word; words >> word;) names.push_back(word.substr(0, word.find(',')));
  return names;
}

struct ProbeParams {
  int which;
  void* in;
  float* out;
};

}  // namespace

const Probe& Probe::instance() {
  static const Probe probe;
  return probe;
}

Probe::Probe()
    : text_(probe_text()),
      names_(names_in(text_)),
      kernel_(emulator::HostCompiler().compile({.variant = {}, .name = "probe", .text = text_}).image, "probe") {}

Probe::Outcome Probe::run(const std::string& which, const Options& options) const {
  const auto found = std::ranges::find(names_, which);
  REQUIRE(found != names_.end());
  constexpr int chunks = 256;
  struct alignas(16) Words {
    std::array<std::uint32_t, 4> word;
  };
  std::vector<Words> in(chunks + 1);
  for (std::uint32_t i = 0; i < in.size(); ++i) in[i].word.fill(i);
  struct alignas(16) Floats {
    std::array<float, 4> value;
  };
  std::vector<Floats> out(std::size_t{16} * options.blocks, {{NAN, NAN, NAN, NAN}});
  const ProbeParams params{static_cast<int>(found - names_.begin()), in.data(), out.front().value.data()};
  // Rows of 8 chunks with one left out behind each.
  const emulator::Buffer input{.name = "in",
                               .data = in.data(),
                               .element_bytes = 2,
                               .extents = {1, 1, 28, 64},
                               .strides = {0, 0, 72},
                               .writable = false};
  const emulator::Buffer output{.name = "out",
                                .data = out.data(),
                                .element_bytes = 4,
                                .extents = {1, 1, 1, static_cast<long long>(out.size()) * 4},
                                .strides = {0, 0, 0},
                                .writable = true};
  Outcome outcome;
  outcome.report = kernel_.run({.grid = {options.blocks, 1, 1},
                                .threads = 64,
                                .shared_bytes = 4096,
                                .params = &params,
                                .memory = {input, output},
                                .seed = options.seed,
                                .jobs = options.jobs,
                                .count_banks = options.count_banks});
  for (const Floats& four : out) outcome.out.insert(outcome.out.end(), four.value.begin(), four.value.end());
  return outcome;
}

std::string Probe::line(const std::string& name) const {
  std::istringstream lines(text_);
  int number = 1;
  for (std::string line; std::getline(lines, line); ++number) {
    if (line.ends_with("// @" + name)) return fmt::format("line {}", number);
  }
  FAIL("probe.cu has no line @" << name);
  return {};
}

}  // namespace attune::emulator_tests
