// A Variant is one fully resolved kernel; the field table below it is the one place that says which
// fields a variant has, what they may be and what they mean.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/arch.hpp"
#include "generator/expression/language.hpp"

namespace attune {

enum class Dtype : int { fp16 = 0, bf16 = 1 };

/// Of one element.
constexpr int bytes_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp16:
    case Dtype::bf16:
      break;
  }
  return 2;
}

/// How the online softmax treats the running output when a block brings no larger maximum.
enum class Rescale : int {
  always = 0,      ///< multiply O and l in every block
  skip_first = 1,  ///< not in the first block, where O is still zero
  on_new_max = 2,  ///< only when some row of the warp has a new maximum
};

/// How keys are rotated on their way into a cache, and the queries that attend to them (rotary position embedding).
enum class Rotary : int {
  none = 0,
  interleaved = 1,  ///< neighbouring columns make a pair
  halves = 2,       ///< columns half of rotary_dim apart
};

/// One fully resolved kernel. Every field is an int so that one table can describe them all; choices
/// hold the index of their name, booleans 0 or 1.
struct Variant {
  int family = 0;    ///< index into families(): the template
  ArchSet arch = 0;  ///< meant for these; not part of the name, the source does not change
  int dtype = static_cast<int>(Dtype::bf16);
  int head_dim = 128;
  int head_dim_v = 0;  ///< 0: as head_dim
  int B_r = 128;
  int B_c = 64;
  int warps = 4;
  int stages = 2;
  int paged = 0;
  int page_multiple = 1;
  int rotary = static_cast<int>(Rotary::none);
  int causal = 0;
  int window = 0;
  int softcap = 0;
  int score = 0;  ///< the number of an expression (generator/expression/pool.hpp); 0: none
  int mask = 0;   ///< likewise
  int sink = 0;
  int ragged = 0;
  int dropout = 0;
  int cut_rows = 0;
  int gqa_ratio = 0;  ///< 0: any
  int one_query = 0;
  int pack_gqa = 0;
  int async_copy = 1;
  int eager_load = 1;
  int swizzle = 1;
  int Q_in_registers = 0;
  int Q_columns_in_registers = 0;
  int P_residual_keys = 0;
  int Q_fragment_tiles = 1;
  int K_fragment_tiles = 1;
  int V_fragment_tiles = 1;
  int double_buffer = 1;
  int rescale = static_cast<int>(Rescale::on_new_max);
  int ping_pong = 1;
  int rescale_bound = 0;
  int tile_list = 0;
  int stream_k = 0;
  int cluster = 0;
  int interleave = 0;
  int split_rows = 0;
  int deterministic = 1;

  auto operator<=>(const Variant&) const = default;

  /// Of V and O.
  [[nodiscard]] constexpr int head_dim_of_v() const { return head_dim_v == 0 ? head_dim : head_dim_v; }

  /// Bytes of an element of Q, K, V and O.
  [[nodiscard]] constexpr int element_bytes() const { return bytes_of(static_cast<Dtype>(dtype)); }

  /// Columns of a row of K and of V together, by which padding is measured.
  [[nodiscard]] constexpr int columns() const { return head_dim + head_dim_of_v(); }

  /// `prefill_sm80_bf16_d128_r128_c64_w4_s1_causal`: the fields that every kernel of the family has, then whatever
  /// differs from the family's default. Distinct variants (arch apart) have distinct names.
  [[nodiscard]] std::string name() const;
};

/// An expression's value is its number in this process (generator/expression/pool.hpp), and its text elsewhere.
enum class FieldKind { integer, boolean, choice, expression };

/// What a field decides: which problems a kernel serves; the sizes of its tile; the order of its work; or how it
/// computes in a way that only a reader of the papers varies.
enum class Role { contract, tile, schedule, teaching };

/// How a kernel's value has to relate to that of a problem which it serves.
enum class Relation {
  free,          ///< not at all: no part of the contract
  exact,         ///< equal
  at_least,      ///< no less: what is missing is padded. Equal in kernels of one_query
  divides,       ///< a divisor
  any_or_equal,  ///< 0, which stands for any, or equal
  covers,        ///< not 0 where the problem's is not
};

struct Need;

/// One row of the table that parsing, naming, hashing, the constants block, --help, the JSON Schema, refusals and what
/// is generated for a problem are all made from.
struct Field {
  std::string_view key;  ///< YAML key and name of the constant
  FieldKind kind;
  int Variant::*member;
  int minimum;                                ///< integers only
  int maximum;                                ///< of an expression 0, as its numbers have no order
  int step;                                   ///< value must be a multiple of this
  std::span<const std::string_view> choices;  ///< names of 0, 1, 2, ... (choice); name of 0 (integer), or empty
  std::string_view tag;  ///< how it shows in a name: "d" gives d128, "" the word alone; a boolean shows only its tag
  bool always_named;     ///< false: named only when it differs from the default
  std::string_view doc;  ///< one line
  Role role = Role::tile;
  Relation relation = Relation::free;
  int Need::*wanted = nullptr;   ///< of a contract: the problem's value
  std::string_view within = "";  ///< a field that says all this one says, where kernel or problem has it
  int minimum_capability = 0;    ///< of kernels in which it is not at its family's default
  bool met_by_maps = false;      ///< families with tensor maps meet what a problem needs of it, without having it

  /// What an expression of this field is for.
  [[nodiscard]] expression::Use use() const;

  /// Whether 0 stands for head_dim's value.
  [[nodiscard]] bool zero_is_head_dim() const;
};

/// The table, in the order of the name. `template` and `arch` are not in it: the one selects the
/// table's subset, the other does not change the kernel.
std::span<const Field> fields();

/// The field of that key, or null.
const Field* find_field(std::string_view key);

/// "contract", "tile", "schedule" or "teaching"
std::string_view role_text(Role role);

/// A value as the spec would write it ("bf16", "true", "any", "128").
std::string value_text(const Field& field, int value);

/// The value a spec's word stands for, or nothing.
std::optional<int> parse_value(const Field& field, std::string_view word);

/// Whether the table allows this value, the other fields apart.
bool is_legal(const Field& field, int value);

/// The words among a field's values ("fp16", "bf16"; "any"; "false", "true"); empty when all are numbers.
std::vector<std::string> accepted_words(const Field& field);

/// The accepted value that a wrong word most likely stands for: a word by its spelling, a number by its
/// distance; "" when none is near.
std::string nearest_value(const Field& field, std::string_view word);

/// What a person may write for this field, for messages: "fp16 or bf16", "a multiple of 16 from 16 to 256".
std::string accepted_values(const Field& field);

/// What the kernels of a family compute.
enum class Operation : int {
  prefill = 0,            ///< attention of many queries
  decode = 1,             ///< attention of few queries to a cache, each thread block with a part of the keys
  combine = 2,            ///< the results of such parts into one
  store = 3,              ///< new keys and values to a cache
  merge = 4,              ///< two results of attention into one
  check = 5,              ///< what a cache's tables name
  rotate = 6,             ///< queries and keys by their positions
  backward = 7,           ///< the gradients of keys and values, and what there is of that of queries
  backward_rows = 8,      ///< what a row's gradients begin with
  backward_queries = 9,   ///< the gradients of queries
  backward_convert = 10,  ///< of sums that have become them
  mask_blocks = 11,       ///< which blocks of keys a mask leaves
};
inline constexpr int operation_count = 12;

struct FamilyChecks;

/// A kernel family, one file in templates/.
struct Family {
  std::string_view name;  ///< "prefill_sm80": templates/<name>.cu
  Operation operation;
  int minimum_capability;                  ///< 80
  bool architecture_specific;              ///< runs on that capability alone, for which compilers are told "90a"
  bool tensor_maps;                        ///< reads Q, K and V through them (templates/tensor_params.h)
  std::span<const std::string_view> keys;  ///< the fields its kernels have
  Variant defaults;                        ///< what a spec has left out
  const FamilyChecks& (*checks)();         ///< its arithmetic and its rules (generator/family_checks.hpp)
  std::string_view doc;
  bool named_only = false;  ///< serves where a spec has named it and no other kernel does: it is there to be read

  /// Whether its kernels run on this compute capability, shared memory apart.
  [[nodiscard]] constexpr bool runs_on(int capability) const {
    return architecture_specific ? capability == minimum_capability : capability >= minimum_capability;
  }

  /// Whether its kernels have this field.
  [[nodiscard]] bool has_key(std::string_view key) const;

  /// Whether it has fields for the limits that a mask says and the cap that a score is, so that those of its
  /// operation's problems are in theirs (runtime/call/limits.hpp).
  [[nodiscard]] bool takes_limits() const { return has_key("window"); }

  /// The architecture as compilers are told it: "90", or "90a" (PTX ISA, "architecture-specific features").
  [[nodiscard]] std::string target(int capability) const;
};

/// Every kernel family, in the order of Variant::family.
std::span<const Family> families();

/// Their indices.
inline constexpr int prefill_sm80 = 0;
inline constexpr int prefill_sm90 = 1;
inline constexpr int decode_sm80 = 2;
inline constexpr int combine = 3;
inline constexpr int store_kv = 4;
inline constexpr int merge_states = 5;
inline constexpr int check_tables = 6;
inline constexpr int prefill_fa1_sm80 = 12;
inline constexpr int backward_sm90 = 13;

/// The family of this variant.
const Family& family_of(const Variant& variant);

/// The oldest compute capability that this variant runs on: its family's, or the first that has what its knobs need.
int minimum_capability(const Variant& variant);

/// Whether this variant runs on this compute capability, shared memory apart.
bool runs_on(const Variant& variant, int capability);

}  // namespace attune
