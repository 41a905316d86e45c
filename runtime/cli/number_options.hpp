// Numbers on the command line that the parser alone would take in another meaning: nan for seconds, -1 for a seed.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace attune::cli {

/// --seed, a whole number that is not negative.
CLI::Option* add_seed_option(CLI::App& app, std::uint64_t& seed, const std::string& description);

/// What is wrong with a text that is to be a number above 0 and no infinity; "" for nothing.
std::string positive_problem(const std::string& text);

/// The same for one from `least` to `most`.
std::string range_problem(const std::string& text, double least, double most);

/// Checks of whole numbers from 1 on, and from 0 on. The parser's own name the largest double as the upper end.
CLI::Validator positive_number();
CLI::Validator non_negative_number();

}  // namespace attune::cli
