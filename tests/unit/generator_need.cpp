// Needs: what a problem asks of a kernel, and the relations by which variants meet it.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "generator/check.hpp"
#include "generator/expression/pool.hpp"
#include "tests/harness/needs.hpp"

namespace attune {
namespace {

constexpr int room = 227 * 1024;

Variant variant_of(int family, const Need& need) { return default_variant(family, need, room); }

/// What stands against a variant, as the names of fields.
std::vector<std::string> fields_against(const Variant& variant, const Need& need) {
  std::vector<std::string> keys;
  for (const std::string& reason : refusals(variant, need)) keys.push_back(reason.substr(0, reason.find(':')));
  CHECK(meets(variant, need) == keys.empty());
  return keys;
}

using Keys = std::vector<std::string>;

}  // namespace

TEST_CASE("what a family has for a need meets it, for every field of the contract that it knows") {
  const auto value_of = [](std::string_view key) {
    if (key == "head_dim" || key == "head_dim_v") return 64;
    if (key == "score") return expression::number_of_text("s + 1", expression::Use::score).value();
    return key == "mask" ? expression::number_of_text("k < p", expression::Use::mask).value() : 1;
  };
  for (const int family : {prefill_sm80, prefill_sm90, decode_sm80}) {
    for (const Field& field : fields()) {
      if (field.relation == Relation::free || !families()[static_cast<std::size_t>(family)].has_key(field.key))
        continue;
      CAPTURE(field.key);
      Need need{.operation = families()[static_cast<std::size_t>(family)].operation};
      need.*field.wanted = value_of(field.key);
      CHECK(fields_against(variant_of(family, need), need).empty());
    }
  }
}

TEST_CASE("each field is compared as its relation says") {
  const Variant plain = variant_of(decode_sm80, {.head_dim = 128});
  const auto against = [&](const auto& change, const auto& ask) {
    Variant variant = plain;
    change(variant);
    Need need{.operation = Operation::decode, .gqa_ratio = 4, .one_query = 1};
    ask(need);
    return fields_against(variant, need);
  };
  const auto same = [](auto&) {};
  CHECK(against(same, same).empty());
  CHECK(against(same, [](Need& n) { n.dtype = 0; }) == Keys{"dtype"});
  CHECK(against(same, [](Need& n) { n.head_dim = 72; }).empty());
  CHECK(against(same, [](Need& n) { n.head_dim = 136; }) == Keys{"head_dim"});
  CHECK(against([](Variant& v) { v.page_multiple = 16; }, [](Need& n) { n.page_multiple = 16; }).empty());
  CHECK(against([](Variant& v) { v.page_multiple = 16; }, same) == Keys{"page_multiple"});
  CHECK(against(same, [](Need& n) { n.page_multiple = 16; }).empty());
  CHECK(against([](Variant& v) { v.gqa_ratio = 4; }, same).empty());
  CHECK(against([](Variant& v) { v.gqa_ratio = 8; }, same) == Keys{"gqa_ratio"});
  CHECK(against([](Variant& v) { v.one_query = 1; }, [](Need& n) { n.one_query = 0; }) == Keys{"one_query"});
  // Its head_dim is a constant of the kernel.
  CHECK(against([](Variant& v) { v.one_query = 1; }, [](Need& n) { n.head_dim = 120; }) == Keys{"head_dim"});
  CHECK(against(same, [](Need& n) { n.operation = Operation::prefill; }) == Keys{"template"});
  CHECK(against(same, [](Need& n) { n.window = 1; }) == Keys{"window"});  // decode's are no knob of its kernels
}

TEST_CASE("a kernel with a window serves every mask, and says nothing of the causal one") {
  const Variant window = variant_of(prefill_sm80, asking({}, {&Need::window}));
  const Variant causal = variant_of(prefill_sm80, asking({}, {&Need::causal}));
  for (const Need& need : {Need{}, asking({}, {&Need::causal}), asking({}, {&Need::window})}) {
    CHECK(fields_against(window, need).empty());
  }
  CHECK(fields_against(causal, {}) == Keys{"causal"});
  CHECK(fields_against(causal, asking({}, {&Need::window})) == Keys{"window"});
}

TEST_CASE("V's head_dim is as Q's where neither kernel nor problem says another") {
  const Variant narrow = variant_of(prefill_sm90, need_for(Dtype::bf16, 192, false, 128));
  const Variant whole = variant_of(prefill_sm90, need_for(Dtype::bf16, 192));
  REQUIRE(narrow.head_dim_v == 128);
  CHECK(fields_against(narrow, need_for(Dtype::bf16, 192, false, 128)).empty());
  CHECK(fields_against(narrow, need_for(Dtype::bf16, 160)) == Keys{"head_dim_v"});
  CHECK(fields_against(narrow, need_for(Dtype::bf16, 96)).empty());
  CHECK(fields_against(whole, need_for(Dtype::bf16, 192, false, 64)).empty());
  CHECK(fields_against(variant_of(prefill_sm80, {}), need_for(Dtype::bf16, 128, false, 64)) == Keys{"head_dim_v"});
}

TEST_CASE("rows that end inside a copy are served by kernels for them alone, and by those with tensor maps") {
  const Need whole{.head_dim = 64};
  const Need cut{.head_dim = 59, .cut_rows = 1};
  const Variant plain = variant_of(prefill_sm80, whole);
  CHECK(fields_against(plain, cut) == Keys{"cut_rows"});
  const Variant own = variant_of(prefill_sm80, cut);
  CHECK(own.cut_rows == 1);
  CHECK(own.head_dim == 64);
  CHECK(fields_against(own, cut).empty());
  CHECK(fields_against(own, whole) == Keys{"cut_rows"});
  CHECK(fields_against(variant_of(prefill_sm90, whole), cut).empty());
}

TEST_CASE("a relaxed variant is for every problem that its own serves, and for others") {
  Variant own = variant_of(decode_sm80, {.head_dim = 128});
  const Variant any = own;
  own.gqa_ratio = 4;
  own.one_query = 1;
  CHECK(relaxed(own) == any);
  CHECK(relaxed(any) == any);
  Variant packed = variant_of(prefill_sm90, {});
  packed.gqa_ratio = 4;
  packed.pack_gqa = 1;
  CHECK(relaxed(packed) == packed);  // its rows are those of four heads
}

TEST_CASE("equal needs have equal hashes, and few others do") {
  std::vector<std::uint64_t> hashes;
  for (const Field& field : fields()) {
    if (field.relation == Relation::free) continue;
    Need need;
    need.*field.wanted += 1;
    CHECK(need.hash() == Need{need}.hash());
    hashes.push_back(need.hash());
  }
  hashes.push_back(Need{}.hash());
  std::ranges::sort(hashes);
  CHECK(std::ranges::adjacent_find(hashes) == hashes.end());
}

}  // namespace attune
