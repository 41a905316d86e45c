// Words of the command line: what an option accepts, and what somebody who mistyped one meant.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace attune {

/// A check that a value is one of these words. Help shows them; a value that is near one is told so.
CLI::Validator one_of(std::vector<std::string> words);

/// "; did you mean run?", or "" where no candidate is near the word.
std::string meant_text(const std::string& word, const std::vector<std::string>& candidates);

/// What is wrong with these arguments of `app`, argv[0] included: the first command or option that there is not, and
/// what was meant; "" where all of them exist.
std::string unknown_word(const CLI::App& app, const std::vector<std::string>& arguments);

/// The names of an app's commands, in their order.
std::vector<std::string> command_names(const CLI::App& app);

/// "--device", "-o": those of an app's options.
std::vector<std::string> option_names(const CLI::App& app);

}  // namespace attune
