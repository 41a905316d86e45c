// Memory that XLA lends to a call, over functions that stand in for XLA's.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "runtime/python/xla_scratch.hpp"
#include "tests/unit/closed_registry.hpp"

namespace {

namespace xla = attune::xla;
using attune::testing::address;

/// What XLA was asked for.
struct Asked {
  bool full = false;  ///< it has no room
  std::vector<std::size_t> allocated;
  std::vector<const void*> freed;
  int destroyed = 0;  ///< errors
};

Asked& asked() {
  static Asked one;
  return one;
}

void* const lent = address(0x1000);
xla::ExecutionContext* const context = static_cast<xla::ExecutionContext*>(address(0x2000));
xla::Error* const refusal = static_cast<xla::Error*>(address(0x3000));

xla::Error* allocate(xla::MemoryAllocateArgs* args) {
  CHECK(args->struct_size == sizeof(*args));
  CHECK(args->context == context);
  CHECK(args->alignment % 16 == 0);
  asked().allocated.push_back(args->size);
  if (asked().full) return refusal;
  args->data = lent;
  return nullptr;
}

xla::Error* release(xla::MemoryFreeArgs* args) {
  CHECK(args->context == context);
  CHECK(args->size == asked().allocated.back());
  asked().freed.push_back(args->data);
  return nullptr;
}

void destroy(xla::ErrorDestroyArgs* args) {
  CHECK(args->error == refusal);
  ++asked().destroyed;
}

/// A call of an XLA whose functions are these.
struct FakeCall {
  xla::Api api{};
  xla::CallFrame frame{};

  FakeCall() {
    asked() = {};
    api.error_destroy = destroy;
    api.memory_allocate = allocate;
    api.memory_free = release;
    frame.api = &api;
    frame.context = context;
  }
};

}  // namespace

TEST_CASE("a call has the memory that it asks XLA for until its work is queued, and then gives it back") {
  const FakeCall call;
  {
    const xla::Scratch scratch(call.frame, 4096);
    CHECK(scratch.data() == lent);
    CHECK(scratch.bytes() == 4096);
    CHECK(asked().freed.empty());
  }
  CHECK(asked().allocated == std::vector<std::size_t>{4096});
  CHECK(asked().freed == std::vector<const void*>{lent});
}

TEST_CASE("a call that needs no memory asks XLA for none") {
  const FakeCall call;
  CHECK(xla::Scratch(call.frame, 0).data() == nullptr);
  CHECK(asked().allocated.empty());
  CHECK(asked().freed.empty());
}

TEST_CASE("where XLA has no room, a call has no memory, and the refusal is destroyed") {
  const FakeCall call;
  asked().full = true;
  {
    const xla::Scratch scratch(call.frame, 4096);
    CHECK(scratch.data() == nullptr);
    CHECK(scratch.bytes() == 0);
  }
  CHECK(asked().destroyed == 1);
  CHECK(asked().freed.empty());
}
