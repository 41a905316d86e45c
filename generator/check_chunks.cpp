// Kernels in which a thread has 16 bytes of each tensor, whatever the problem, so that every number of warps will do;
// and so it does for check_tables and mask_blocks.
#include "generator/family_checks.hpp"

namespace attune {
namespace {

constexpr int lanes = 32;                   // threads of a warp
constexpr int registers_of_two_chunks = 8;  // 16 bytes each

Resources resources_of(const Variant& v) {
  return {.threads = v.warps * lanes, .shared_bytes = 0, .accumulator_registers = registers_of_two_chunks};
}

/// What each warp found, in a table or of a mask: 16 bytes.
Resources check_resources(const Variant& v) {
  constexpr int fault_bytes = 16;
  return {.threads = v.warps * lanes, .shared_bytes = v.warps * fault_bytes, .accumulator_registers = 0};
}

/// Whatever the tile, there is one.
void set_defaults(Variant& /*variant*/, int /*shared_per_block*/, int /*B_r*/) {}

constexpr FamilyChecks checks{.resources = resources_of,
                              .is_tile = [](const Variant&) { return true; },
                              .rules = {},
                              .shared_memory_keys = {},
                              .set_default_tile = set_defaults};

constexpr FamilyChecks checks_of_check_tables{.resources = check_resources,
                                              .is_tile = [](const Variant&) { return true; },
                                              .rules = {},
                                              .shared_memory_keys = {},
                                              .set_default_tile = set_defaults};

}  // namespace

const FamilyChecks& chunk_checks() { return checks; }

const FamilyChecks& check_tables_checks() { return checks_of_check_tables; }

}  // namespace attune
