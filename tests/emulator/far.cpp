// Tensors beyond 2^32 elements, and sequences of a million keys, on the emulator: addresses without memory
// behind them but for the pages that are touched.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>

#include "tests/harness/far_calls.hpp"

namespace attune::emulator_tests {
namespace {

using testing::Far;
using testing::far_strides;

class MappedMemory : public testing::FarMemory {
 public:
  explicit MappedMemory(std::size_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    REQUIRE(data_ != MAP_FAILED);
  }
  ~MappedMemory() override { ::munmap(data_, bytes_); }

  [[nodiscard]] char* data() const override { return static_cast<char*>(data_); }
  void write(std::size_t offset, const void* from, std::size_t bytes) override {
    REQUIRE(offset + bytes <= bytes_);
    std::memcpy(data() + offset, from, bytes);
  }
  void read(void* to, std::size_t offset, std::size_t bytes) const override {
    REQUIRE(offset + bytes <= bytes_);
    std::memcpy(to, data() + offset, bytes);
  }

 private:
  std::size_t bytes_;
  void* data_;
};

std::unique_ptr<testing::FarMemory> mapped(std::size_t bytes) { return std::make_unique<MappedMemory>(bytes); }

/// A registry that emulates and compiles what is missing.
struct Emulated {
  Registry registry{{.device = ATTUNE_DEVICE_EMULATOR}};
};

}  // namespace

TEST_CASE("prefill reads and writes tensors beyond 2^32 elements, whichever stride is the large one") {
  Emulated emulated;
  for (const Far far : far_strides) {
    testing::check_far_prefill(emulated.registry, mapped, far, "prefill_sm80");
    testing::check_far_prefill(emulated.registry, mapped, far, "prefill_sm90");
  }
}

TEST_CASE("ragged batches of a million rows and beyond 2^32 elements are prefilled, their last sequence too") {
  Emulated emulated;
  testing::check_far_ragged_prefill(emulated.registry, mapped, "prefill_sm80");
  testing::check_far_ragged_prefill(emulated.registry, mapped, "prefill_sm90");
}

TEST_CASE("caches of pages beyond 2^32 elements are read by prefill and decode, their last page too") {
  Emulated emulated;
  testing::check_far_paged_prefill(emulated.registry, mapped);
  for (const int page_size : {16, 13, 256}) testing::check_far_paged_decode(emulated.registry, mapped, page_size);
}

TEST_CASE("decode and combine read and write tensors beyond 2^32 elements, whichever stride is the large one") {
  Emulated emulated;
  for (const Far far : far_strides) testing::check_far_decode(emulated.registry, mapped, far);
}

TEST_CASE("decode attends to the last of a million keys") {
  Emulated emulated;
  testing::check_long_decode(emulated.registry, mapped);
}

TEST_CASE("new keys are stored beyond 2^32 elements, by slots and behind the keys of a table") {
  Emulated emulated;
  for (const bool by_slots : {true, false}) testing::check_far_store(emulated.registry, mapped, by_slots);
}

TEST_CASE("states beyond 2^32 elements are merged, whichever stride is the large one") {
  Emulated emulated;
  for (const Far far : far_strides) testing::check_far_merge(emulated.registry, mapped, far);
}

}  // namespace attune::emulator_tests
