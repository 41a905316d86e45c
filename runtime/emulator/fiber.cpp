#include "runtime/emulator/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace attune::emulator {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t stack_bytes = 512 << 10;
#else
constexpr std::size_t stack_bytes = 128 << 10;
#endif

/// Tells AddressSanitizer that no frame lives between the two addresses. It keeps the marks of frames that were left
/// without returning: those an exception unwound, and those of a fiber that is over, whose pages another one may get.
void forget_frames([[maybe_unused]] const void* from, [[maybe_unused]] const void* to) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(
      from, static_cast<std::size_t>(static_cast<const char*>(to) - static_cast<const char*>(from)));
#endif
}

/// Pages of their own with an unmapped one below, so that a stack that overflows is a crash and no mystery. Boost's
/// own allocators need a part of its library that cannot be linked into a shared object.
struct Stack {
  static boost::context::stack_context allocate() {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t bytes = stack_bytes + page;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, page, PROT_NONE);
    forget_frames(memory, static_cast<char*>(memory) + bytes);
    boost::context::stack_context context;
    context.size = bytes;
    context.sp = static_cast<char*>(memory) + bytes;
    return context;
  }

  static void deallocate(boost::context::stack_context& context) {
    munmap(static_cast<char*>(context.sp) - context.size, context.size);
  }
};

}  // namespace

Fiber::Fiber() {
#if defined(__SANITIZE_THREAD__)
  tsan_fiber_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(std::function<Fiber*()> body) : body_(std::move(body)) {
  const boost::context::stack_context stack = Stack::allocate();
  stack_bytes_ = stack_bytes;
  stack_bottom_ = static_cast<char*>(stack.sp) - stack_bytes_;
  context_ =
      boost::context::fiber(std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack), Stack{},
                            [this](boost::context::fiber&& caller) { return enter(std::move(caller)); });
#if defined(__SANITIZE_THREAD__)
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  if (body_) __tsan_destroy_fiber(tsan_fiber_);
#endif
}

boost::context::fiber Fiber::enter(boost::context::fiber&& caller) {
  arrive(std::move(caller));
  Fiber* next = body_();
  next->resumed_by_ = nullptr;
  announce_switch(*next, true);
  return std::move(next->context_);
}

void Fiber::switch_to(Fiber& next) {
  next.resumed_by_ = this;
  announce_switch(next, false);
  arrive(std::move(next.context_).resume());
}

void Fiber::forget_unwound_frames() { forget_frames(stack_bottom_, __builtin_frame_address(0)); }

void Fiber::announce_switch([[maybe_unused]] Fiber& next, [[maybe_unused]] bool for_good) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack_, next.stack_bottom_, next.stack_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(next.tsan_fiber_, 0);
#endif
}

void Fiber::arrive(boost::context::fiber&& caller) {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &bytes);
  if (resumed_by_ != nullptr) {
    resumed_by_->stack_bottom_ = bottom;
    resumed_by_->stack_bytes_ = bytes;
  }
#endif
  if (resumed_by_ != nullptr) resumed_by_->context_ = std::move(caller);
}

}  // namespace attune::emulator
