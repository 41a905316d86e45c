// The bundle format: what is written is read back, and what is not that is refused, whatever the bytes.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

#include "generator/bundle.hpp"
#include "generator/check.hpp"
#include "generator/hash.hpp"

namespace {

using namespace attune;

constexpr std::size_t header_bytes = 64;
constexpr std::size_t checksum_bytes = 32;

/// A kernel of every family, and one of them once more for named GPUs.
std::vector<BundledKernel> some_kernels() {
  static const std::vector<std::string> images{std::string(100, 'a'), std::string(64, 'b'), std::string(1, '\0')};
  std::vector<BundledKernel> kernels;
  for (const Family& family : families()) {
    kernels.push_back({family.defaults, family.defaults.name(), images[kernels.size() % images.size()]});
  }
  BundledKernel named = kernels.front();
  named.variant.arch = set_of(*find_arch("sm_80")) | set_of(*find_arch("sm_121"));
  named.tables_only = true;
  kernels.push_back(named);
  return kernels;
}

const std::vector<BundledTable> some_tables{{"h200.yaml", "gpu: {}\nrows: []\n"}, {"empty.yaml", ""}};

std::string problem_of(std::string_view bytes) {
  const Result<Bundle> read = read_bundle(bytes, "some.attune");
  return read.ok() ? "" : read.problems.front().text();
}

/// The bundle with a checksum and a size that are right.
std::string sealed(std::string bytes) {
  bytes.resize(bytes.size() - checksum_bytes);
  const std::uint64_t size = bytes.size() + checksum_bytes;
  std::memcpy(bytes.data() + 16, &size, sizeof(size));
  return bytes + xxh3_hex(bytes);
}

/// The bundle with other words in its manifest, as many bytes as before: spaces fill up.
std::string reworded(std::string bytes, const std::string& from, std::string to) {
  const std::size_t at = bytes.find(from);
  REQUIRE(at != std::string::npos);
  REQUIRE(to.size() <= from.size());
  to.resize(from.size(), ' ');
  return sealed(bytes.replace(at, from.size(), to));
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("a bundle gives back the kernels and tables that it was made of") {
  const std::vector<BundledKernel> kernels = some_kernels();
  const std::string bytes = write_bundle({.kernels = kernels, .tables = some_tables});
  CHECK(bytes == write_bundle({.kernels = kernels, .tables = some_tables}));
  const Result<Bundle> read = read_bundle(bytes, "some.attune");
  REQUIRE(read.ok());
  REQUIRE(read.value.kernels.size() == kernels.size());
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    CAPTURE(kernels[i].name);
    CHECK(read.value.kernels[i].variant == kernels[i].variant);
    CHECK(read.value.kernels[i].name == kernels[i].name);
    CHECK(read.value.kernels[i].image == kernels[i].image);
    CHECK(read.value.kernels[i].tables_only == kernels[i].tables_only);
    CHECK((read.value.kernels[i].image.data() - bytes.data()) % 64 == 0);
  }
  CHECK(read.value.tables == some_tables);
}

TEST_CASE("a bundle may be empty") {
  const Result<Bundle> read = read_bundle(write_bundle({}), "some.attune");
  CHECK(read.ok());
  CHECK(read.value.kernels.empty());
  CHECK(read.value.tables.empty());
}

TEST_CASE("what is no bundle is refused with the file's name and what would be right") {
  for (const std::string& bytes : {std::string(), std::string("ATTUNE\r\n"), std::string(500, 'x')}) {
    CHECK(problem_of(bytes) == "some.attune: this is no bundle of kernels; attune pack makes one");
  }
}

TEST_CASE("a bundle that was cut or altered is refused") {
  const std::string bytes = write_bundle({.kernels = some_kernels(), .tables = some_tables});
  CHECK(contains(problem_of(bytes.substr(0, bytes.size() - 1)), "bytes instead of the"));
  CHECK(contains(problem_of(bytes + "x"), "bytes instead of the"));
  for (const std::size_t at :
       {std::size_t{40}, header_bytes + 5, bytes.size() - checksum_bytes - 1, bytes.size() - 1}) {
    std::string altered = bytes;
    altered[at] = static_cast<char>(altered[at] ^ 1);
    CHECK(contains(problem_of(altered), "checksum does not match; copy it again"));
  }
}

TEST_CASE("a bundle of another version is refused, and it is to be made again") {
  const std::string bytes = write_bundle({.kernels = some_kernels(), .tables = some_tables});
  const auto with = [&](std::size_t offset, char value) {
    std::string altered = bytes;
    altered[offset] = value;
    return problem_of(sealed(altered));
  };
  CHECK(contains(with(8, 9), "has format 9"));
  CHECK(contains(with(12, 99), "take parameters of ABI 99"));
  CHECK(contains(with(32, '7'), "made by Attune 7.1.0"));
  CHECK(contains(with(32, '\n'), "made by Attune ?.1.0"));
  for (const std::size_t offset : {std::size_t{8}, std::size_t{12}, std::size_t{32}}) {
    CHECK(contains(with(offset, 'x'), "; rebuild it with attune pack of this version"));
  }
}

TEST_CASE("a kernel that this version would not make is refused by its name") {
  const std::string bytes = write_bundle({.kernels = some_kernels(), .tables = some_tables});
  const struct {
    const char* from;
    const char* to;
    const char* says;
  } cases[] = {
      {";stages;", ";stagee;", "template prefill_sm80 has other keys here than in the bundle"},
      {R"("keys":)", R"("kays":)", "template prefill_sm80 has other keys here than in the bundle"},
      {R"("values":"bf16;128)", R"("values":"bf17;128)", "dtype is bf17; fp16"},
      {R"("values":"bf16;128)", R"("values":"bf16;64 )", "head_dim is 64 ;"},
      {R"("values":"bf16;128)", R"("values":"fp16;128)", "these values are called prefill_sm80_fp16_d128"},
      {R"("values":"bf16;)", R"("values":"bf16)", "the kernel has 25 values for the 26 keys of template prefill_sm80"},
      {R"("values":")", R"("value":")", "the kernel has 1 values for the 26 keys of template prefill_sm80"},
      {R"("template":"prefill_sm80")", R"("template":"prefill_sm79")", "template \"prefill_sm79\" is not known here"},
      {R"("archs":[])", R"("archs":0)", "GPUs that are not known here"},
      {R"("sm_121")", R"("sm_999")", "GPUs that are not known here"},
      {R"("threads":128)", R"("threads":64)", "wants another launch"},
      {R"("tables_only":false)", R"("tables_only":0)", "whether tables alone ask for it"},
      {R"("tables_only":)", R"("table_only":)", "whether tables alone ask for it"},
      {R"("bytes":100}],)", R"("bytes":999}],)", "image is not inside the bundle"},
      {R"("bytes":100})", R"("bytes":0})", "image is not inside the bundle"},
      {R"({"kernels":)", R"({"colonel":)", "manifest is not what Attune writes"},
      {R"("tuned":)", R"("tunes":)", "manifest is not what Attune writes"},
  };
  for (const auto& [from, to, says] : cases) {
    CAPTURE(to);
    const std::string problem = problem_of(reworded(bytes, from, to));
    CAPTURE(problem);
    CHECK(contains(problem, says));
    if (*says != '\0') CHECK(contains(problem, "rebuild it with attune pack"));
  }
}

/// Reads the bytes from memory that ends where they end, and every image in it; empty when all went as promised.
std::string broken_promise(const std::string& bytes) {
  const std::vector<char> exact(bytes.begin(), bytes.end());
  const Result<Bundle> read = read_bundle({exact.data(), exact.size()}, "fuzz.attune");
  if (!read.ok()) {
    if (read.problems.front().text().find('\n') != std::string::npos) return "a message of several lines";
    return read.value.kernels.empty() && read.value.tables.empty() ? "" : "what a refused bundle holds";
  }
  unsigned sum = 0;
  for (const BundledKernel& kernel : read.value.kernels) {
    if (!check(kernel.variant).empty()) return "a kernel that cannot be";
    for (const char c : kernel.image) sum += static_cast<unsigned char>(c);
  }
  return sum == 1 ? "unlikely" : "";
}

TEST_CASE("no bytes make reading fail in another way, with a right checksum or a wrong one") {
  const std::string bytes = write_bundle({.kernels = some_kernels(), .tables = some_tables});
  std::mt19937 random(1);
  const auto below = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
  };
  // Where the header and the manifest are: nothing else is looked into.
  const std::size_t read_bytes = bytes.find(R"("text":""}]})", header_bytes) + 12;
  for (int round = 0; round < 4000; ++round) {
    std::string altered = bytes;
    if (below(8) == 0) altered.resize(header_bytes + checksum_bytes + below(altered.size() - header_bytes));
    for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
      const std::size_t at = below(std::min(read_bytes, altered.size()));
      altered[at] = below(2) == 0 ? static_cast<char>(altered[at] ^ (1 << below(8))) : static_cast<char>(below(256));
    }
    if (below(4) != 0) altered = sealed(altered);
    const std::string broken = broken_promise(altered);
    CAPTURE(round);
    CHECK(broken.empty());
  }
  for (std::size_t size = 0; size < bytes.size(); size += 7) CHECK(broken_promise(bytes.substr(0, size)).empty());
}

TEST_CASE("a manifest of deep brackets is refused, not followed") {
  std::string bytes = write_bundle({}).substr(0, header_bytes);
  const std::string rows(200000, '[');
  const std::string manifest = R"({"kernels":[{"name":"x","template":"combine","values":)" + rows +
                               std::string(rows.size(), ']') + R"(}],"tuned":[]})";
  const std::uint64_t size = manifest.size();
  std::memcpy(bytes.data() + 24, &size, sizeof(size));
  CHECK(contains(problem_of(sealed(bytes + manifest + std::string(checksum_bytes, ' '))),
                 "manifest is not what Attune writes"));
}

}  // namespace
