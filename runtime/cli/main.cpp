// attune: the command line tool.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <vector>

#include "runtime/cli/command.hpp"
#include "runtime/error.hpp"

namespace attune::cli {
namespace {

constexpr const char* footer = R"(Start here:
  attune doctor                        what this machine has, and what to do about the rest
  attune run specs/quickstart.yaml     generate, compile, launch and check
  attune explain --head-dim 128 --seqlen-q 4096 --causal
                                       which kernel would serve a problem, and why
Exit codes: 0 done, 1 a check failed, 2 bad usage or a bad spec, 3 this machine lacks something.)";

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

int run(int argc, char** argv) {
  CLI::App app("Attention kernels cut to your shapes: a YAML spec in, specialised CUDA kernels out.", "attune");
  app.footer(footer);
  app.set_version_flag("--version", ATTUNE_VERSION);
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(34);
  const std::vector<Command> commands{generate_command(app), compile_command(app), pack_command(app),
                                      run_command(app),      list_command(app),    explain_command(app),
                                      bench_command(app),    tune_command(app),    spec_from_command(app),
                                      cache_command(app),    doctor_command(app)};
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? static_cast<int>(Exit::done) : static_cast<int>(Exit::bad_usage);
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
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // so that messages on stderr come where they belong in a log
  try {
    return attune::cli::run(argc, argv);
  } catch (const attune::Error& error) {
    fmt::print(stderr, "attune: {}\n", error.what());
    return static_cast<int>(attune::cli::exit_for(error.status()));
  } catch (const std::filesystem::filesystem_error& error) {
    fmt::print(stderr, "attune: {}\n", error.what());
    return static_cast<int>(Exit::bad_usage);
  } catch (const std::exception& error) {
    fmt::print(stderr, "attune: {}\n", error.what());
    return static_cast<int>(Exit::check_failed);
  }
}
