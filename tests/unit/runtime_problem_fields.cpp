// What the table of a problem's fields promises: a field that is in it is in texts, checks, records and tuned rows.
#include <doctest/doctest.h>

#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "runtime/choice/tuned_row.hpp"
#include "runtime/operations/operations.hpp"
#include "runtime/record/record_fields.hpp"

using namespace attune;

namespace {

/// A problem of no operation, with a field of every type and role.
struct Trial {
  static constexpr const char* word = "trial";

  Dtype dtype = Dtype::bf16;
  int length = 1;
  int width = 64;
  bool wide = false;
  int bound = -1;
  float gain = 0;
  bool deep = false;
  int depth = 0;

  bool operator==(const Trial&) const = default;

  static Trial usual() { return {.width = left_out, .depth = left_out}; }
  void complete() {
    fill(width, 64);
    fill(depth, deep ? length : 0);
  }
};

constexpr auto problem_fields(const Trial* /*type*/) {
  using enum Topic;
  using enum RecordRole;
  using enum RowRole;
  using P = Trial;
  return std::tuple(
      field("dtype", &P::dtype, {kind, named, required}, {.tag = " "}),
      field("length", &P::length, {lengths, size, required, any_length}, {.tag = " l"}),
      field("width", &P::width, {kind, named, required, whole_head_dim}, {.tag = " w", .name = "columns"}),
      field("wide", &P::wide, {mask, option, optional}, {.tag = " wide"}),
      field("bound", &P::bound, {mask, extent, optional, any_bound}, {.tag = " bound"}),
      field("gain", &P::gain, {mask, option, optional}, {.tag = " gain"}),
      field("deep", &P::deep, {feature, option, optional}, {.tag = " deep"}),
      field("depth", &P::depth, {feature, extent, optional, any_extent},
            {.tag = " depth", .applies = [](const P& p) { return p.deep; }}));
}

const Trial plain{};
const Trial full{
    .dtype = Dtype::fp16, .length = 100, .width = 32, .wide = true, .bound = 5, .gain = 0.5F, .deep = true, .depth = 7};

Json parsed(const char* text) { return parse_json(text); }

struct Read {
  Trial problem;
  std::vector<Diagnostic> problems;
};

Read read_record(const Json& line) {
  Read read;
  const Location where{.file = "r", .line = 1, .column = 1};
  JsonFields fields(line, "the line", where, read.problems);
  read.problem = read_record_fields<Trial>(fields);
  fields.finish();
  return read;
}

Read read_row_of(const Json& row) {
  Read read{.problem = Trial::usual(), .problems = {}};
  const Location where{.file = "t", .line = 1, .column = 1};
  JsonFields fields(row, "problem", where, read.problems);
  CHECK(fields.word("operation") == "trial");
  read_row(fields, read.problem);
  fields.finish();
  read.problem.complete();
  return read;
}

/// How many members a struct has: as many as initialise it.
struct Anything {
  template <class Value>
  operator Value() const;
};
template <class P, class... Members>
consteval std::size_t members_of() {
  if constexpr (requires { P{Members{}..., Anything{}}; }) {
    return members_of<P, Members..., Anything>();
  } else {
    return sizeof...(Members);
  }
}
/// Tables have no words for expressions.
template <class P>
consteval std::size_t unlisted() {
  return requires { &P::expressions; }
  ? 1 : 0;
}
template <class P>
inline constexpr bool is_complete =
    std::tuple_size_v<std::remove_cvref_t<decltype(fields_of<P>)>> + unlisted<P>() == members_of<P>();

template <class... Ps>
consteval bool all_complete(const std::variant<Ps...>* /*list*/) {
  return (is_complete<Ps> && ...);
}

}  // namespace

static_assert(all_complete(static_cast<const AnyProblem*>(nullptr)) && is_complete<CombineProblem>,
              "every member of a problem is in its table");

TEST_CASE("a text says the kind, the sizes, and what is not as usual") {
  CHECK(text_of(plain) == "trial bf16 w64 l1");
  CHECK(text_of(full) == "trial fp16 w32 l100 wide bound5 gain0.5 deep depth7");
  CHECK(text_of(full, "") == "fp16 w32 l100 wide bound5 gain0.5 deep depth7");
  Trial shallow = full;
  shallow.deep = false;
  CHECK(text_of(shallow) == "trial fp16 w32 l100 wide bound5 gain0.5");
}

TEST_CASE("each field is held to its range, where it applies") {
  CHECK(checked_fields(plain).take().empty());
  CHECK(checked_fields(full).take().empty());
  const Trial wrong{
      .dtype = static_cast<Dtype>(7), .length = -1, .width = 20, .bound = -2, .gain = -1, .deep = true, .depth = 0};
  CHECK(checked_fields(wrong).take() ==
        std::vector<std::string>{
            "dtype is 7; it must be 0 (fp16) or 1 (bf16)", "length is -1; it must be from 0 to 1073741824",
            "width is 20; it must be a multiple of 8 from 8 to 256", "bound is -2; it must be from -1 to 1073741823",
            "gain is -1; it must be from 0, for none, to 1.8446744e+19",
            "depth is 0; it must be from 1 to 1073741824"});
  CHECK(checked_fields(Trial{.depth = -3}).take().empty());
}

TEST_CASE("a record has every field in the table's order, and those as usual only where every line has them") {
  Json line;
  add_record_fields(line, plain);
  CHECK(line.dump() == R"({"dtype":"bf16","length":1,"width":64})");
  line.clear();
  add_record_fields(line, full);
  CHECK(line.dump() ==
        R"({"dtype":"fp16","length":100,"width":32,"wide":true,"bound":5,"gain":0.5,"deep":true,"depth":7})");
  CHECK(read_record(line).problems.empty());
  CHECK(read_record(line).problem == full);
  CHECK(read_record(parsed(R"({"dtype":"bf16","length":1,"width":64})")).problem == plain);
  const Trial rounded = with_rounded_sizes(full);
  CHECK(rounded.length == 64);
  CHECK(rounded.bound == 4);
  CHECK(rounded.depth == 4);
  CHECK(rounded.width == full.width);
  CHECK(with_rounded_sizes(plain) == plain);
}

TEST_CASE("what is wrong in a record's line names the field") {
  const Read read = read_record(parsed(R"({"dtype":"fp8","length":2.5,"wide":1,"bound":5000000000,"gian":1})"));
  std::string all;
  for (const Diagnostic& problem : read.problems) all += problem.text() + "\n";
  CHECK(all ==
        "r:1:1: dtype of the line is \"fp8\"; fp16 or bf16\n"
        "r:1:1: length of the line is 2.5; a whole number from -2147483648 to 2147483647\n"
        "r:1:1: the line has no width; add \"width\"\n"
        "r:1:1: wide of the line is 1; true or false\n"
        "r:1:1: bound of the line is 5000000000; a whole number from -2147483648 to 2147483647\n"
        "r:1:1: the line has a key \"gian\", which is unknown; did you mean gain?\n");
}

TEST_CASE("a tuned row has what every row has first, and the rest where a text has it") {
  CHECK(row_of(plain).dump() == R"({"operation":"trial","dtype":"bf16","columns":64,"length":1})");
  CHECK(row_of(full).dump() ==
        R"({"operation":"trial","dtype":"fp16","columns":32,"length":100,"wide":true,"bound":5,"gain":true,)"
        R"("deep":true,"depth":7})");
  Trial as_kept = full;
  as_kept.gain = 1;  // a row knows whether there is one
  CHECK(read_row_of(row_of(full)).problem == as_kept);
  CHECK(as_row(full) == as_kept);
  CHECK(as_row(plain) == plain);
  Trial shallow = full;
  shallow.deep = false;
  CHECK(as_row(shallow).depth == 0);
  const Read short_row =
      read_row_of(parsed(R"({"operation":"trial","dtype":"fp16","columns":32,"length":100,"deep":true})"));
  CHECK(short_row.problems.empty());
  CHECK(short_row.problem.depth == 100);
}

TEST_CASE("a tuned row's sizes are at least 1, and nothing that stands for nothing") {
  const Read read =
      read_row_of(parsed(R"({"operation":"trial","dtype":"fp16","columns":0,"length":0,"bound":-1,"depth":0})"));
  REQUIRE(read.problems.size() == 4);
  CHECK(read.problems[0].text() == "t:1:1: length of problem is 0; a whole number from 1 to 1073741824");
  CHECK(read.problems[1].text() == "t:1:1: columns of problem is 0; a whole number from 1 to 256");
  CHECK(read.problems[2].text() == "t:1:1: bound of problem is -1; a whole number from 0 to 1073741823");
  CHECK(read.problems[3].text() == "t:1:1: depth of problem is 0; a whole number from 1 to 1073741824");
}

TEST_CASE("an operation is known by its word, from the one list of them") {
  const std::vector<AnyProblem> each = each_operation(AnyProblem());
  CHECK(operations_text(each).starts_with("prefill, decode, store_kv, merge_states"));
  REQUIRE(find_operation(each, "store_kv") != nullptr);
  CHECK(std::holds_alternative<StoreProblem>(*find_operation(each, "store_kv")));
  CHECK(find_operation(each, "combine") == nullptr);
}
