#include "generator/command_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

#include "generator/diagnostic.hpp"

namespace attune {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_name().empty(); });
}

/// "-1" is a value, "--gpu" is not.
bool is_option(const std::string& argument) {
  return argument.size() > 1 && argument[0] == '-' && std::isdigit(static_cast<unsigned char>(argument[1])) == 0 &&
         argument != "--";
}

/// "--gpu" of "--gpu=h200", "-o" of "-ofile", and of a word the word.
std::string name_of(const std::string& argument) {
  if (!is_option(argument)) return argument;
  return argument.substr(0, argument.starts_with("--") ? argument.find('=') : 2);
}

/// The options of a command and of those above it, which it may be given, too.
std::vector<std::string> all_options(const CLI::App* app) {
  std::vector<std::string> names;
  for (; app != nullptr; app = app->get_parent()) std::ranges::copy(option_names(*app), std::back_inserter(names));
  return names;
}

/// The option that is nearest; for a letter alone, as in -o, those that begin with it.
std::string meant_option(const std::string& name, const std::vector<std::string>& known) {
  constexpr std::size_t letter_alone = 2;
  if (name.size() != letter_alone) return meant_text(name, known);
  std::vector<std::string> meant;
  std::ranges::copy_if(known, std::back_inserter(meant),
                       [&](const std::string& one) { return one.starts_with("-" + name); });
  return meant.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(meant, " or "));
}

}  // namespace

CLI::Validator one_of(std::vector<std::string> words) {
  const std::string description = fmt::format("{{{}}}", fmt::join(words, ","));
  return {[words = std::move(words)](const std::string& word) {
            if (std::ranges::find(words, word) != words.end()) return std::string();
            return fmt::format("'{}' is none of {}{}", word, fmt::join(words, ", "), meant_text(word, words));
          },
          description};
}

std::string meant_text(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string near = nearest_word(word, candidates);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

std::string unknown_word(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* command = &app;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string name = name_of(arguments[i]);
    if (is_option(name)) {
      const std::vector<std::string> known = all_options(command);
      if (std::ranges::find(known, name) != known.end()) continue;
      return fmt::format("{} has no option '{}'{}", command->get_name(), name, meant_option(name, known));
    }
    const std::vector<std::string> known = command_names(*command);
    if (known.empty()) continue;  // its words are files and values
    if (std::ranges::find(known, name) == known.end()) {
      const std::string meant = meant_text(name, known);
      return fmt::format("{} has no command '{}'{}", command->get_name(), name,
                         meant.empty() ? fmt::format("; there are {}", fmt::join(known, ", ")) : meant);
    }
    command = command->get_subcommand(name);
  }
  return "";
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

}  // namespace attune
