#include "runtime/registry/prepare_all.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <vector>

#include "generator/parallel.hpp"
#include "runtime/base/error.hpp"

namespace attune {
namespace {

/// Fills in what the item's preparation came to.
void prepare_one(Registry& registry, const AnyArgs& any, const std::function<void()>& enter_context,
                 PrepareProgress& progress) {
  const auto start = std::chrono::steady_clock::now();
  try {
    progress.name = std::visit([](const auto* args) { return check_arguments(*args).text(); }, any.pointer);
    enter_context();
    registry.prepare(any);
  } catch (const Error& error) {
    progress.status = error.status();
    progress.message = error.what();
  } catch (const std::exception& error) {
    progress.status = ATTUNE_INTERNAL_ERROR;
    progress.message = error.what();
  }
  progress.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

void prepare_all(Registry& registry, std::span<const AnyArgs> items, int threads, const OnProgress& on_progress) {
  if (items.empty()) return;
  const std::function<void()> enter_context = registry.share_context();
  std::vector<PrepareProgress> results(items.size());
  std::mutex reporting;
  std::size_t done = 0;
  parallel_for(static_cast<long long>(items.size()), threads, [&](long long i) {
    const auto item = static_cast<std::size_t>(i);
    PrepareProgress& progress = results[item];
    progress.item = item;
    progress.total = items.size();
    prepare_one(registry, items[item], enter_context, progress);
    const std::lock_guard lock(reporting);
    progress.done = ++done;
    if (on_progress) on_progress(progress);
  });
  const auto failed = std::ranges::find_if(results, [](const auto& result) { return result.status != ATTUNE_OK; });
  if (failed == results.end()) return;
  const std::string name = failed->name.empty() ? "" : fmt::format(" ({})", failed->name);
  throw Error(failed->status, fmt::format("item {}{}: {}", failed->item, name, failed->message));
}

}  // namespace attune
