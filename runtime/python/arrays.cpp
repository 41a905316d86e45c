#include "runtime/python/arrays.hpp"

#include <fmt/format.h>

#include <array>

#include "runtime/python/errors.hpp"

namespace nb = nanobind;

namespace attune::python {

Sequences read_starts(const std::int32_t*& member, const First& first, nb::handle array) {
  constexpr const char* name = "cu_seqlens_q";
  const Array read = read_into(member, first, name, array, std::array<std::int64_t, 1>{-1}, "it must be (batch + 1,)");
  if (read.shape[0] == 0) raise(PyExc_ValueError, fmt::format("{} has shape (0,); it must be (batch + 1,)", name));
  return {name, count("batch", read.shape[0] - 1)};
}

void read_more_starts(const std::int32_t*& member, const First& first, const char* name, nb::handle array,
                      const Sequences& sequences) {
  read_into(member, first, name, array, std::array{sequences.count + std::int64_t{1}},
            [&] { return demand_with(sequences, "(batch + 1,)"); });
}

void read_lengths(const std::int32_t*& member, const First& first, const char* name, nb::handle array,
                  const Sequences& sequences) {
  read_into(member, first, name, array, std::array<std::int64_t, 1>{sequences.count},
            [&] { return demand_with(sequences, "(batch,)"); });
}

void read_optional_lengths(const std::int32_t*& member, const First& first, const char* name, nb::handle array,
                           const Sequences& sequences) {
  if (!array.is_none()) read_lengths(member, first, name, array, sequences);
}

void require_queries(std::int32_t max_seqlen_q, const Operand& q, std::int32_t batch) {
  if (max_seqlen_q != 0 || q.shape[1] == 0 || batch == 0) return;
  raise(PyExc_ValueError,
        fmt::format("max_seqlen_q is 0, and {} of {} has rows; it must be at least the queries of any sequence", q.name,
                    q.text()));
}

void read_lse(const float*& member, const First& first, const char* name, nb::handle array, const Operand& of) {
  const std::array<std::int64_t, 3> shape{of.shape[0], of.shape[2], of.shape[1]};
  const auto wanted = std::span(shape).last(static_cast<std::size_t>(of.rank - 1));
  require_contiguous(name, read_into(member, first, name, array, wanted, [&] { return demand_with(of, wanted); }));
}

std::string demand_with(const Operand& of, std::span<const std::int64_t> wanted) {
  return fmt::format("with {} of {} it must be {}", of.name, of.text(), tuple_text(wanted));
}

std::string demand_with(const Sequences& sequences, const char* wanted) {
  return fmt::format("with {} sequences in {} it must be {}", sequences.count, sequences.argument, wanted);
}

Array read_each_row(const First& first, const char* name, nb::handle array, std::initializer_list<Element> accepted,
                    const Operand& of, std::int64_t rows) {
  const std::array<std::int64_t, 2> shape{of.shape[0], rows};
  const auto wanted = std::span(shape).last(of.rank == 3 ? 1 : 2);
  const Array read = read_plain(first, name, array, accepted, wanted, [&] { return demand_with(of, wanted); });
  require_contiguous(name, read);
  return read;
}

}  // namespace attune::python
