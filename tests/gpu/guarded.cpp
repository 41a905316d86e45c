// Calls on tensors that each stand alone between inaccessible pages.
#include "tests/gpu/guarded.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/random.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/harness/decode_image.hpp"
#include "tests/harness/random_prefill.hpp"

namespace attune::gpu_tests {
namespace {

// cuda.h's, of the functions below.
struct Location {
  int type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int id = 0;
};
struct AllocationProperties {
  int type = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  int handle_types = 0;
  Location location;
  void* security_attributes = nullptr;
  std::array<unsigned char, 8> flags{};
};
struct Access {
  Location location;
  int flags = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};

/// The driver's functions for virtual memory, which have one ABI each.
class VirtualMemory {
 public:
  VirtualMemory() {
    resolve(reserve, "cuMemAddressReserve");
    resolve(free, "cuMemAddressFree");
    resolve(create, "cuMemCreate");
    resolve(release, "cuMemRelease");
    resolve(map, "cuMemMap");
    resolve(unmap, "cuMemUnmap");
    resolve(set_access, "cuMemSetAccess");
    resolve(granularity, "cuMemGetAllocationGranularity");
  }

  using Address = unsigned long long;
  int (*reserve)(Address*, std::size_t, std::size_t, Address, unsigned long long) = nullptr;
  int (*free)(Address, std::size_t) = nullptr;
  int (*create)(unsigned long long*, std::size_t, const AllocationProperties*, unsigned long long) = nullptr;
  int (*release)(unsigned long long) = nullptr;
  int (*map)(Address, std::size_t, std::size_t, unsigned long long, unsigned long long) = nullptr;
  int (*unmap)(Address, std::size_t) = nullptr;
  int (*set_access)(Address, std::size_t, const Access*, std::size_t) = nullptr;
  int (*granularity)(std::size_t*, const AllocationProperties*, int) = nullptr;

 private:
  template <class Function>
  void resolve(Function*& function, const char* name) {
    void* const symbol = dlsym(driver_, name);
    REQUIRE_MESSAGE(symbol != nullptr, name);
    function = reinterpret_cast<Function*>(symbol);
  }

  void* driver_ = dlopen("libcuda.so.1", RTLD_NOW);
};

const VirtualMemory& virtual_memory() {
  static const VirtualMemory memory;
  return memory;
}

}  // namespace

struct GuardedMemory::Pages {
  VirtualMemory::Address reserved = 0;
  VirtualMemory::Address mapped = 0;
  VirtualMemory::Address data = 0;
  std::size_t page = 0;
  std::size_t bytes = 0;
};

GuardedMemory::GuardedMemory(std::size_t bytes, End end) : pages_(std::make_unique<Pages>()) {
  const VirtualMemory& memory = virtual_memory();
  constexpr int minimum = 0;
  constexpr std::size_t alignment = 16;
  const AllocationProperties properties;
  Pages& pages = *pages_;
  REQUIRE(memory.granularity(&pages.page, &properties, minimum) == 0);
  const std::size_t needed = bytes == 0 ? 1 : bytes;
  pages.bytes = (needed + pages.page - 1) / pages.page * pages.page;
  REQUIRE(memory.reserve(&pages.reserved, pages.bytes + 2 * pages.page, 0, 0, 0) == 0);
  pages.mapped = pages.reserved + pages.page;
  unsigned long long handle = 0;
  REQUIRE(memory.create(&handle, pages.bytes, &properties, 0) == 0);
  REQUIRE(memory.map(pages.mapped, pages.bytes, 0, handle, 0) == 0);
  REQUIRE(memory.release(handle) == 0);  // the mapping holds it
  const Access access;
  REQUIRE(memory.set_access(pages.mapped, pages.bytes, &access, 1) == 0);
  const std::size_t taken = (bytes + alignment - 1) / alignment * alignment;
  pages.data = pages.mapped + (end == End::front ? 0 : pages.bytes - taken);
}

GuardedMemory::~GuardedMemory() {
  const VirtualMemory& memory = virtual_memory();
  memory.unmap(pages_->mapped, pages_->bytes);
  memory.free(pages_->reserved, pages_->bytes + 2 * pages_->page);
}

void* GuardedMemory::data() const { return reinterpret_cast<void*>(pages_->data); }

namespace {

using testing::PrefillCase;
using testing::random_paged_case;
using testing::random_prefill_case;

/// What a call touches of a host memory, each piece in device memory of its own.
class GuardedPieces {
 public:
  GuardedPieces(Memory memory, GuardedMemory::End end) : end_(end), memory_(std::move(memory)) {}

  /// Where the arguments are to point at first.
  [[nodiscard]] void* host() { return memory_.data(); }

  /// Moves such a pointer to a piece; null stays.
  template <class T>
  void take(T*& pointer, std::size_t bytes) {
    if (pointer == nullptr) return;
    const std::ptrdiff_t place = reinterpret_cast<const std::byte*>(pointer) - reinterpret_cast<std::byte*>(host());
    pieces_.push_back({static_cast<std::size_t>(place), bytes, std::make_unique<GuardedMemory>(bytes, end_)});
    pointer = static_cast<T*>(pieces_.back().memory->data());
  }

  void upload() {
    for (const Piece& one : pieces_) {
      gpu().driver.copy_to_device(one.memory->data(), at<const void>(host(), one.place), one.bytes);
    }
  }

  /// Waits for the GPU; the memory with what the pieces hold.
  [[nodiscard]] Memory fetch() const {
    gpu().driver.synchronize();
    Memory after = memory_;
    for (const Piece& one : pieces_) {
      gpu().driver.copy_to_host(at<void>(after.data(), one.place), one.memory->data(), one.bytes);
    }
    return after;
  }

 private:
  struct Piece {
    std::size_t place;  ///< in the memory
    std::size_t bytes;
    std::unique_ptr<GuardedMemory> memory;
  };

  GuardedMemory::End end_;
  Memory memory_;
  std::vector<Piece> pieces_;
};

/// A call of an image whose tensors are contiguous (Layout::bshd), each of them and each array in memory of its own.
class GuardedCall {
 public:
  GuardedCall(CallImage image, GuardedMemory::End end) : image_(std::move(image)), pieces_(image_.memory(), end) {
    args_ = image_.args(pieces_.host());
    const Problem& problem = image_.problem();
    const auto elements = [&](std::int64_t rows, int heads, int head_dim) {
      return static_cast<std::size_t>(rows) * static_cast<std::size_t>(heads * padded_head_dim(head_dim)) *
             sizeof(std::uint16_t);
    };
    const std::int64_t queries = std::int64_t{problem.ragged ? 1 : problem.batch} * problem.stored_rows();
    const std::int64_t keys = std::int64_t{problem.stored_key_sequences()} * problem.stored_keys();
    pieces_.take(args_.q.data, elements(queries, problem.heads_q, problem.head_dim));
    pieces_.take(args_.k.data, elements(keys, problem.heads_kv, problem.head_dim));
    pieces_.take(args_.v.data, elements(keys, problem.heads_kv, problem.head_dim_of_v()));
    pieces_.take(args_.o.data, elements(queries, problem.heads_q, problem.head_dim_of_v()));
    pieces_.take(args_.lse, static_cast<std::size_t>(queries * problem.heads_q) * sizeof(float));
    const auto array = [&](const std::int32_t*& pointer, const std::vector<std::int32_t>& values) {
      pieces_.take(pointer, values.size() * sizeof(std::int32_t));
    };
    array(args_.cu_seqlens_q, image_.sequences().cu_seqlens_q);
    array(args_.cu_seqlens_k, image_.sequences().cu_seqlens_k);
    array(args_.seqused_k, image_.sequences().seqused_k);
    array(args_.seqused_q, image_.sequences().seqused_q);
    array(args_.block_table, image_.sequences().block_table);
  }

  void run_and_check(const TestRegistry& registry) {
    CAPTURE(image_.problem().text());
    pieces_.upload();
    REQUIRE_MESSAGE(attune_prefill(registry.get(), &args_, nullptr) == ATTUNE_OK, attune_last_error());
    image_.check(image_.outputs(pieces_.fetch()), args_.softmax_scale);
  }

 private:
  CallImage image_;
  GuardedPieces pieces_;
  attune_prefill_args args_{};
};

/// A call of decode whose tensors, arrays and workspace are each in memory of their own.
class GuardedDecode {
 public:
  GuardedDecode(const TestRegistry& registry, const testing::DecodeCase& one, std::uint64_t seed,
                GuardedMemory::End end)
      : image_(one, seed), pieces_(image_.memory(), end) {
    args_ = image_.args(pieces_.host());
    const DecodeProblem& problem = image_.problem();
    const auto elements = [&](std::int64_t rows, int heads) {
      return static_cast<std::size_t>(rows * heads * padded_head_dim(problem.head_dim)) * sizeof(std::uint16_t);
    };
    const std::int64_t queries = std::int64_t{problem.stored_sequences()} * problem.stored_queries();
    const std::int64_t keys = problem.packed_keys ? problem.total_k : std::int64_t{problem.pages} * problem.page_size;
    pieces_.take(args_.q.data, elements(queries, problem.heads_q));
    pieces_.take(args_.k.data, elements(keys, problem.heads_kv));
    pieces_.take(args_.v.data, elements(keys, problem.heads_kv));
    pieces_.take(args_.o.data, elements(queries, problem.heads_q));
    pieces_.take(args_.lse, static_cast<std::size_t>(queries * problem.heads_q) * sizeof(float));
    if (problem.appends()) {  // a token's keys, then its values
      const std::ptrdiff_t values =
          static_cast<std::byte*>(args_.v_new.data) - static_cast<std::byte*>(args_.k_new.data);
      pieces_.take(args_.k_new.data, 2 * elements(std::int64_t{problem.batch} * problem.seqlen_new, problem.heads_kv));
      args_.v_new.data = static_cast<std::byte*>(args_.k_new.data) + values;
    }
    if (problem.rotates()) {
      const std::size_t angles =
          static_cast<std::size_t>(problem.rotations) * static_cast<std::size_t>(problem.rotary_dim / 2);
      pieces_.take(args_.rotary_cos, angles * sizeof(std::uint16_t));
      pieces_.take(args_.rotary_sin, angles * sizeof(std::uint16_t));
    }
    const auto array = [&](const std::int32_t*& pointer, std::size_t count) {
      pieces_.take(pointer, count * sizeof(std::int32_t));
    };
    const auto batch = static_cast<std::size_t>(problem.batch);
    array(args_.seqlens_k, batch);
    array(args_.leftpad_k, batch);
    array(args_.seqused_q, batch);
    array(args_.cu_seqlens_q, batch + 1);
    array(args_.cu_seqlens_k, batch + 1);
    array(args_.block_table, image_.table().size());
    REQUIRE_MESSAGE(attune_decode_workspace(registry.get(), &args_, &args_.workspace_bytes) == ATTUNE_OK,
                    attune_last_error());
    workspace_.emplace(args_.workspace_bytes, end);
    args_.workspace = workspace_->data();
  }

  void run_and_check(const TestRegistry& registry) {
    CAPTURE(image_.problem().text());
    pieces_.upload();
    const std::vector<std::uint8_t> nan(args_.workspace_bytes, 0xff);
    gpu().driver.copy_to_device(workspace_->data(), nan.data(), nan.size());
    REQUIRE_MESSAGE(attune_decode(registry.get(), &args_, nullptr) == ATTUNE_OK, attune_last_error());
    image_.check(pieces_.fetch());
  }

 private:
  testing::DecodeImage image_;
  GuardedPieces pieces_;
  attune_decode_args args_{};
  std::optional<GuardedMemory> workspace_;
};

/// Runs the calls one behind the other, twice, so that each follows itself and others.
void run_twice(const TestRegistry& registry, std::vector<PrefillCase> cases) {
  std::vector<std::unique_ptr<GuardedCall>> calls;
  for (std::uint64_t i = 0; PrefillCase & one : cases) {
    one.layout = Layout::bshd;
    const auto end = i % 2 == 0 ? GuardedMemory::End::front : GuardedMemory::End::back;
    calls.push_back(std::make_unique<GuardedCall>(one.image(++i), end));
  }
  for (int round = 0; round < 2; ++round) {
    for (const auto& call : calls) call->run_and_check(registry);
  }
}

}  // namespace

TEST_CASE("ragged batches whose head_dim is padded touch nothing outside their tensors, called again and again") {
  const TestRegistry registry;  // its embedded kernels are for few head_dims
  std::vector<PrefillCase> cases;
  for (const auto& [heads_q, heads_kv] : {std::pair{28, 4}, {8, 4}, {4, 4}}) {
    for (const int head_dim : {8, 59, 72, 128, 136, 160, 176, 192, 200, 248, 250, 256}) {
      for (const int length : {1, 200, 1000}) {
        if (length == 1000 && heads_q == 28 && head_dim > 160) continue;  // the reference takes its time
        Problem problem{.dtype = length == 1 ? Dtype::fp16 : Dtype::bf16,
                        .batch = 3,
                        .heads_q = heads_q,
                        .heads_kv = heads_kv,
                        .seqlen_q = length == 1000 ? 40 : length,
                        .seqlen_k = length,
                        .head_dim = head_dim,
                        .ragged = true};
        problem.total_q = 3 * problem.seqlen_q;
        problem.total_k = 3 * problem.seqlen_k;
        PrefillCase one;
        one.problem = problem;
        for (int i = 0; i <= 3; ++i) {
          one.sequences.cu_seqlens_q.push_back(i * problem.seqlen_q);
          one.sequences.cu_seqlens_k.push_back(i * problem.seqlen_k);
        }
        cases.push_back(one);
      }
    }
  }
  run_twice(registry, std::move(cases));
}

TEST_CASE("200 random problems, ragged or not, touch nothing outside their tensors") {
  const TestRegistry registry;
  Random random(23);
  std::vector<PrefillCase> cases;
  for (int i = 0; i < 200; ++i) {
    PrefillCase one = random_prefill_case(random, 300);
    while (i % 4 != 0 && !one.problem.ragged) one = random_prefill_case(random, 300);
    if (i % 3 == 0) one.problem.head_dim = 1 + static_cast<int>(random.below(256));
    cases.push_back(std::move(one));
  }
  run_twice(registry, std::move(cases));
}

TEST_CASE("decode of sequences padded at the left, or of some of their queries, touches nothing outside its tensors") {
  const TestRegistry registry;
  Random random(25);
  std::vector<std::unique_ptr<GuardedDecode>> calls;
  for (std::uint64_t i = 0; i < 80; ++i) {
    testing::DecodeCase one = testing::random_leftpad_case(random, 300);
    while (one.problem.max_seqlen_k == 0) one = testing::random_leftpad_case(random, 300);
    const auto end = i % 2 == 0 ? GuardedMemory::End::front : GuardedMemory::End::back;
    calls.push_back(std::make_unique<GuardedDecode>(registry, one, i + 1, end));
  }
  for (int round = 0; round < 2; ++round) {
    for (const auto& call : calls) call->run_and_check(registry);
  }
}

TEST_CASE("caches in pages touch nothing outside their tensors") {
  const TestRegistry registry;
  Random random(24);
  std::vector<PrefillCase> cases;
  for (int i = 0; i < 40; ++i) cases.push_back(random_paged_case(random, 300));
  run_twice(registry, std::move(cases));
}

}  // namespace attune::gpu_tests
