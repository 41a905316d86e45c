#include "runtime/emulator/emulator.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "generator/parallel.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/files.hpp"
#include "runtime/call/device.hpp"
#include "runtime/emulator/announcements.hpp"
#include "runtime/emulator/block.hpp"

namespace attune::emulator {
namespace {

/// The bytes as a file that dlopen can read, in memory alone.
FileDescriptor file_in_memory(std::string_view bytes, const std::string& name) {
  FileDescriptor file(memfd_create(name.c_str(), MFD_CLOEXEC));
  while (file.open() && !bytes.empty()) {
    const ssize_t written = write(file.get(), bytes.data(), bytes.size());
    if (written <= 0) return FileDescriptor();
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return file;
}

void merge(std::map<int, BankSite>& into, const std::map<int, BankSite>& sites) {
  for (const auto& [line, site] : sites) {
    BankSite& sum = into[line];
    sum.line = line;
    sum.accesses += site.accesses;
    sum.wavefronts += site.wavefronts;
    sum.ideal += site.ideal;
  }
}

/// Says that it is over, however that comes.
class Worker {
 public:
  explicit Worker(Announcements& announcements) : announcements_(announcements) {}
  ~Worker() { announcements_.leave(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

 private:
  Announcements& announcements_;
};

/// What stops the runs of this thread; null: nothing.
const std::atomic<bool>*& stop_of_thread() {
  thread_local const std::atomic<bool>* stop = nullptr;
  return stop;
}

}  // namespace

Stoppable::Stoppable(const std::atomic<bool>& stop) { stop_of_thread() = &stop; }

Stoppable::~Stoppable() { stop_of_thread() = nullptr; }

Kernel::Kernel(std::string_view shared_object, std::string name) : name_(std::move(name)) {
  file_ = file_in_memory(shared_object, name_);
  if (!file_.open()) throw Error(ATTUNE_INTERNAL_ERROR, "no file in memory can be made for an emulated kernel");
  library_ = dlopen(fmt::format("/proc/self/fd/{}", file_.get()).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) {
    const char* reason = dlerror();
    throw Error(ATTUNE_COMPILE_ERROR,
                fmt::format("the host-compiled {} cannot be loaded: {}", name_, reason != nullptr ? reason : "?"));
  }
}

Kernel::~Kernel() {
  if (library_ != nullptr) dlclose(library_);
}

Kernel::Kernel(Kernel&& other) noexcept
    : name_(std::move(other.name_)), file_(std::move(other.file_)), library_(std::exchange(other.library_, nullptr)) {}

void* Kernel::symbol(const char* name) const { return dlsym(library_, name); }

Report Kernel::run(const Launch& launch) const {
  if (launch.threads <= 0 || launch.threads % static_cast<int>(warp_size) != 0) {
    throw Error(ATTUNE_INTERNAL_ERROR, fmt::format("{} threads are no whole warps", launch.threads));
  }
  if (launch.grid.cluster == 0 || launch.grid.y % launch.grid.cluster != 0) {
    throw Error(ATTUNE_INTERNAL_ERROR,
                fmt::format("{} blocks along y are no whole clusters of {}", launch.grid.y, launch.grid.cluster));
  }
  auto* const run_thread = reinterpret_cast<RunThread*>(symbol("attune_run_thread"));
  if (run_thread == nullptr) {
    throw Error(ATTUNE_COMPILE_ERROR, fmt::format("the host-compiled {} has no entry to run", name_));
  }
  const unsigned long long clusters = launch.grid.blocks() / launch.grid.cluster;
  const unsigned long long cores = launch.jobs > 0 ? launch.jobs : std::max(1U, std::thread::hardware_concurrency());
  const auto workers = static_cast<int>(std::min(cores, clusters));
  GlobalMemory global(launch.memory);
  Announcements announcements(workers);
  constexpr unsigned long long none = std::numeric_limits<unsigned long long>::max();
  std::atomic<unsigned long long> next = 0;
  std::mutex mutex;  // guards what follows
  unsigned long long first_fault = none;
  Report report;
  std::map<int, BankSite> sites;

  // Clusters, each most often one block, start in order, so every one before the first fault that is seen has been run:
  // the same fault is reported however many run side by side. Those that wait for one that failed are in a deadlock
  // once the others are over.
  std::atomic<bool> failed = false;
  const std::atomic<bool>* const stop = stop_of_thread();
  const auto work = [&](long long) {
    const Worker worker(announcements);
    Block block(launch, run_thread, global, announcements);
    while (!failed) {
      const unsigned long long number = next++;
      if (number >= clusters) break;
      const std::string fault = stop != nullptr && *stop ? "stopped" : block.run(number);
      if (fault.empty()) continue;
      failed = true;
      const std::lock_guard lock(mutex);
      if (number < first_fault) {
        first_fault = number;
        report.fault = fmt::format("{}: {}", name_, fault);
      }
    }
    if (launch.count_banks) {
      const std::lock_guard lock(mutex);
      merge(sites, block.banks().sites());
    }
  };
  parallel_for(workers, workers, work);
  for (const auto& [line, site] : sites) report.sites.push_back(site);
  return report;
}

Device device() {
  Device device = find_gpu_device(usual_gpu).value();
  device.name = "emulator";
  return device;
}

}  // namespace attune::emulator
