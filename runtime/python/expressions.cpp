#include "runtime/python/expressions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "generator/expression/parse.hpp"
#include "runtime/python/errors.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

constexpr int most_rank = 4;  // of an array that expressions look up

/// All of a Python text, zeros inside of it, too. Throws Python's own error where UTF-8 has no word for it.
std::string whole(nb::handle text) {
  Py_ssize_t size = 0;
  const char* const begin = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (begin == nullptr) throw nb::python_error();
  return {begin, static_cast<std::size_t>(size)};
}

/// A parameter's name.
std::string read_name(nb::handle given) {
  if (!nb::isinstance<nb::str>(given)) raise(PyExc_TypeError, "params is no dict of arrays by their names");
  std::string name = whole(given);
  if (!expression::is_parameter_name(name)) {
    raise(PyExc_ValueError,
          fmt::format("params has the name {}, which no expression can read: a name is up to 32 letters, digits and _, "
                      "no digit first, and no word that expressions have, as s, k or min",
                      nb::repr(given).c_str()));
  }
  return name;
}

/// An array's rank, before it is checked; 1 of what is none of the framework's arrays.
int rank_of(const First& first, const char* name, nb::handle array) {
  return nb::isinstance(array, first.framework.array_type()) ? first.framework.read(name, array).rank : 1;
}

attune_named_array read_array(const First& first, const char* name, nb::handle array) {
  const int rank = rank_of(first, name, array);
  if (rank < 1 || rank > most_rank) {
    raise(PyExc_ValueError, fmt::format("{} has shape {}; a parameter has 1 to {} dimensions", name,
                                        shape_text({name, array, 1}), most_rank));
  }
  const std::array<std::int64_t, most_rank> any{-1, -1, -1, -1};
  const Array read = read_plain(first, name, array, {Element::float32, Element::int32},
                                std::span(any).first(static_cast<std::size_t>(rank)), "");
  require_contiguous(name, read);
  attune_named_array result{.name = name,
                            .data = pointer<const void>(read.address),
                            .element = read.element == Element::float32 ? ATTUNE_FP32 : ATTUNE_INT32,
                            .rank = rank,
                            .extents = {}};
  std::copy_n(read.shape.begin(), read.rank, result.extents);
  return result;
}

}  // namespace

bool read_text(const char* name, nb::handle text, std::string& to) {
  if (text.is_none()) return false;
  if (!nb::isinstance<nb::str>(text)) raise(PyExc_TypeError, fmt::format("{} is no text of an expression", name));
  to = whole(text);
  // The C ABI's texts end at a zero.
  if (to.find('\0') != std::string::npos) {
    const auto parsed = expression::parse(to, expression::Use::score, {}, {name, 1, 1});
    raise(PyExc_ValueError, parsed.problems.front().text());
  }
  return true;
}

ExpressionArguments::ExpressionArguments(const First& first, nb::handle alibi_slopes, nb::handle sink,
                                         const ExpressionOptions* options, const ExpressedSizes& sizes) {
  if (alibi_slopes.is_none() && sink.is_none() && options == nullptr) return;
  if (!sink.is_none()) read_sink(first, sink, sizes.heads_q);
  if (!alibi_slopes.is_none()) read_slopes(first, alibi_slopes, sizes);
  if (options != nullptr) read_options(first, *options);
}

void ExpressionArguments::add(const attune_named_array& array, nb::handle given) {
  arrays_.push_back(array);
  given_.push_back(nb::borrow(given));
}

void ExpressionArguments::read_slopes(const First& first, nb::handle slopes, const ExpressedSizes& sizes) {
  constexpr const char* name = "alibi_slopes";
  const bool of_sequences = rank_of(first, name, slopes) == 2;
  const auto demand = [&] {
    return fmt::format("it must be ({1},) or ({0}, {1}), (heads_q,) or (batch, heads_q)", sizes.batch, sizes.heads_q);
  };
  const std::array<std::int64_t, 2> shape{sizes.batch, sizes.heads_q};
  const Array read =
      read_plain(first, name, slopes, {Element::float32}, std::span(shape).last(of_sequences ? 2 : 1), demand);
  require_contiguous(name, read);
  attune_named_array array{.name = name,
                           .data = pointer<const void>(read.address),
                           .element = ATTUNE_FP32,
                           .rank = read.rank,
                           .extents = {}};
  std::copy_n(read.shape.begin(), read.rank, array.extents);
  add(array, slopes);
  has_score_ = true;
  // Where no key after the query's position is seen, the distance has one sign.
  score_ =
      fmt::format("s {1} {0}[{2}h] * {3} where {0}: fp32[{4}head]", name, sizes.causal ? "+" : "-",
                  of_sequences ? "b, " : "", sizes.causal ? "(k - p)" : "abs(p - k)", of_sequences ? "batch, " : "");
}

void ExpressionArguments::read_sink(const First& first, nb::handle sink, std::int32_t heads_q) {
  constexpr const char* name = "learnable_sink";
  const Array given = read_plain(first, name, sink, {Element::float32, Element::float16, Element::bfloat16},
                                 std::array{std::int64_t{heads_q}},
                                 [&] { return fmt::format("it must be ({},), (heads_q,)", heads_q); });
  require_contiguous(name, given);
  sink_array_ = nb::borrow(sink);
  sink_like_q_ = given.element == first.array.element;
  sink_ = pointer<const void>(given.address);
  if (given.element != Element::float32 && !sink_like_q_) {
    const Entered entered(first.framework.on_device(first.array.device));
    sink_array_ = first.framework.as_float32(sink);
    sink_ = pointer<const void>(first.framework.read(name, sink_array_).address);
  }
}

void ExpressionArguments::read_options(const First& first, const ExpressionOptions& options) {
  if (has_score_ && !options.score.is_none()) {
    raise(PyExc_ValueError, "alibi_slopes are given with a score, which can add them itself");
  }
  if (!has_score_) has_score_ = read_text("score", options.score, score_);
  has_mask_ = read_text("mask", options.mask, mask_);
  if (options.params.is_none()) return;
  if (!nb::isinstance<nb::dict>(options.params)) raise(PyExc_TypeError, "params is no dict of arrays by their names");
  const auto params = nb::borrow<nb::dict>(options.params);
  names_.reserve(params.size());
  for (const auto& [name, array] : params) {
    names_.push_back(read_name(name));
    add(read_array(first, names_.back().c_str(), array), array);
  }
}

}  // namespace attune::python
