#include "generator/variant.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "generator/diagnostic.hpp"
#include "generator/expression/pool.hpp"
#include "generator/family_checks.hpp"
#include "generator/need.hpp"

namespace attune {
namespace {

using namespace std::string_view_literals;

constexpr std::array dtype_words{"fp16"sv, "bf16"sv};
constexpr std::array rescale_words{"always"sv, "skip_first"sv, "on_new_max"sv};
constexpr std::array rotary_words{"none"sv, "interleaved"sv, "halves"sv};
constexpr std::array any_word{"any"sv};
constexpr std::array whole_word{"whole"sv};
constexpr std::array same_word{"same"sv};
constexpr std::span<const std::string_view> no_words{};

constexpr Field integer(std::string_view key, int Variant::*member, int minimum, int maximum, int step,
                        std::span<const std::string_view> word_of_zero, std::string_view tag, bool always_named,
                        std::string_view doc) {
  return {key, FieldKind::integer, member, minimum, maximum, step, word_of_zero, tag, always_named, doc};
}

constexpr Field boolean(std::string_view key, int Variant::*member, std::string_view tag, std::string_view doc) {
  return {key, FieldKind::boolean, member, 0, 1, 1, no_words, tag, false, doc};
}

constexpr Field expressed(std::string_view key, int Variant::*member, std::string_view tag, std::string_view doc) {
  return {key, FieldKind::expression, member, 0, 0, 1, no_words, tag, false, doc};
}

constexpr Field choice(std::string_view key, int Variant::*member, std::span<const std::string_view> words,
                       std::string_view tag, bool always_named, std::string_view doc) {
  return {key, FieldKind::choice, member, 0, static_cast<int>(words.size()) - 1, 1, words, tag, always_named, doc};
}

constexpr Field contract(Field field, Relation relation, int Need::*wanted, std::string_view within = "") {
  field.role = Role::contract;
  field.relation = relation;
  field.wanted = wanted;
  field.within = within;
  return field;
}

constexpr Field met_by_maps(Field field) {
  field.met_by_maps = true;
  return field;
}

constexpr Field schedule(Field field, int minimum_capability = 0) {
  field.role = Role::schedule;
  field.minimum_capability = minimum_capability;
  return field;
}

constexpr Field teaching(Field field) {
  field.role = Role::teaching;
  return field;
}

constexpr int with_clusters = 90;

// A boolean's tag stands for the value that is not its default, so it never needs the value beside it.
constexpr std::array field_table{
    contract(choice("dtype", &Variant::dtype, dtype_words, "", true, "storage type of Q, K, V and O"), Relation::exact,
             &Need::dtype),
    contract(integer("head_dim", &Variant::head_dim, 16, 256, 16, no_words, "d", true,
                     "D, elements per row of Q, K and V; smaller ones are zero-filled"),
             Relation::at_least, &Need::head_dim),
    contract(integer("head_dim_v", &Variant::head_dim_v, 64, 256, 32, same_word, "v", false,
                     "elements per row of V and O, fewer than head_dim; same: head_dim"),
             Relation::at_least, &Need::head_dim_v),
    integer("B_r", &Variant::B_r, 16, 256, 16, no_words, "r", true, "rows of Q that one thread block computes"),
    integer("B_c", &Variant::B_c, 16, 256, 16, no_words, "c", true, "rows of K and V in one step of the main loop"),
    // 16 warps of 16 rows are B_r's maximum, and their 512 threads stay inside the 1,024 of a block.
    integer("warps", &Variant::warps, 1, 16, 1, no_words, "w", true,
            "warps per thread block, each with B_r / warps rows of Q, in decode with B_c / warps keys"),
    integer("stages", &Variant::stages, 1, 4, 1, no_words, "s", true, "K/V blocks that shared memory holds at a time"),
    contract(boolean("paged", &Variant::paged, "paged", "keys are in pages that a block table names"), Relation::exact,
             &Need::paged),
    contract(integer("page_multiple", &Variant::page_multiple, 1, 16, 1, no_words, "page", false,
                     "page sizes are multiples of it: 1, or 16, whose keys in a row need one lookup"),
             Relation::divides, &Need::page_multiple),
    contract(
        choice(
            "rotary", &Variant::rotary, rotary_words, "rotary_", false,
            "pairs of columns that are rotated as keys are stored and queries read: neighbours, or of the two halves"),
        Relation::exact, &Need::rotary),
    contract(boolean("causal", &Variant::causal, "causal", "query i sees keys j <= i + seqlen_k - seqlen_q only"),
             Relation::exact, &Need::causal, "window"),
    contract(boolean("window", &Variant::window, "window",
                     "query i sees keys from window_left before i + seqlen_k - seqlen_q to window_right after it"),
             Relation::covers, &Need::window),
    contract(boolean("softcap", &Variant::softcap, "softcap", "scores x become softcap * tanh(x / softcap)"),
             Relation::exact, &Need::softcap),
    contract(expressed("score", &Variant::score, "score_", "what scores s become, as in s + slope[h] * (k - p)"),
             Relation::exact, &Need::score),
    contract(expressed("mask", &Variant::mask, "mask_", "which keys a query sees of those it would, as in k <= p"),
             Relation::exact, &Need::mask),
    contract(boolean("sink", &Variant::sink, "sink",
                     "a logit of each head is in the softmax of its rows, as a key's whose value is 0"),
             Relation::exact, &Need::sink),
    contract(boolean("ragged", &Variant::ragged, "ragged",
                     "sequences of any lengths lie one after the other, where arrays say"),
             Relation::exact, &Need::ragged),
    contract(boolean("dropout", &Variant::dropout, "dropout",
                     "weights are dropped by random bits that follow from a seed and the weight's place"),
             Relation::exact, &Need::dropout),
    met_by_maps(contract(boolean("cut_rows", &Variant::cut_rows, "cutrows",
                                 "head_dim is no multiple of 8: rows of K and V end inside a copy of 16 bytes"),
                         Relation::exact, &Need::cut_rows)),
    contract(integer("gqa_ratio", &Variant::gqa_ratio, 1, 256, 1, any_word, "gqa", false,
                     "heads of Q per head of K and V; any: taken from the launch"),
             Relation::any_or_equal, &Need::gqa_ratio),
    contract(boolean("one_query", &Variant::one_query, "onequery",
                     "serves one query a sequence, and its own head_dim alone: both are constants"),
             Relation::any_or_equal, &Need::one_query),
    schedule(boolean("pack_gqa", &Variant::pack_gqa, "packgqa",
                     "a tile's rows are queries of all heads that share K and V")),
    teaching(boolean("async_copy", &Variant::async_copy, "sync",
                     "global to shared memory by cp.async, else through registers")),
    teaching(
        boolean("eager_load", &Variant::eager_load, "lazy", "request the next K/V block ahead, else where it is used")),
    teaching(boolean("swizzle", &Variant::swizzle, "noswizzle", "XOR swizzle of shared memory against bank conflicts")),
    teaching(boolean("Q_in_registers", &Variant::Q_in_registers, "qreg",
                     "load Q's fragments once and keep them in registers")),
    integer("Q_columns_in_registers", &Variant::Q_columns_in_registers, 0, 256, 16, no_words, "qreg", false,
            "columns of Q that stay in registers for all of a tile's keys; others are read in shared memory"),
    integer("P_residual_keys", &Variant::P_residual_keys, 0, 256, 16, no_words, "resid", false,
            "first keys that a tile reads, for which V is also multiplied by what rounding took from P"),
    teaching(integer("Q_fragment_tiles", &Variant::Q_fragment_tiles, 1, 16, 1, whole_word, "q", false,
                     "16-wide tiles of Q along head_dim whose fragments load at a time")),
    teaching(integer("K_fragment_tiles", &Variant::K_fragment_tiles, 1, 16, 1, whole_word, "k", false,
                     "16-wide tiles of K along head_dim whose fragments load at a time")),
    teaching(integer("V_fragment_tiles", &Variant::V_fragment_tiles, 1, 16, 1, whole_word, "v", false,
                     "16-wide tiles of V along B_c whose fragments load at a time")),
    teaching(boolean("double_buffer", &Variant::double_buffer, "singlebuffer",
                     "load the next tiles' fragments before the mma of the current ones")),
    teaching(choice("rescale", &Variant::rescale, rescale_words, "rescale_", false,
                    "when the online softmax multiplies O and l by exp2(m_old - m_new)")),
    schedule(boolean("ping_pong", &Variant::ping_pong, "nopingpong",
                     "warpgroups multiply in turns, each one's softmax beside the others' products")),
    schedule(integer("rescale_bound", &Variant::rescale_bound, 0, 16, 1, no_words, "bound", false,
                     "log2 by which a row's maximum may grow before O and l are rescaled")),
    schedule(boolean("tile_list", &Variant::tile_list, "list",
                     "each block's tiles come with the launch, given to whoever would be free first, else by rounds")),
    schedule(boolean("stream_k", &Variant::stream_k, "streamk",
                     "blocks share the keys of the last tiles, where rounds of whole tiles do not come out even")),
    schedule(
        boolean("cluster", &Variant::cluster, "cluster",
                "the parts of a sequence are a cluster of blocks that merge them without a second kernel, from 9.0 on"),
        with_clusters),
    schedule(boolean("interleave", &Variant::interleave, "interleave",
                     "equal parts of a sequence have its steps of keys in turn, so that all go through them together")),
    schedule(boolean("split_rows", &Variant::split_rows, "splitrows",
                     "warps have B_r / warps rows each and all keys of a step, so that a large tile reads keys once")),
    contract(boolean("deterministic", &Variant::deterministic, "unordered",
                     "sums have one order, and results the same bits every time; false: blocks add to memory"),
             Relation::covers, &Need::deterministic),
};

constexpr std::array prefill_sm80_keys{"dtype"sv,
                                       "head_dim"sv,
                                       "B_r"sv,
                                       "B_c"sv,
                                       "warps"sv,
                                       "stages"sv,
                                       "paged"sv,
                                       "causal"sv,
                                       "window"sv,
                                       "softcap"sv,
                                       "score"sv,
                                       "mask"sv,
                                       "sink"sv,
                                       "ragged"sv,
                                       "dropout"sv,
                                       "cut_rows"sv,
                                       "gqa_ratio"sv,
                                       "async_copy"sv,
                                       "eager_load"sv,
                                       "swizzle"sv,
                                       "Q_in_registers"sv,
                                       "Q_fragment_tiles"sv,
                                       "K_fragment_tiles"sv,
                                       "V_fragment_tiles"sv,
                                       "double_buffer"sv,
                                       "rescale"sv};

constexpr std::array prefill_sm90_keys{"dtype"sv,
                                       "head_dim"sv,
                                       "head_dim_v"sv,
                                       "B_r"sv,
                                       "B_c"sv,
                                       "stages"sv,
                                       "Q_columns_in_registers"sv,
                                       "P_residual_keys"sv,
                                       "paged"sv,
                                       "page_multiple"sv,
                                       "causal"sv,
                                       "window"sv,
                                       "softcap"sv,
                                       "score"sv,
                                       "mask"sv,
                                       "sink"sv,
                                       "ragged"sv,
                                       "dropout"sv,
                                       "gqa_ratio"sv,
                                       "pack_gqa"sv,
                                       "ping_pong"sv,
                                       "rescale_bound"sv,
                                       "tile_list"sv,
                                       "stream_k"sv};

constexpr std::array decode_sm80_keys{"dtype"sv,     "head_dim"sv,  "B_r"sv,           "B_c"sv,        "warps"sv,
                                      "stages"sv,    "paged"sv,     "page_multiple"sv, "rotary"sv,     "softcap"sv,
                                      "score"sv,     "mask"sv,      "sink"sv,          "ragged"sv,     "cut_rows"sv,
                                      "gqa_ratio"sv, "one_query"sv, "cluster"sv,       "interleave"sv, "split_rows"sv};

constexpr std::array combine_keys{"dtype"sv, "head_dim"sv, "warps"sv, "ragged"sv};

constexpr std::array store_kv_keys{"dtype"sv, "warps"sv, "rotary"sv, "cut_rows"sv};

constexpr std::array rotary_embedding_keys{"dtype"sv, "warps"sv, "rotary"sv};

constexpr std::array merge_states_keys{"dtype"sv, "warps"sv};

constexpr std::array check_tables_keys{"warps"sv};

constexpr std::array backward_sm80_keys{"dtype"sv,  "head_dim"sv, "B_r"sv,     "B_c"sv,          "warps"sv,
                                        "stages"sv, "causal"sv,   "window"sv,  "softcap"sv,      "score"sv,
                                        "mask"sv,   "ragged"sv,   "dropout"sv, "deterministic"sv};

constexpr std::array backward_sm90_keys{"dtype"sv,  "head_dim"sv, "B_r"sv,          "B_c"sv,   "stages"sv,
                                        "causal"sv, "window"sv,   "softcap"sv,      "score"sv, "mask"sv,
                                        "ragged"sv, "dropout"sv,  "deterministic"sv};

constexpr std::array backward_rows_keys{"dtype"sv, "head_dim"sv, "warps"sv, "ragged"sv};

constexpr std::array backward_dq_sm80_keys{"dtype"sv,  "head_dim"sv, "B_r"sv,    "B_c"sv,     "warps"sv,
                                           "stages"sv, "causal"sv,   "window"sv, "softcap"sv, "score"sv,
                                           "mask"sv,   "ragged"sv,   "dropout"sv};

constexpr std::array mask_blocks_keys{"warps"sv, "mask"sv};

constexpr std::array prefill_fa1_sm80_keys{"dtype"sv, "head_dim"sv, "B_r"sv,    "B_c"sv,
                                           "warps"sv, "causal"sv,   "softcap"sv};

/// Tells each family's kernels their place in the table.
template <std::size_t count>
constexpr std::array<Family, count> numbered(std::array<Family, count> table) {
  for (std::size_t i = 0; i < count; ++i) table[i].defaults.family = static_cast<int>(i);
  return table;
}

constexpr std::array family_table = numbered(std::array{
    Family{.name = "prefill_sm80",
           .operation = Operation::prefill,
           .minimum_capability = 80,
           .architecture_specific = false,
           .tensor_maps = false,
           .keys = prefill_sm80_keys,
           .defaults = {},
           .checks = prefill_sm80_checks,
           .doc = "FlashAttention-2 forward on mma.sync tensor cores"},
    Family{.name = "prefill_sm90",
           .operation = Operation::prefill,
           .minimum_capability = 90,
           .architecture_specific = true,
           .tensor_maps = true,
           .keys = prefill_sm90_keys,
           .defaults = {.B_c = 128},
           .checks = prefill_sm90_checks,
           .doc = "FlashAttention-3 forward on wgmma and bulk tensor copies"},
    Family{.name = "decode_sm80",
           .operation = Operation::decode,
           .minimum_capability = 80,
           .architecture_specific = false,
           .tensor_maps = false,
           .keys = decode_sm80_keys,
           .defaults = {.B_r = 16},
           .checks = decode_sm80_checks,
           .doc = "Flash-Decoding on mma.sync tensor cores"},
    Family{.name = "combine",
           .operation = Operation::combine,
           .minimum_capability = 80,
           .architecture_specific = false,
           .tensor_maps = false,
           .keys = combine_keys,
           .defaults = {.warps = 8},
           .checks = combine_checks,
           .doc = "Flash-Decoding's merge of the parts of the keys"},
    Family{.name = "store_kv",
           .operation = Operation::store,
           .minimum_capability = 80,
           .architecture_specific = false,
           .tensor_maps = false,
           .keys = store_kv_keys,
           .defaults = {},
           .checks = chunk_checks,
           .doc = "new keys and values to a cache, with rotary position embedding"},
    Family{.name = "merge_states",
           .operation = Operation::merge,
           .minimum_capability = 80,
           .architecture_specific = false,
           .tensor_maps = false,
           .keys = merge_states_keys,
           .defaults = {},
           .checks = chunk_checks,
           .doc = "merge of two results over different keys"},
    Family{.name = "check_tables",
           .operation = Operation::check,
           .minimum_capability = 80,
           .architecture_specific = false,
           .tensor_maps = false,
           .keys = check_tables_keys,
           .defaults = {},
           .checks = check_tables_checks,
           .doc = "check of the lengths, block tables and slots of a cache"},
    Family{.name = "rotary_embedding",
           .operation = Operation::rotate,
           .minimum_capability = 80,
           .architecture_specific = false,
           .tensor_maps = false,
           .keys = rotary_embedding_keys,
           .defaults = {.rotary = static_cast<int>(Rotary::halves)},
           .checks = chunk_checks,
           .doc = "rotary position embedding of queries and keys, in place"},
    Family{.name = "backward_sm80",
           .operation = Operation::backward,
           .minimum_capability = 80,
           .architecture_specific = false,
           .tensor_maps = false,
           .keys = backward_sm80_keys,
           .defaults = {.B_r = 64, .B_c = 128, .warps = 8},
           .checks = backward_sm80_checks,
           .doc = "FlashAttention-2 backward on mma.sync tensor cores: gradients of keys and values"},
    Family{.name = "backward_rows",
           .operation = Operation::backward_rows,
           .minimum_capability = 80,
           .architecture_specific = false,
           .tensor_maps = false,
           .keys = backward_rows_keys,
           .defaults = {},
           .checks = backward_rows_checks,
           .doc = "rowsum(dO * O) and LSE of the backward pass"},
    Family{.name = "backward_dq_sm80",
           .operation = Operation::backward_queries,
           .minimum_capability = 80,
           .architecture_specific = false,
           .tensor_maps = false,
           .keys = backward_dq_sm80_keys,
           .defaults = {.warps = 8},
           .checks = backward_dq_sm80_checks,
           .doc = "FlashAttention-2 backward on mma.sync tensor cores: gradients of queries"},
    Family{.name = "backward_convert",
           .operation = Operation::backward_convert,
           .minimum_capability = 80,
           .architecture_specific = false,
           .tensor_maps = false,
           .keys = backward_rows_keys,
           .defaults = {},
           .checks = backward_convert_checks,
           .doc = "gradients of queries from their sums in memory"},
    Family{.name = "prefill_fa1_sm80",
           .operation = Operation::prefill,
           .minimum_capability = 80,
           .architecture_specific = false,
           .tensor_maps = false,
           .keys = prefill_fa1_sm80_keys,
           .defaults = {.B_r = 64, .stages = 1},
           .checks = prefill_fa1_sm80_checks,
           .doc = "FlashAttention-1 forward on mma.sync tensor cores, to be read beside prefill_sm80",
           .named_only = true},
    Family{.name = "backward_sm90",
           .operation = Operation::backward,
           .minimum_capability = 90,
           .architecture_specific = true,
           .tensor_maps = true,
           .keys = backward_sm90_keys,
           .defaults = {.B_r = 64, .B_c = 128},
           .checks = backward_sm90_checks,
           .doc = "FlashAttention-3 backward on wgmma and bulk tensor copies: gradients of keys, values and queries"},
    Family{.name = "mask_blocks",
           .operation = Operation::mask_blocks,
           .minimum_capability = 80,
           .architecture_specific = false,
           .tensor_maps = false,
           .keys = mask_blocks_keys,
           .defaults = {.warps = 8},
           .checks = check_tables_checks,
           .doc = "which blocks of keys a mask leaves, where what it looks up says so"},
});
static_assert(family_table[prefill_sm80].name == "prefill_sm80" && family_table[prefill_sm90].name == "prefill_sm90");
static_assert(family_table[decode_sm80].name == "decode_sm80" && family_table[combine].name == "combine");
static_assert(family_table[store_kv].name == "store_kv" && family_table[merge_states].name == "merge_states");
static_assert(family_table[check_tables].name == "check_tables");
static_assert(family_table[prefill_fa1_sm80].name == "prefill_fa1_sm80");
static_assert(family_table[backward_sm90].name == "backward_sm90");

/// A decimal number without leading zeros (YAML 1.1 would read 010 as eight), or nothing.
std::optional<int> parse_decimal(std::string_view word) {
  const std::string_view digits = word.substr(word.starts_with('-') ? 1 : 0);
  if (digits.empty() || (digits.front() == '0' && word != "0")) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

}  // namespace

std::span<const Field> fields() { return field_table; }

const Field* find_field(std::string_view key) {
  const auto found = std::ranges::find(field_table, key, &Field::key);
  return found == field_table.end() ? nullptr : &*found;
}

expression::Use Field::use() const { return key == "mask" ? expression::Use::mask : expression::Use::score; }

bool Field::zero_is_head_dim() const { return choices.data() == same_word.data(); }

std::string_view role_text(Role role) {
  constexpr std::array words{"contract"sv, "tile"sv, "schedule"sv, "teaching"sv};
  return words.at(static_cast<std::size_t>(role));
}

std::string value_text(const Field& field, int value) {
  switch (field.kind) {
    case FieldKind::boolean:
      return value != 0 ? "true" : "false";
    case FieldKind::choice:
      if (value >= 0 && value < static_cast<int>(field.choices.size())) {
        return std::string{field.choices[static_cast<std::size_t>(value)]};
      }
      break;
    case FieldKind::expression:
      return std::string{expression::text_of_number(value)};
    case FieldKind::integer:
      if (value == 0 && !field.choices.empty()) return std::string{field.choices[0]};
      break;
  }
  return std::to_string(value);
}

bool is_legal(const Field& field, int value) {
  if (field.kind == FieldKind::expression) return value == 0 || expression::is_number(value, field.use());
  if (field.kind == FieldKind::integer && value == 0 && field.minimum > 0) return !field.choices.empty();
  return value >= field.minimum && value <= field.maximum && value % field.step == 0;
}

std::optional<int> parse_value(const Field& field, std::string_view word) {
  if (field.kind == FieldKind::boolean) {
    if (word == "true") return 1;
    if (word == "false") return 0;
    return std::nullopt;
  }
  if (field.kind == FieldKind::expression) return expression::number_of_text(word, field.use());
  const auto found = std::ranges::find(field.choices, word);
  if (found != field.choices.end()) return static_cast<int>(found - field.choices.begin());
  if (field.kind == FieldKind::choice) return std::nullopt;
  const std::optional<int> value = parse_decimal(word);
  const bool stands_for_word = value == 0 && !field.choices.empty();
  return value && !stands_for_word && is_legal(field, *value) ? value : std::nullopt;
}

std::string nearest_value(const Field& field, std::string_view word) {
  const std::optional<int> number = field.kind == FieldKind::integer ? parse_decimal(word) : std::nullopt;
  if (!number) return nearest_word(std::string{word}, accepted_words(field));
  const int inside = std::clamp(*number, field.minimum, field.maximum);
  const int below = inside / field.step * field.step;
  return std::to_string(inside - below <= field.step / 2 ? below : below + field.step);
}

std::vector<std::string> accepted_words(const Field& field) {
  if (field.kind == FieldKind::boolean) return {"false", "true"};
  return {field.choices.begin(), field.choices.end()};
}

std::string accepted_values(const Field& field) {
  if (field.kind == FieldKind::integer) {
    const std::string range =
        field.step == 1 ? fmt::format("a whole number from {} to {}", field.minimum, field.maximum)
                        : fmt::format("a multiple of {} from {} to {}", field.step, field.minimum, field.maximum);
    return field.choices.empty() ? range : fmt::format("{} or {}", field.choices[0], range);
  }
  if (field.kind == FieldKind::expression) {
    return fmt::format("none, or an expression as `{}`",
                       field.use() == expression::Use::mask ? "k <= p" : "s + slope[h] * (k - p)");
  }
  return alternatives_text(accepted_words(field));
}

std::span<const Family> families() { return family_table; }

const Family& family_of(const Variant& variant) { return family_table.at(static_cast<std::size_t>(variant.family)); }

int minimum_capability(const Variant& variant) {
  const Family& family = family_of(variant);
  int capability = family.minimum_capability;
  for (const Field& field : field_table) {
    if (variant.*field.member != family.defaults.*field.member) {
      capability = std::max(capability, field.minimum_capability);
    }
  }
  return capability;
}

bool runs_on(const Variant& variant, int capability) {
  return family_of(variant).runs_on(capability) && capability >= minimum_capability(variant);
}

bool Family::has_key(std::string_view key) const { return std::ranges::find(keys, key) != keys.end(); }

std::string Family::target(int capability) const {
  return fmt::format("{}{}", capability, architecture_specific ? "a" : "");
}

std::string Variant::name() const {
  const Family& family = family_of(*this);
  std::string name{family.name};
  for (const Field& field : field_table) {
    const int value = this->*field.member;
    if (!family.has_key(field.key) || (!field.always_named && value == family.defaults.*field.member)) continue;
    name += '_';
    name += field.tag;
    if (field.kind == FieldKind::expression) {
      name += expression::expression_of(value).slug();
    } else if (field.kind != FieldKind::boolean) {
      name += value_text(field, value);
    }
  }
  return name;
}

}  // namespace attune
