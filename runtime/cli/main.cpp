// attune: the command line tool.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "generator/command_words.hpp"
#include "runtime/base/error.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/failure.hpp"
#include "runtime/cli/output.hpp"

namespace attune::cli {
namespace {

constexpr const char* footer = R"(Start here:
  attune doctor                        what this machine has, and what to do about the rest
  attune run specs/quickstart.yaml     generate, compile, launch and check
  attune explain --head-dim 128 --seqlen-q 4096 --causal
                                       which kernel would serve a problem, and why
Exit codes: 0 done, 1 a check failed, 2 bad usage or a bad spec, 3 this machine lacks something.
With --json, what ends a command early is JSON on stdout, too: {"error": {"status", "exit_code", "message", ...}}.)";

/// A machine that lacks something and a caller who asked for the impossible are not failed checks.
Exit exit_for(attune_status status) {
  switch (status) {
    case ATTUNE_NO_DEVICE:
    case ATTUNE_NOT_COMPILED:
      return Exit::machine_lacks;
    case ATTUNE_INVALID_ARGUMENT:
    case ATTUNE_UNSUPPORTED:
      return Exit::bad_usage;
    default:
      return Exit::check_failed;
  }
}

/// Known before the command line is: what is wrong with it is told as JSON, too.
bool wants_json(int argc, char** argv) {
  return std::any_of(argv, argv + argc, [](std::string_view argument) { return argument == "--json"; });
}

/// On stdout where a program reads, else on stderr.
int tell(const Failure& failure, bool as_json) {
  if (as_json) {
    print_json(json_of(failure));
  } else {
    fmt::print(stderr, "{}\n", failure.what());
  }
  return static_cast<int>(failure.exit());
}

int run(int argc, char** argv) {
  CLI::App app("Attention kernels cut to your shapes: a YAML spec in, specialised CUDA kernels out.", "attune");
  app.footer(footer);
  app.set_version_flag("--version", ATTUNE_VERSION);
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(34);
  const std::vector<Command> commands{
      generate_command(app), compile_command(app),    pack_command(app),  run_command(app),  list_command(app),
      explain_command(app),  features_command(app),   bench_command(app), tune_command(app), spec_from_command(app),
      cache_command(app),    completion_command(app), doctor_command(app)};
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool is_error = error.get_exit_code() != 0;
    if (!is_error) return app.exit(error);  // prints the help that was asked for
    const std::string unknown = unknown_word(app, {argv, argv + argc});
    const std::string problem = unknown.empty() ? error.what() : unknown;
    if (wants_json(argc, argv)) throw Failure(Exit::bad_usage, problem);
    fmt::print(stderr, "{}\nRun with --help for more information.\n", problem);
    return static_cast<int>(Exit::bad_usage);
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return static_cast<int>(command.run());
  }
  fmt::print(stderr, "{}", app.help());
  return static_cast<int>(Exit::bad_usage);
}

}  // namespace
}  // namespace attune::cli

int main(int argc, char** argv) {
  using attune::cli::Exit;
  using attune::cli::Failure;
  const bool json = attune::cli::wants_json(argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // so that messages on stderr come where they belong in a log
  try {
    return attune::cli::run(argc, argv);
  } catch (const Failure& failure) {
    return attune::cli::tell(failure, json);
  } catch (const attune::Error& error) {
    return attune::cli::tell(Failure(attune::cli::exit_for(error.status()), error.what()), json);
  } catch (const std::filesystem::filesystem_error& error) {
    return attune::cli::tell(Failure(Exit::bad_usage, error.what()), json);
  } catch (const std::exception& error) {
    return attune::cli::tell(Failure(Exit::check_failed, error.what()), json);
  }
}
