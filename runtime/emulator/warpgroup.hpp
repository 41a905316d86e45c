// The products that one warpgroup has under way (PTX ISA, "wgmma"): what their registers hold meanwhile, and when they
// read and write.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generator/variant.hpp"
#include "runtime/base/random.hpp"
#include "runtime/emulator/fragments.hpp"
#include "runtime/emulator/matrix_descriptor.hpp"
#include "runtime/emulator/shared_memory.hpp"

namespace attune::emulator {

constexpr unsigned warpgroup_warps = 4;
constexpr unsigned warpgroup_threads = warpgroup_warps * warp_size;
constexpr unsigned product_rows = 64;

/// One wgmma as its threads, counted within the warpgroup, call it: D is 64 x `columns`, A 64 x 16, B 16 x `columns`.
struct Product {
  Dtype dtype = Dtype::bf16;
  unsigned columns = 0;
  bool accumulate = false;
  bool A_in_registers = false;
  std::uint64_t A = 0;  ///< descriptor, unless A is in registers
  std::uint64_t B = 0;  ///< descriptor
  Major A_major = Major::k;
  Major B_major = Major::k;
  int line = 0;
  std::array<float*, warpgroup_threads> D{};                      ///< columns / 2 floats of each thread
  std::array<const std::uint32_t*, warpgroup_threads> A_words{};  ///< four of each thread
};

/// Products are carried out in the order of issue, each at a tick drawn when it is issued or when a wait makes it.
/// Until a thread settles D, its registers hold NaN and the result is kept here, so that code that uses them too early
/// cannot go unnoticed.
class Warpgroup {
 public:
  void reset(std::uint64_t seed);

  /// What is wrong, with which thread of the warpgroup.
  struct Problem {
    unsigned thread = 0;
    std::string text;
  };

  /// Says what is wrong: no fence since registers of D or A were in use by other instructions, D touched while an
  /// earlier product has it or written since it was settled, which no fence orders. Descriptors have no problem.
  std::optional<Problem> issue(const Product& product);

  void fence(unsigned warp);
  void commit(unsigned warp) { ++warps_[warp].committed; }

  /// Waits until at most `pending` of the warp's groups are under way. Says what is wrong: registers of A changed.
  std::optional<Problem> wait(unsigned warp, unsigned pending, SharedMemory& shared);

  /// The thread starts to use these registers: they get what the products made of them. Says what is wrong: a product
  /// that no wait has covered, or registers touched before.
  std::optional<Problem> settle(unsigned thread, float* D, unsigned count);

  /// Time passes: whatever is due by now is carried out.
  void tick(SharedMemory& shared);

  /// The group that the warp's next product belongs to, and the newest that it has waited for; counted from 1.
  [[nodiscard]] std::uint32_t group(unsigned warp) const { return warps_[warp].committed + 1; }
  [[nodiscard]] std::uint32_t finished(unsigned warp) const { return warps_[warp].finished; }

 private:
  struct Warp {
    std::uint32_t committed = 0;
    std::uint32_t finished = 0;
    std::uint32_t fences = 0;
  };

  /// Registers that are, or were, a product's D.
  struct Accumulator {
    std::array<float*, warpgroup_threads> registers{};
    unsigned columns = 0;
    int line = 0;                                                  ///< of the newest product
    std::array<bool, warpgroup_threads> lent{};                    ///< from issue to settle()
    std::array<std::uint32_t, warpgroup_threads> settled_after{};  ///< fences of the thread's warp
    std::array<std::uint32_t, warpgroup_warps> group{};            ///< the newest product's
    std::vector<float> values;                                     ///< 64 x columns
    std::array<std::vector<float>, warpgroup_threads> settled;     ///< what the registers held then; empty: never
  };

  /// Registers that were a product's A, and what they held at the thread's last fence.
  struct Fragment {
    std::array<const std::uint32_t*, warpgroup_threads> registers{};
    std::array<std::array<std::uint32_t, 4>, warpgroup_threads> at_fence{};
  };

  struct Pending {
    Product product;
    Accumulator* accumulator = nullptr;
    std::array<std::array<std::uint32_t, 4>, warpgroup_threads> A_words{};
    std::array<std::uint32_t, warpgroup_warps> group{};
    std::uint64_t due = 0;
    bool done = false;
  };

  [[nodiscard]] bool is_over(const std::array<std::uint32_t, warpgroup_warps>& group) const;
  std::optional<Problem> find_accumulator(const Product& product, Accumulator*& found);
  std::optional<Problem> lend(const Product& product, Accumulator& accumulator);
  std::optional<Problem> read_fragment(const Product& product, Pending& pending);
  static void carry_out(Pending& pending, SharedMemory& shared);

  Random random_{0};
  std::uint64_t now_ = 0;
  std::array<Warp, warpgroup_warps> warps_;
  std::vector<std::unique_ptr<Accumulator>> accumulators_;
  std::vector<Fragment> fragments_;
  std::deque<Pending> pending_;
};

}  // namespace attune::emulator
