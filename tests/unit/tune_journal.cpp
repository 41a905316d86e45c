// The journal: what it takes back, what it refuses.
#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "generator/hash.hpp"
#include "runtime/base/error.hpp"
#include "runtime/tune/journal.hpp"

namespace {

using namespace attune;

tune::Identity identity() {
  return {.gpu = {.name = "NVIDIA H200", .capability = 90, .multiprocessors = 132},
          .driver = "13.0",
          .compiler = "NVRTC 13.0",
          .sources = "0123"};
}

class JournalFile {
 public:
  [[nodiscard]] std::filesystem::path path() const { return folder_.path() / "journal.jsonl"; }
  [[nodiscard]] std::string text() const { return read_file(path(), 1 << 20).value(); }
  void append(const std::string& text) const { std::ofstream(path(), std::ios::app) << text; }

 private:
  ScratchFolder folder_;
};

/// The line as a journal would write it.
std::string summed(std::string line) {
  const std::string sum = xxh3_hex(line);
  line.pop_back();
  return line + ",\"sum\":\"" + sum + "\"}";
}

std::string error_of(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("what a journal was told it knows when it is opened again") {
  const JournalFile file;
  Variant variant = families()[prefill_sm90].defaults;
  variant.B_c = 96;
  variant.pack_gqa = 1;
  variant.gqa_ratio = 4;
  const Problem problem{.heads_q = 16, .heads_kv = 4, .seqlen_q = 512, .seqlen_k = 512};
  const tune::RaceRecord record = tune::record_of(problem, {families()[prefill_sm90].defaults, variant});
  const std::string id = tune::race_id(record, "rules");
  const std::array order{1, 0};
  const std::array seconds{1.25e-5, 0.1 + 0.2};
  const tune::Outcome outcome{.row = {.problem = tuned_problem(problem),
                                      .result = {.variant = variant,
                                                 .microseconds = 12.345678901234567,
                                                 .default_microseconds = 13,
                                                 .confidence = 0.9987,
                                                 .date = "2026-11-22",
                                                 .driver = "13.0",
                                                 .compiler = "NVRTC 13.0"}},
                              .heuristic = families()[prefill_sm90].defaults,
                              .complete = true};
  {
    tune::Journal journal(file.path(), identity());
    journal.add_build("a", {.error = "", .spill_bytes = 8, .registers = 168, .seconds = 0.5});
    journal.add_check("a", "off by \"1\"\n");
    journal.add_race(id, record);
    journal.add_round(id, 3, order, seconds);
    journal.add_outcome(id, outcome);
  }
  const tune::Journal journal(file.path(), identity());
  CHECK(journal.build("a")->spill_bytes == 8);
  CHECK(journal.build("a")->registers == 168);
  CHECK(journal.check("a") == "off by \"1\"\n");
  CHECK_FALSE(journal.check("b"));
  CHECK(journal.round(id, 3, order) == std::vector<double>(seconds.begin(), seconds.end()));
  CHECK_FALSE(journal.round(id, 3, std::array{0, 1}));
  CHECK_FALSE(journal.round(id, 4, order));
  CHECK(journal.outcome(id) == outcome);
  const tune::JournalContents contents = tune::read_journal(file.path());
  CHECK(contents.races.at(id).candidates == record.candidates);
  CHECK(contents.races.at(id).work == record.work);
}

TEST_CASE("a torn last line is cut off, and what is written next stands on a line of its own") {
  const JournalFile file;
  { tune::Journal(file.path(), identity()).add_check("a", ""); }
  const std::string whole = file.text();
  for (const std::string torn : {"{", R"({"checked":"b","fou)", R"({"checked":"b","found":""})"}) {
    CAPTURE(torn);
    file.append(torn);
    { tune::Journal(file.path(), identity()).add_check("c", ""); }
    CHECK(file.text() == whole + summed(R"({"checked":"c","found":""})") + "\n");
    std::filesystem::resize_file(file.path(), whole.size());
  }
}

TEST_CASE("a line that is no journal's is refused with its place, and nothing is overwritten") {
  for (const std::string line :
       {"[]", "{}", "null", "{\"checked\":1,\"found\":\"\"}", "{\"frobnicated\":\"x\"}",
        "{\"round\":\"x\",\"number\":1,\"order\":[0,1],\"seconds\":[1]}",
        "{\"race\":\"x\",\"problem\":\"p\",\"work\":1,\"decodes\":false,\"candidates\":[]}",
        "{\"built\":\"x\",\"error\":\"\",\"spill_bytes\":4294967296,\"registers\":1,\"seconds\":1}",
        "{\"built\":\"x\",\"error\":\"\",\"spill_bytes\":1,\"registers\":1,\"seconds\":-1}",
        "{\"built\":\"x\",\"error\":\"\",\"spill_bytes\":1,\"registers\":1,\"seconds\":1e400}",
        "{\"built\":\"x\",\"error\":\"\",\"spill_bytes\":18446744073709551615,\"registers\":1,"
        "\"seconds\":1}",
        "{\"race\":\"x\",\"problem\":\"p\",\"work\":1,\"decodes\":false,\"candidates\":[{}]}",
        "{\"outcome\":\"x\",\"complete\":true,\"heuristic\":{\"template\":\"combine\"},"
        "\"table\":\"rows: 7\"}",
        "\x01\xff"}) {
    CAPTURE(line);
    const JournalFile file;
    { const tune::Journal journal(file.path(), identity()); }
    file.append((line.ends_with('}') ? summed(line) : line) + "\n");
    const std::string before = file.text();
    const std::string error = error_of([&] { tune::Journal(file.path(), identity()); });
    CHECK(error.find("journal.jsonl:2: ") != std::string::npos);
    CHECK(error.find("json.exception") == std::string::npos);
    CHECK(file.text() == before);
  }
  const JournalFile other;
  other.append("template: prefill_sm80\n");
  CHECK(error_of([&] { tune::read_journal(other.path()); }).find("journal.jsonl:1: ") != std::string::npos);
}

TEST_CASE("a journal of another GPU, driver, compiler or source is refused and says which") {
  const JournalFile file;
  { const tune::Journal journal(file.path(), identity()); }
  for (int field = 0; field < 5; ++field) {
    tune::Identity other = identity();
    if (field == 0) other.gpu.name = "NVIDIA H100";
    if (field == 1) other.gpu.multiprocessors = 66;
    if (field == 2) other.driver = "13.1";
    if (field == 3) other.compiler = "NVRTC 13.1";
    if (field == 4) other.sources = "4567";
    const std::string error = error_of([&] { tune::Journal(file.path(), other); });
    CHECK(error.find("it was measured on NVIDIA H200 with 132 multiprocessors, driver 13.0") != std::string::npos);
  }
}

TEST_CASE("a bit that changed anywhere in a journal is noticed, in what its first line says too") {
  const JournalFile file;
  { tune::Journal(file.path(), identity()).add_build("a", {.error = "", .spill_bytes = 8, .seconds = 0.5}); }
  const std::string whole = file.text();
  const auto line_end = whole.find('\n');
  for (std::size_t at = 0; at < whole.size(); ++at) {
    if (whole[at] == '\n') continue;
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    std::ofstream(file.path(), std::ios::binary | std::ios::trunc) << changed;
    CAPTURE(changed);
    const std::string place = at < line_end ? "journal.jsonl:1: " : "journal.jsonl:2: ";
    CHECK(error_of([&] { tune::read_journal(file.path()); }).find(place) != std::string::npos);
  }
}

TEST_CASE("a round names candidates that its race has, or the journal is refused") {
  const JournalFile file;
  const Problem problem{.heads_q = 4, .heads_kv = 4, .seqlen_q = 512, .seqlen_k = 512};
  {
    tune::Journal journal(file.path(), identity());
    journal.add_race("id", tune::record_of(problem, {families()[prefill_sm90].defaults}));
    journal.add_round("id", 0, std::array{1}, std::array{1.0});
  }
  CHECK(error_of([&] { tune::read_journal(file.path()); }).find("journal.jsonl:3: ") != std::string::npos);
}

TEST_CASE("a journal of the first format, without checksums, is told apart") {
  const JournalFile file;
  file.append("{\"attune_journal\":1,\"gpu\":\"NVIDIA H200\"}\n");
  CHECK(error_of([&] { tune::read_journal(file.path()); }).find("its format is 1, this is 2") != std::string::npos);
}

TEST_CASE("two processes cannot write one journal") {
  const JournalFile file;
  const tune::Journal journal(file.path(), identity());
  CHECK(error_of([&] { tune::Journal(file.path(), identity()); }).find("another process") != std::string::npos);
}

}  // namespace
