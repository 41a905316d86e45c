#include "runtime/emulator/host_compiler.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

#include "runtime/base/environment.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/files.hpp"
#include "runtime/emulator/seam.hpp"

namespace attune::emulator {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t max_messages = 1 << 20;
constexpr std::size_t max_image = 1 << 28;
constexpr const char* messages_file = "messages.txt";
constexpr const char* main_file = "main.cpp";
constexpr const char* image_file = "kernel.so";

struct Finished {
  int status = 0;        ///< of waitpid
  std::string messages;  ///< stdout and stderr

  [[nodiscard]] bool ok() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
  [[nodiscard]] std::string how() const {
    return WIFEXITED(status) ? fmt::format("exit code {}", WEXITSTATUS(status))
                             : fmt::format("signal {}", WTERMSIG(status));
  }
};

/// Runs a command in the folder, without a shell, and waits for it. Throws std::system_error when it cannot be started.
Finished run(std::vector<std::string> command, const fs::path& folder) {
  struct Actions {
    posix_spawn_file_actions_t value{};
    Actions() { posix_spawn_file_actions_init(&value); }
    ~Actions() { posix_spawn_file_actions_destroy(&value); }
    Actions(const Actions&) = delete;
    Actions& operator=(const Actions&) = delete;
  } actions;
  posix_spawn_file_actions_addchdir_np(&actions.value, folder.c_str());
  posix_spawn_file_actions_addopen(&actions.value, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions.value, STDOUT_FILENO, messages_file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions.value, STDOUT_FILENO, STDERR_FILENO);

  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = -1;
  const int error = ::posix_spawn(&child, arguments.front(), &actions.value, nullptr, arguments.data(), environ);
  if (error != 0) throw std::system_error(error, std::generic_category(), "cannot start " + command.front());
  Finished finished;
  while (::waitpid(child, &finished.status, 0) < 0) {
    if (errno == ECHILD) break;  // the process ignores SIGCHLD: what the command left behind tells
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "cannot wait for " + command.front());
  }
  finished.messages = read_file(folder / messages_file, max_messages).value_or("(no messages: too many to keep)");
  return finished;
}

bool is_program(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

/// Where a shell would find this program.
std::optional<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return is_program(name) ? std::optional(fs::absolute(name).string()) : std::nullopt;
  }
  std::istringstream folders(environment("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
    if (is_program(candidate)) return fs::absolute(candidate).string();
  }
  return std::nullopt;
}

/// The compiler and the arguments that come with it.
std::vector<std::string> find_command() {
  std::istringstream named(environment("CXX"));
  std::vector<std::string> command;
  for (std::string word; named >> word;) command.push_back(word);
  if (!command.empty()) {
    const auto program = find_program(command.front());
    if (!program) {
      throw Error(ATTUNE_NOT_COMPILED,
                  fmt::format("no host compiler: CXX names {}, which is no program here", command.front()));
    }
    command.front() = *program;
    return command;
  }
  for (const char* name : {"c++", "g++", "clang++"}) {
    if (const auto program = find_program(name)) return {*program};
  }
  throw Error(ATTUNE_NOT_COMPILED,
              "no host compiler: none of c++, g++ and clang++ is in PATH; install g++ or clang++, or set CXX");
}

}  // namespace

HostCompiler::HostCompiler() : command_(find_command()), path_(fmt::format("{}", fmt::join(command_, " "))) {
  std::vector<std::string> command = command_;
  command.emplace_back("--version");
  Finished finished;
  try {
    const ScratchFolder folder;
    finished = run(std::move(command), folder.path());
  } catch (const fs::filesystem_error& error) {  // of the folder: the compiler is there
    throw Error(ATTUNE_NOT_COMPILED,
                fmt::format("the host compiler {} has no folder to work in: {}", path_, error.what()));
  } catch (const std::system_error& error) {
    throw Error(ATTUNE_NOT_COMPILED, fmt::format("no host compiler: {}", error.what()));
  }
  if (!finished.ok()) {
    throw Error(ATTUNE_NOT_COMPILED, fmt::format("no host compiler: {} --version ended with {}:\n{}", path_,
                                                 finished.how(), finished.messages));
  }
  version_ = finished.messages.substr(0, finished.messages.find('\n'));
}

Compiled HostCompiler::compile(const Source& source) const {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> command = command_;
  for (std::string& option : host_options()) command.push_back(std::move(option));
  command.insert(command.end(), {"-DATTUNE_KERNEL=" + source.name, main_file, "-o", image_file});
  try {
    const ScratchFolder folder;
    const std::string source_file = source.name + ".cu";
    for (const auto& [name, text] : embedded_seam()) write_file(folder.path() / name, text);
    write_file(folder.path() / source_file, source.text);
    write_file(folder.path() / main_file,
               fmt::format("#include \"declarations.hpp\"\n#include \"{}\"\n#include \"bodies.hpp\"\n", source_file));
    const Finished finished = run(std::move(command), folder.path());
    if (!finished.ok()) {
      throw Error(ATTUNE_COMPILE_ERROR,
                  fmt::format("{} cannot compile {} ({}):\n{}", path_, source.name, finished.how(), finished.messages));
    }
    auto image = read_file(folder.path() / image_file, max_image);
    if (!image) throw Error(ATTUNE_COMPILE_ERROR, fmt::format("{} left no {} of {}", path_, image_file, source.name));
    Compiled compiled;
    compiled.image = std::move(*image);
    compiled.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return compiled;
  } catch (const std::system_error& error) {  // std::filesystem::filesystem_error among them
    throw Error(ATTUNE_COMPILE_ERROR, fmt::format("cannot compile {} for the emulator: {}", source.name, error.what()));
  }
}

std::vector<std::string> host_options() {
  return {"-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wno-unknown-pragmas", "-DATTUNE_EMULATOR"};
}

std::string seam_text() {
  std::string all;
  for (const auto& [name, text] : embedded_seam()) all += fmt::format("// {}\n{}", name, text);
  return all;
}

}  // namespace attune::emulator
