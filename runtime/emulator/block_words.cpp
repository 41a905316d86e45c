// Words by which blocks hand over what they wrote to global memory.
#include <fmt/format.h>

#include "runtime/emulator/block.hpp"

namespace attune::emulator {

void Block::announce_word(void* place, unsigned long long word, int line) {
  require_no_cluster("announce_word", line);
  Thread& self = *current_;
  const Access access = access_of(self, epoch_of(self, line));
  require(self, line, global_.check_announced(place, access));
  if (const auto problem = announcements_.announce(place, word, access)) {
    fail(self, line, fmt::format("race: announces a word at {}, {}", global_.name_of_word(place), *problem));
  }
  advance(self);
}

void Block::await_word(const void* place, unsigned long long word, int line) {
  Thread& self = *current_;
  require(self, line, global_.check_awaited(place));
  self.place = place;
  self.word = word;
  warps_[self.index / warp_size].apart |= 1U << self.index % warp_size;
  wait_at(Collective::await_word, line);
}

/// Nothing else in the block can happen: waits for words that its threads await. False when none comes.
bool Block::hear_words() {
  std::vector<Thread*> waiting;
  std::vector<Announcements::Awaited> awaited;
  for (Thread& thread : threads_) {
    if (thread.state != Thread::State::waiting || thread.collective != Collective::await_word) continue;
    waiting.push_back(&thread);
    awaited.push_back({.place = thread.place, .word = thread.word, .epoch = epoch_of(thread, thread.line)});
  }
  if (waiting.empty()) return false;
  const std::vector<Announcements::News> all_news = announcements_.wait(number_, awaited);
  for (const Announcements::News& news : all_news) {
    Thread& thread = *waiting[news.awaited];
    if (news.block > number_) {
      fail(thread, thread.line,
           fmt::format("waits for block {}, which may start later, by the word at {}", news.block,
                       global_.name_of_word(thread.place)));
    }
    (news.block == number_ ? thread.clock : thread.heard[news.block]).join(news.clock);
    go_on(thread);
  }
  return !all_news.empty();
}

}  // namespace attune::emulator
