// A thread of a kernel as a stack that can be left and taken up again, on Boost.Context.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <functional>

namespace attune::emulator {

class Fiber {
 public:
  /// The stack that is running: the one to come back to.
  Fiber();

  /// A stack of its own, for code that starts at the first switch to it. `body` returns the fiber to go on with when
  /// this one is over; it must have returned before the fiber goes, and let no exception out.
  explicit Fiber(std::function<Fiber*()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Leaves this fiber, which must be the running one, for `next`, and returns when something switches back.
  void switch_to(Fiber& next);

  /// To be called by this fiber, which must be the running one, where it has caught an exception: AddressSanitizer
  /// takes the frames that were unwound for live ones otherwise.
  void forget_unwound_frames();

 private:
  boost::context::fiber enter(boost::context::fiber&& caller);
  void announce_switch(Fiber& next, bool for_good);
  void arrive(boost::context::fiber&& caller);

  std::function<Fiber*()> body_;
  boost::context::fiber context_;  ///< where it stands, while it is not running
  Fiber* resumed_by_ = nullptr;    ///< null: by one that is over
  // What the sanitizers want to know of a stack.
  const void* stack_bottom_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
  void* tsan_fiber_ = nullptr;
};

}  // namespace attune::emulator
