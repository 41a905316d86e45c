// Words by which blocks of one launch hand over what they wrote to global memory: who announced which, and who waits
// for them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/emulator/clock.hpp"
#include "runtime/emulator/global_memory.hpp"

namespace attune::emulator {

/// Thread-safe. The workers of a launch run its blocks; one that waits for a word does nothing else meanwhile.
class Announcements {
 public:
  /// Every worker says with leave() that it runs no further block.
  explicit Announcements(int workers) : workers_(workers) {}

  /// Writes the word, or says what is wrong: another stands there, and the announcing thread does not know that, or
  /// does not know of everyone who has heard it.
  std::optional<std::string> announce(void* place, std::uint64_t word, const Access& by);

  /// A thread that waits for a word.
  struct Awaited {
    const void* place = nullptr;
    std::uint64_t word = 0;
    Epoch epoch;
  };

  /// What the thread of one of those Awaited gets to know: what an announcing thread knew.
  struct News {
    std::size_t awaited = 0;
    unsigned long long block = 0;
    Clock clock;
  };

  /// Waits until at least one of these words of the block's threads stands. Empty when none ever will, as all workers
  /// wait or have left.
  std::vector<News> wait(unsigned long long block, std::span<const Awaited> awaited);

  void leave();

 private:
  struct Heard {
    unsigned long long block = 0;
    Epoch epoch;
  };
  struct Announcement {
    std::uint64_t word = 0;
    unsigned long long block = 0;
    Epoch epoch;
    Clock clock;
    std::vector<Heard> heard;  ///< by whom
  };

  std::vector<News> listen(unsigned long long block, std::span<const Awaited> awaited);
  void end_if_all_wait();

  std::mutex mutex_;  ///< guards everything here, and the words themselves
  std::condition_variable changed_;
  std::map<const void*, Announcement> announcements_;  ///< the last of each place
  int workers_;
  int waiting_ = 0;         ///< workers that have found nothing since the last announcement
  std::uint64_t made_ = 0;  ///< announcements
  bool deadlock_ = false;
};

}  // namespace attune::emulator
