// What a subcommand of the attune tool is, and the list of them.
#pragma once

#include <functional>

#include "runtime/cli/app.hpp"

namespace attune::cli {

/// The tool's exit codes.
enum class Exit : int {
  done = 0,
  check_failed = 1,   ///< a comparison, a compilation or a verification failed
  bad_usage = 2,      ///< a bad command line or a bad spec
  machine_lacks = 3,  ///< no GPU, no NVRTC
};

/// A subcommand registered with the parser, and what to do when it was asked for.
struct Command {
  CLI::App* app = nullptr;
  std::function<Exit()> run;
};

Command generate_command(CLI::App& root);
Command compile_command(CLI::App& root);
Command pack_command(CLI::App& root);
Command run_command(CLI::App& root);
Command list_command(CLI::App& root);
Command explain_command(CLI::App& root);
Command features_command(CLI::App& root);
Command bench_command(CLI::App& root);
Command cache_command(CLI::App& root);
Command completion_command(CLI::App& root);
Command doctor_command(CLI::App& root);
Command spec_from_command(CLI::App& root);
Command tune_command(CLI::App& root);

}  // namespace attune::cli
