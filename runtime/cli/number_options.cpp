#include "runtime/cli/number_options.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <limits>

namespace attune::cli {
namespace {

template <class Number>
bool reads(const std::string& text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

CLI::Validator whole_number_from(int least, const std::string& word) {
  return CLI::Validator(
      [least](const std::string& text) {
        int number = 0;
        if (reads(text, number) && number >= least) return std::string();
        return fmt::format("'{}' is no whole number from {} on", text, least);
      },
      word);
}

}  // namespace

CLI::Option* add_seed_option(CLI::App& app, std::uint64_t& seed, const std::string& description) {
  return app.add_option("--seed", seed, description)
      ->check([](const std::string& text) {
        std::uint64_t ignored = 0;
        if (reads(text, ignored)) return std::string();
        return fmt::format("'{}' is no seed; it must be a whole number from 0 to {}", text,
                           std::numeric_limits<std::uint64_t>::max());
      })
      ->capture_default_str();
}

std::string positive_problem(const std::string& text) {
  double number = 0;
  if (reads(text, number) && std::isfinite(number) && number > 0) return "";
  return fmt::format("'{}' is no number above 0", text);
}

std::string range_problem(const std::string& text, double least, double most) {
  double number = 0;
  if (reads(text, number) && number >= least && number <= most) return "";
  return fmt::format("'{}' is no number from {} to {}", text, least, most);
}

CLI::Validator positive_number() { return whole_number_from(1, "POSITIVE"); }
CLI::Validator non_negative_number() { return whole_number_from(0, "NONNEGATIVE"); }

}  // namespace attune::cli
