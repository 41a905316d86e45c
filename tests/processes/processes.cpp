#include "tests/processes/processes.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "runtime/base/files.hpp"

namespace attune::process_tests {
namespace {

namespace fs = std::filesystem;

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  result.reserve(words.size() + 1);
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

std::vector<Workplace::Build> Workplace::builds() const {
  std::vector<Build> result;
  std::ifstream file(tally());
  for (Build build{}; file >> build.kernel >> build.process;) result.push_back(build);
  return result;
}

std::string Workplace::said() const {
  std::ostringstream text;
  text << std::ifstream(messages()).rdbuf();
  return text.str();
}

std::vector<std::string> Workplace::hidden(const std::string& part) const {
  std::vector<std::string> names;
  for (const auto& arch : fs::directory_iterator(root() / "v1")) {
    if (!arch.is_directory()) continue;
    for (const auto& entry : fs::directory_iterator(arch.path())) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with('.') && name.find(part) != std::string::npos) names.push_back(name);
    }
  }
  return names;
}

Gate::Gate() {
  if (::pipe2(ends_, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
}

void Gate::open() {
  for (int& end : ends_) {
    if (end >= 0) ::close(end);
    end = -1;
  }
}

pid_t start_worker(const Workplace& place, const Gate& gate, const std::vector<std::string>& arguments,
                   const std::vector<std::string>& settings) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (gate.input() >= 0) {
    posix_spawn_file_actions_adddup2(&actions, gate.input(), STDIN_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, place.messages().c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   0600);
  std::vector<std::string> words{ATTUNE_CACHE_WORKER};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment = settings;
  for (char** setting = environ; *setting != nullptr; ++setting) {
    const std::string text = *setting;
    const std::string name = text.substr(0, text.find('=') + 1);
    const bool replaced = std::ranges::any_of(settings, [&](const std::string& own) { return own.starts_with(name); });
    if (!replaced) environment.push_back(text);
  }
  pid_t process = -1;
  const int error = ::posix_spawn(&process, ATTUNE_CACHE_WORKER, &actions, nullptr, pointers(words).data(),
                                  pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " ATTUNE_CACHE_WORKER);
  return process;
}

int wait_for(pid_t process) {
  int status = 0;
  while (::waitpid(process, &status, 0) < 0) {
    if (errno != EINTR) throw std::runtime_error("waitpid failed");
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace attune::process_tests
