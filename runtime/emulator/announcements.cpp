#include "runtime/emulator/announcements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace attune::emulator {

std::optional<std::string> Announcements::announce(void* place, std::uint64_t word, const Access& by) {
  const std::lock_guard lock(mutex_);
  if (const auto found = announcements_.find(place); found != announcements_.end()) {
    const Announcement& last = found->second;
    const auto known = [&](const Heard& heard) { return by.knows(heard.block, heard.epoch); };
    const auto in_this_block = [&](const Heard& heard) { return heard.block == by.block; };
    const bool knows_last =
        by.knows(last.block, last.epoch) ||
        std::ranges::any_of(last.heard, [&](const Heard& heard) { return in_this_block(heard) && known(heard); });
    if (!knows_last) {
      return fmt::format("unordered with the announcement of {:#x} there in line {} of {}", last.word, last.epoch.line,
                         last.block == by.block ? "this block" : "another block");
    }
    const auto unknown = std::ranges::find_if_not(last.heard, known);
    if (unknown != last.heard.end()) {
      return fmt::format("unordered with the wait for {:#x} there in line {} of {}", last.word, unknown->epoch.line,
                         in_this_block(*unknown) ? "this block" : "another block");
    }
  }
  std::memcpy(place, &word, sizeof(word));
  announcements_[place] = {.word = word, .block = by.block, .epoch = by.epoch, .clock = *by.clock, .heard = {}};
  ++made_;
  waiting_ = 0;
  changed_.notify_all();
  return std::nullopt;
}

std::vector<Announcements::News> Announcements::wait(unsigned long long block, std::span<const Awaited> awaited) {
  std::unique_lock lock(mutex_);
  while (true) {
    std::vector<News> news = listen(block, awaited);
    if (!news.empty() || deadlock_) return news;
    ++waiting_;
    end_if_all_wait();
    changed_.wait(lock, [this, seen = made_] { return deadlock_ || made_ != seen; });
  }
}

void Announcements::leave() {
  const std::lock_guard lock(mutex_);
  --workers_;
  end_if_all_wait();
}

std::vector<Announcements::News> Announcements::listen(unsigned long long block, std::span<const Awaited> awaited) {
  std::vector<News> news;
  for (std::size_t i = 0; i < awaited.size(); ++i) {
    const auto found = announcements_.find(awaited[i].place);
    if (found == announcements_.end() || found->second.word != awaited[i].word) continue;
    found->second.heard.push_back({block, awaited[i].epoch});
    news.push_back({.awaited = i, .block = found->second.block, .clock = found->second.clock});
  }
  return news;
}

/// Nobody is left who could announce anything.
void Announcements::end_if_all_wait() {
  if (waiting_ != workers_) return;
  deadlock_ = true;
  changed_.notify_all();
}

}  // namespace attune::emulator
