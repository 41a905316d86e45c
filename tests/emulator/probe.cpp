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

#include "runtime/bundle/embedded.hpp"
#include "runtime/emulator/host_compiler.hpp"
#include "runtime/emulator/tensor_map.hpp"
#include "runtime/lab/reference.hpp"

namespace attune::emulator_tests {
namespace {

std::string probe_text(const std::string& name, const std::vector<std::string>& headers) {
  std::string text;
  for (const std::string& header : headers) text += embedded_templates().at(header);
  const std::string include = "#include \"params.h\"\n";
  if (const std::size_t at = text.find(include); at != std::string::npos) text.erase(at, include.size());
  std::ifstream file(fmt::format("{}/tests/emulator/{}.cu", ATTUNE_SOURCE_DIR, name));
  return text + std::string{std::istreambuf_iterator<char>(file), {}};
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

struct AsyncProbeParams {
  AttuneTensorMap map;
  AttuneTensorMap long_map;
  AttuneTensorMap shifted_map;
  AttuneTensorMap no_map;
  AttuneTensorMap stored_map;
  AttuneTensorMap long_stored_map;
  int which;
  float* out;
  void* stored;
};

// The input of probe_async.cu.
constexpr int heads = 2;
constexpr int rows = 100;
constexpr int columns = 64;
constexpr std::size_t elements = std::size_t{heads} * rows * columns;
constexpr int element_bytes = 2;

constexpr int rows_in_front = 64;

struct alignas(16) Elements {
  std::array<std::uint16_t, rows_in_front * columns> in_front;  ///< of no buffer
  std::array<std::uint16_t, elements> value;
  std::array<std::uint16_t, elements> behind;  ///< of no buffer
};

emulator::TensorMap map_of(const Elements& tensor, unsigned long long row_count) {
  return {.base = tensor.value.data(),
          .extents = {columns, row_count, heads, 1, 1},
          .strides = {columns * element_bytes, rows * columns * element_bytes, elements * element_bytes},
          .box = {64, 64, 1, 1, 1}};
}

/// As if the tensor began that many rows earlier.
emulator::TensorMap shifted(emulator::TensorMap map, const Elements& tensor) {
  map.base = tensor.in_front.data();
  map.extents[1] += rows_in_front;
  return map;
}

emulator::Buffer buffer_of(const std::string& name, Elements& tensor, bool writable) {
  return {.name = name,
          .data = tensor.value.data(),
          .element_bytes = element_bytes,
          .extents = {1, heads, rows, columns},
          .strides = {0, rows * columns, columns},
          .writable = writable};
}

}  // namespace

const Probe& Probe::instance() {
  static const Probe probe("probe", {"types.h"});
  return probe;
}

const Probe& Probe::handover() {
  static const Probe probe("probe_handover", {"types.h"});
  return probe;
}

const Probe& Probe::cluster() {
  static const Probe probe("probe_cluster", {"types.h"});
  return probe;
}

const Probe& Probe::async() {
  static const Probe probe("probe_async", {"params.h", "tensor_params.h", "types.h"});
  return probe;
}

Probe::Probe(const std::string& name, const std::vector<std::string>& headers)
    : name_(name),
      text_(probe_text(name, headers)),
      names_(names_in(text_)),
      kernel_(emulator::HostCompiler().compile({.variant = {}, .name = name, .text = text_}).image, name) {}

int Probe::number_of(const std::string& which) const {
  const auto found = std::ranges::find(names_, which);
  REQUIRE(found != names_.end());
  return static_cast<int>(found - names_.begin());
}

Probe::Outcome Probe::run(const std::string& which, const Options& options) const {
  return this == &async() ? run_async(number_of(which), options) : run_plain(number_of(which), options);
}

float Probe::element(int head, int row, int column) {
  if (row < 0 || row >= rows || column < 0 || column >= columns) return 0;
  return static_cast<float>((head * 7 + row * 3 + column * 5) % 17 - 8);
}

std::vector<float> Probe::check_clean(const std::string& which) const {
  CAPTURE(which);
  const Outcome outcome = run(which);
  CHECK_MESSAGE(outcome.report.ok(), outcome.report.fault);
  return outcome.out;
}

std::vector<float> Probe::check_stored(const std::string& which, std::uint64_t seed) const {
  CAPTURE(which);
  Options options;
  options.seed = seed;
  const Outcome outcome = run(which, options);
  CHECK_MESSAGE(outcome.report.ok(), outcome.report.fault);
  return outcome.stored;
}

std::size_t Probe::place_of(int head, int row, int column) {
  return (static_cast<std::size_t>(head) * rows + row) * columns + column;
}

void Probe::check_fault(const std::string& which, const std::vector<std::string>& words, const Options& options) const {
  CAPTURE(which);
  CAPTURE(options.jobs);
  const std::string fault = run(which, options).report.fault;
  CHECK_MESSAGE(!fault.empty(), "no fault was found");
  for (const std::string& word : words) {
    const std::string wanted = word.starts_with('@') ? line(word.substr(1)) : word;
    CHECK_MESSAGE(fault.find(wanted) != std::string::npos, fmt::format("{}  lacks  {}", fault, wanted));
  }
}

Probe::Outcome Probe::run_async(int which, const Options& options) const {
  constexpr int threads = 512;
  constexpr std::uint16_t nan = 0x7fff;
  Elements in{};
  for (int h = 0; h < heads; ++h) {
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) in.value[place_of(h, r, c)] = to_storage(Dtype::bf16, element(h, r, c));
    }
  }
  Elements stored{};
  stored.value.fill(nan);
  std::vector<float> out(std::size_t{threads} * 32, NAN);
  const AsyncProbeParams params{.map = emulated_map(map_of(in, rows)),
                                .long_map = emulated_map(map_of(in, 2 * rows)),
                                .shifted_map = emulated_map(shifted(map_of(in, rows), in)),
                                .no_map = {},
                                .stored_map = emulated_map(map_of(stored, rows)),
                                .long_stored_map = emulated_map(map_of(stored, 2 * rows)),
                                .which = which,
                                .out = out.data(),
                                .stored = &stored.value[place_of(1, 0, 0)]};
  const emulator::Buffer output{.name = "out",
                                .data = out.data(),
                                .element_bytes = sizeof(float),
                                .extents = {1, 1, 1, static_cast<long long>(out.size())},
                                .strides = {0, 0, 0},
                                .writable = true};
  emulator::Report report =
      kernel_.run({.grid = {options.blocks, 1, 1},
                   .threads = threads,
                   .shared_bytes = 60 << 10,
                   .params = &params,
                   .memory = {buffer_of("in", in, false), output, buffer_of("stored", stored, true)},
                   .seed = options.seed,
                   .jobs = options.jobs,
                   .count_banks = options.count_banks});
  Outcome outcome{.report = std::move(report), .out = std::move(out), .stored = {}};
  for (const std::uint16_t bits : stored.value) outcome.stored.push_back(from_storage(Dtype::bf16, bits));
  return outcome;
}

Probe::Outcome Probe::run_plain(int which, const Options& options) const {
  constexpr int chunks = 256;
  struct alignas(16) Words {
    std::array<std::uint32_t, 4> word;
  };
  std::vector<Words> in(chunks + 1);
  for (std::uint32_t i = 0; i < in.size(); ++i) in[i].word.fill(i);
  struct alignas(16) Floats {
    std::array<float, 4> value;
  };
  std::vector<Floats> out(std::size_t{16} * options.blocks * options.blocks_y, {{NAN, NAN, NAN, NAN}});
  const ProbeParams params{which, in.data(), out.front().value.data()};
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
  outcome.report = kernel_.run({.grid = {options.blocks, options.blocks_y, 1, options.cluster},
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
  FAIL(name_ << ".cu has no line @" << name);
  return {};
}

}  // namespace attune::emulator_tests
