// attune completion: a script that has a shell complete commands, options and their words.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "generator/command_words.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/output.hpp"

namespace attune::cli {
namespace {

/// "gpu emulator none" of an option whose help shows {gpu,emulator,none}; else "".
std::string words_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return "";
  std::string words = type.substr(begin + 1, end - begin - 1);
  for (char& c : words) {
    if (c == ',') c = ' ';
  }
  return words;
}

/// The script's branches for one command: its options' words, then its options and commands.
std::string branches_of(const CLI::App& command) {
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    const std::string words = words_of(*option);
    if (words.empty() || option->get_lnames().empty()) continue;
    text += fmt::format("    \"{} --{}\") words=\"{}\" ;;\n", command.get_name(), option->get_lnames().front(), words);
  }
  std::vector<std::string> words = command_names(command);
  std::ranges::copy(option_names(command), std::back_inserter(words));
  return text + fmt::format("    \"{} \"*) words=\"{}\" ;;\n", command.get_name(), fmt::join(words, " "));
}

/// For bash; zsh reads it behind `autoload -U bashcompinit && bashcompinit`. Where no word fits, files do.
std::string bash_script(const CLI::App& root) {
  std::string script = "_attune() {\n  local word=\"${COMP_WORDS[COMP_CWORD]}\" words=\"\"\n";
  script += "  case \"${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD-1]}\" in\n";
  for (const std::string& name : command_names(root)) script += branches_of(*root.get_subcommand(name));
  script += "  esac\n";
  script += fmt::format("  if [[ $COMP_CWORD == 1 ]]; then words=\"{} --help --version\"; fi\n",
                        fmt::join(command_names(root), " "));
  script += "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\ncomplete -o default -F _attune attune\n";
  return script;
}

/// In quotes, as fish reads them.
std::string in_fish_quotes(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

/// Fish's lines for one command: its commands, its options with what they are for, and their words.
std::string fish_lines_of(const CLI::App& command) {
  const std::string of_command =
      fmt::format("complete -c attune -n '__fish_seen_subcommand_from {}'", command.get_name());
  std::string text;
  for (const std::string& name : command_names(command)) {
    text += fmt::format("{} -f -a {} -d {}\n", of_command, name,
                        in_fish_quotes(command.get_subcommand(name)->get_description()));
  }
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty()) continue;
    text += fmt::format("{} -l {}", of_command, option->get_lnames().front());
    const std::string words = words_of(*option);
    if (!words.empty()) {
      text += fmt::format(" -x -a '{}'", words);
    } else if (option->get_items_expected_max() > 0) {
      text += " -r";
    }
    text += fmt::format(" -d {}\n", in_fish_quotes(option->get_description()));
  }
  return text;
}

/// For fish, which completes files where no word fits.
std::string fish_script(const CLI::App& root) {
  std::string script;
  for (const std::string& name : command_names(root)) {
    script += fmt::format("complete -c attune -n __fish_use_subcommand -f -a {} -d {}\n", name,
                          in_fish_quotes(root.get_subcommand(name)->get_description()));
  }
  script += "complete -c attune -n __fish_use_subcommand -l help\n";
  script += "complete -c attune -n __fish_use_subcommand -l version\n";
  for (const std::string& name : command_names(root)) script += fish_lines_of(*root.get_subcommand(name));
  return script;
}

}  // namespace

Command completion_command(CLI::App& root) {
  struct Options {
    std::string shell;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* app = root.add_subcommand("completion", "Print a script that completes commands and options in a shell");
  app->add_option("shell", options->shell, "Which shell: bash, whose script zsh reads, too, or fish")
      ->required()
      ->check(one_of({"bash", "fish"}));
  app->add_flag("--json", options->json, "Print the script as JSON");
  app->footer(R"text(Examples:
  eval "$(attune completion bash)"
  attune completion bash > /etc/bash_completion.d/attune
  attune completion fish > ~/.config/fish/completions/attune.fish
In zsh, after: autoload -U bashcompinit && bashcompinit)text");
  return {.app = app, .run = [options, &root] {
            const std::string script = options->shell == "fish" ? fish_script(root) : bash_script(root);
            if (options->json) {
              print_json({{"shell", options->shell}, {"script", script}});
            } else {
              fmt::print("{}", script);
            }
            return Exit::done;
          }};
}

}  // namespace attune::cli
