#include "runtime/tune/journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "generator/hash.hpp"
#include "generator/variant_json.hpp"
#include "runtime/base/error.hpp"

namespace attune::tune {
namespace {

constexpr int format = 2;
constexpr std::size_t most_bytes = std::size_t{1} << 30;

/// What a line says that it may not; the text is for people.
struct Unsound : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A line ends in the checksum of all that is before it, with the brace that closes it.
constexpr std::string_view sum_begin = R"(,"sum":")";
constexpr std::string_view sum_end = R"("})";
constexpr std::size_t sum_digits = 32;

std::string with_sum(const Json& line) {
  std::string text = json_text(line);
  const std::string sum = xxh3_hex(text);
  text.pop_back();
  return text.append(sum_begin).append(sum).append(sum_end);
}

/// The line without its checksum.
std::string checked(std::string_view line) {
  constexpr std::size_t tail = sum_begin.size() + sum_digits + sum_end.size();
  const std::string_view end = line.substr(line.size() - std::min(line.size(), tail));
  if (end.size() < tail || !end.starts_with(sum_begin) || !end.ends_with(sum_end)) throw Unsound("it has no checksum");
  std::string text = std::string(line.substr(0, line.size() - tail)) + "}";
  if (xxh3_hex(text) != end.substr(sum_begin.size(), sum_digits)) throw Unsound("its checksum is that of another line");
  return text;
}

const Json& member(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw Unsound(fmt::format("{} is missing", key));
  return *found;
}

[[noreturn]] void refuse(const char* key, const Json& value, std::string_view wanted) {
  throw Unsound(fmt::format("{} is {}; {}", key, shown_as(value), wanted));
}

std::string text_in(const Json& object, const char* key) {
  const Json& value = member(object, key);
  if (!value.is_string()) refuse(key, value, "text");
  return value.get<std::string>();
}

bool flag_in(const Json& object, const char* key) {
  const Json& value = member(object, key);
  if (!value.is_boolean()) refuse(key, value, "true or false");
  return value.get<bool>();
}

int whole(const char* key, const Json& value) {
  constexpr int most = std::numeric_limits<int>::max();
  const std::optional<long long> found = whole_number(value, 0, most);
  if (!found) refuse(key, value, fmt::format("a whole number from 0 to {}", most));
  return static_cast<int>(*found);
}

double number(const char* key, const Json& value) {
  if (!value.is_number() || value.get<double>() < 0) refuse(key, value, "a number from 0 on");
  return value.get<double>();
}

const Json& list_in(const Json& object, const char* key) {
  const Json& value = member(object, key);
  if (!value.is_array() || value.empty()) refuse(key, value, "a list that is not empty");
  return value;
}

Variant variant_of(const Json& object) {
  if (!object.is_object()) refuse("a variant", object, "an object");
  const std::string name = text_in(object, "template");
  for (const Family& family : families()) {
    if (family.name != name) continue;
    Variant variant = family.defaults;
    for (const auto& [key, value] : object.items()) {
      const Field* field = find_field(key);
      if (field == nullptr) continue;
      const auto parsed = parse_value(*field, value.is_string() ? value.get<std::string>() : json_text(value));
      if (!parsed) refuse(key.c_str(), value, accepted_values(*field));
      variant.*field->member = *parsed;
    }
    return variant;
  }
  throw Unsound(fmt::format("there is no template {}", name));
}

Json json_of(const Identity& identity) {
  return {{"attune_journal", format},
          {"gpu", identity.gpu.name},
          {"capability", identity.gpu.capability},
          {"multiprocessors", identity.gpu.multiprocessors},
          {"driver", identity.driver},
          {"compiler", identity.compiler},
          {"sources", identity.sources}};
}

Identity identity_of(const Json& object) {
  return {.gpu = {.name = text_in(object, "gpu"),
                  .capability = whole("capability", member(object, "capability")),
                  .multiprocessors = whole("multiprocessors", member(object, "multiprocessors"))},
          .driver = text_in(object, "driver"),
          .compiler = text_in(object, "compiler"),
          .sources = text_in(object, "sources")};
}

JournalContents::Round round_of(const JournalContents& contents, const std::string& race, const Json& line) {
  const auto known = contents.races.find(race);
  if (known == contents.races.end()) throw Unsound("no line before it describes the race that this round is of");
  JournalContents::Round round;
  for (const Json& one : list_in(line, "order")) {
    round.order.push_back(whole("order", one));
    if (static_cast<std::size_t>(round.order.back()) < known->second.candidates.size()) continue;
    refuse("order", one, fmt::format("the race has {} candidates", known->second.candidates.size()));
  }
  for (const Json& one : list_in(line, "seconds")) round.seconds.push_back(number("seconds", one));
  if (round.order.size() != round.seconds.size()) throw Unsound("seconds is not a time for each of order");
  return round;
}

/// Adds what one line says.
void read_line(JournalContents& contents, const Json& line) {
  const std::string kind = line.begin().key();
  const std::string name = text_in(line, kind.c_str());
  if (kind == "built") {
    contents.builds.insert_or_assign(name, BuildReport{.error = text_in(line, "error"),
                                                       .spill_bytes = whole("spill_bytes", member(line, "spill_bytes")),
                                                       .registers = whole("registers", member(line, "registers")),
                                                       .seconds = number("seconds", member(line, "seconds"))});
  } else if (kind == "checked") {
    contents.checks.insert_or_assign(name, text_in(line, "found"));
  } else if (kind == "race") {
    RaceRecord record{.problem = text_in(line, "problem"),
                      .work = number("work", member(line, "work")),
                      .decodes = flag_in(line, "decodes"),
                      .candidates = {}};
    for (const Json& variant : list_in(line, "candidates")) record.candidates.push_back(variant_of(variant));
    contents.races.insert_or_assign(name, std::move(record));
  } else if (kind == "round") {
    contents.rounds.insert_or_assign({name, whole("number", member(line, "number"))}, round_of(contents, name, line));
  } else if (kind == "outcome") {
    Result<TunedTable> table = parse_tuned(text_in(line, "table"), "table");
    if (!table.ok()) throw Unsound(table.problems.front().text());
    if (table.value.rows.size() != 1) throw Unsound(fmt::format("table has {} rows; one", table.value.rows.size()));
    contents.outcomes.insert_or_assign(name, Outcome{.row = table.value.rows.front(),
                                                     .heuristic = variant_of(member(line, "heuristic")),
                                                     .complete = flag_in(line, "complete")});
  } else {
    throw Unsound(fmt::format("unknown key {}", shown_as(kind)));
  }
}

/// The first line says what was measured on, each other one what was learned.
void read_line(JournalContents& contents, std::string_view text, int number) {
  if (number == 1) {
    // Before the checksum, which the first format did not have: its journals are told apart, not called broken.
    const Json head = parse_json(text);
    if (!head.is_object() || !head.contains("attune_journal")) throw Unsound("it does not begin as one");
    const int found = whole("attune_journal", head["attune_journal"]);
    if (found != format) throw Unsound(fmt::format("its format is {}, this is {}: name another", found, format));
  }
  const Json line = parse_json(checked(text));
  if (!line.is_object() || line.empty()) throw Unsound("it is no object");
  if (number == 1) {
    contents.identity = identity_of(line);
  } else {
    read_line(contents, line);
  }
}

std::string text_of(const Identity& identity) {
  return fmt::format("{} with {} multiprocessors, driver {}, {}, sources {}", identity.gpu.name,
                     identity.gpu.multiprocessors, identity.driver, identity.compiler, identity.sources);
}

[[noreturn]] void fail(const char* what, const std::filesystem::path& path) {
  throw std::filesystem::filesystem_error(what, path, std::error_code(errno, std::generic_category()));
}

}  // namespace

RaceRecord record_of(const AnyProblem& problem, std::vector<Variant> candidates) {
  return {.problem = attune::text_of(problem),
          .work = work_of(problem),
          .decodes = std::holds_alternative<DecodeProblem>(problem),
          .candidates = std::move(candidates)};
}

JournalContents read_journal(const std::filesystem::path& path) {
  const std::optional<std::string> text = read_file(path, most_bytes);
  if (!text) throw Error(ATTUNE_INVALID_ARGUMENT, fmt::format("{}: it cannot be read", path.string()));
  JournalContents contents;
  int number = 0;
  for (std::size_t begin = 0; begin < text->size();) {
    const std::size_t end = text->find('\n', begin);
    if (end == std::string::npos) break;  // torn
    ++number;
    const std::string_view text_of_line = std::string_view(*text).substr(begin, end - begin);
    try {
      read_line(contents, text_of_line, number);
    } catch (const Unsound& unsound) {
      throw Error(ATTUNE_INVALID_ARGUMENT, fmt::format("{}:{}: this is no line of a journal of `attune tune` ({})",
                                                       path.string(), number, unsound.what()));
    }
    begin = end + 1;
    contents.whole_bytes = begin;
  }
  if (number == 0 && !text->empty()) {
    throw Error(ATTUNE_INVALID_ARGUMENT, fmt::format("{}: it has no whole line; remove it", path.string()));
  }
  return contents;
}

Journal::Journal(Identity identity) { contents_.identity = std::move(identity); }

Journal::Journal(const std::filesystem::path& path, const Identity& identity)
    : path_(path), lock_(FileLock::acquire(path.string() + ".lock", 0)) {
  if (!lock_) {
    throw Error(ATTUNE_INVALID_ARGUMENT, fmt::format("{}: another process writes this journal", path.string()));
  }
  const bool exists = std::filesystem::exists(path) && std::filesystem::file_size(path) > 0;
  if (exists) contents_ = read_journal(path);
  if (exists && contents_.identity != identity) {
    throw Error(ATTUNE_INVALID_ARGUMENT,
                fmt::format("{}: it was measured on {}; this is {}: name another journal or remove it", path.string(),
                            text_of(contents_.identity), text_of(identity)));
  }
  file_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file_.open()) fail("cannot open the journal", path);
  if (exists) {
    // What comes next must not hang on to half a line.
    if (::ftruncate(file_.get(), static_cast<off_t>(contents_.whole_bytes)) != 0) fail("cannot cut the journal", path);
    return;
  }
  contents_.identity = identity;
  append(with_sum(json_of(identity)), true);
}

void Journal::append(const std::string& line, bool sync) {
  if (!file_.open()) return;
  const std::string whole = line + "\n";
  for (std::size_t done = 0; done < whole.size();) {
    const ssize_t count = ::write(file_.get(), whole.data() + done, whole.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("cannot write the journal", path_);
    done += static_cast<std::size_t>(count);
  }
  if (sync && ::fdatasync(file_.get()) != 0) fail("cannot sync the journal", path_);
}

namespace {

template <class Map, class Key>
std::optional<typename Map::mapped_type> find_in(const Map& map, const Key& key) {
  const auto found = map.find(key);
  if (found == map.end()) return std::nullopt;
  return found->second;
}

}  // namespace

std::optional<BuildReport> Journal::build(const std::string& variant) const {
  const std::scoped_lock lock(mutex_);
  return find_in(contents_.builds, variant);
}

std::optional<std::string> Journal::check(const std::string& variant) const {
  const std::scoped_lock lock(mutex_);
  return find_in(contents_.checks, variant);
}

std::optional<std::vector<double>> Journal::round(const std::string& race, int number,
                                                  std::span<const int> order) const {
  const std::scoped_lock lock(mutex_);
  const auto found = contents_.rounds.find({race, number});
  if (found == contents_.rounds.end() || !std::ranges::equal(found->second.order, order)) return std::nullopt;
  return found->second.seconds;
}

std::optional<Outcome> Journal::outcome(const std::string& race) const {
  const std::scoped_lock lock(mutex_);
  return find_in(contents_.outcomes, race);
}

void Journal::add_build(const std::string& variant, const BuildReport& report) {
  const std::scoped_lock lock(mutex_);
  append(with_sum({{"built", variant},
                   {"error", report.error},
                   {"spill_bytes", report.spill_bytes},
                   {"registers", report.registers},
                   {"seconds", report.seconds}}),
         false);
  contents_.builds.insert_or_assign(variant, report);
}

void Journal::add_check(const std::string& variant, const std::string& found) {
  const std::scoped_lock lock(mutex_);
  // What stops the GPU may stop the process next: this one must be known.
  append(with_sum({{"checked", variant}, {"found", found}}), !found.empty());
  contents_.checks.insert_or_assign(variant, found);
}

void Journal::add_race(const std::string& race, const RaceRecord& record) {
  const std::scoped_lock lock(mutex_);
  if (contents_.races.contains(race)) return;
  Json candidates = Json::array();
  for (const Variant& variant : record.candidates) candidates.push_back(variant_json(variant));
  append(with_sum({{"race", race},
                   {"problem", record.problem},
                   {"work", record.work},
                   {"decodes", record.decodes},
                   {"candidates", candidates}}),
         false);
  contents_.races.emplace(race, record);
}

void Journal::add_round(const std::string& race, int number, std::span<const int> order,
                        std::span<const double> seconds) {
  const std::scoped_lock lock(mutex_);
  JournalContents::Round round{{order.begin(), order.end()}, {seconds.begin(), seconds.end()}};
  append(with_sum({{"round", race}, {"number", number}, {"order", round.order}, {"seconds", round.seconds}}), false);
  contents_.rounds.insert_or_assign({race, number}, std::move(round));
}

void Journal::add_outcome(const std::string& race, const Outcome& outcome) {
  const std::scoped_lock lock(mutex_);
  append(with_sum({{"outcome", race},
                   {"complete", outcome.complete},
                   {"heuristic", variant_json(outcome.heuristic)},
                   {"table", tuned_text({.gpu = contents_.identity.gpu, .rows = {outcome.row}})}}),
         true);
  contents_.outcomes.insert_or_assign(race, outcome);
}

std::string race_id(const RaceRecord& record, const std::string& rules) {
  std::string text = record.problem + "\n" + rules;
  for (const Variant& variant : record.candidates) text += "\n" + variant.name();
  return xxh3_hex(text);
}

}  // namespace attune::tune
