#include "runtime/tune/journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "generator/hash.hpp"
#include "generator/variant_json.hpp"
#include "runtime/error.hpp"

namespace attune::tune {
namespace {

constexpr int format = 1;
constexpr std::size_t most_bytes = std::size_t{1} << 30;

/// Throws what nlohmann throws, or std::out_of_range, where the object is not a variant.
Variant variant_of(const Json& object) {
  for (const Family& family : families()) {
    if (family.name != object.at("template").get<std::string>()) continue;
    Variant variant = family.defaults;
    for (const auto& [key, value] : object.items()) {
      const Field* field = find_field(key);
      if (field == nullptr) continue;
      variant.*field->member = parse_value(*field, value.is_string() ? value.get<std::string>() : value.dump()).value();
    }
    return variant;
  }
  throw std::out_of_range("no such template");
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
  if (object.at("attune_journal").get<int>() != format) throw std::out_of_range("another format");
  return {.gpu = {.name = object.at("gpu"),
                  .capability = object.at("capability"),
                  .multiprocessors = object.at("multiprocessors")},
          .driver = object.at("driver"),
          .compiler = object.at("compiler"),
          .sources = object.at("sources")};
}

/// Adds what one line says.
void read_line(JournalContents& contents, const Json& line) {
  const std::string kind = line.begin().key();
  const std::string name = line.begin().value();
  if (kind == "built") {
    contents.builds.insert_or_assign(name, BuildReport{.error = line.at("error"),
                                                       .spill_bytes = line.at("spill_bytes"),
                                                       .registers = line.at("registers"),
                                                       .seconds = line.at("seconds")});
  } else if (kind == "checked") {
    contents.checks.insert_or_assign(name, line.at("found").get<std::string>());
  } else if (kind == "race") {
    RaceRecord record{
        .problem = line.at("problem"), .work = line.at("work"), .decodes = line.at("decodes"), .candidates = {}};
    for (const Json& variant : line.at("candidates")) record.candidates.push_back(variant_of(variant));
    contents.races.insert_or_assign(name, std::move(record));
  } else if (kind == "round") {
    JournalContents::Round round{line.at("order"), line.at("seconds")};
    if (round.order.size() != round.seconds.size()) throw std::out_of_range("a time for each of the order");
    contents.rounds.insert_or_assign({name, line.at("number").get<int>()}, std::move(round));
  } else if (kind == "outcome") {
    Result<TunedTable> table = parse_tuned(line.at("table").get<std::string>(), "table");
    if (!table.ok()) throw std::out_of_range(table.problems.front().text());
    contents.outcomes.insert_or_assign(name, Outcome{.row = table.value.rows.at(0),
                                                     .heuristic = variant_of(line.at("heuristic")),
                                                     .complete = line.at("complete")});
  } else {
    throw std::out_of_range(fmt::format("unknown key {}", kind));
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
  return {.problem = tune::text_of(problem),
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
    try {
      const Json line = parse_json(std::string_view(*text).substr(begin, end - begin));
      if (number == 1) {
        contents.identity = identity_of(line);
      } else if (!line.is_object() || line.empty()) {
        throw std::out_of_range("not an object");
      } else {
        read_line(contents, line);
      }
    } catch (const std::exception& error) {
      throw Error(ATTUNE_INVALID_ARGUMENT, fmt::format("{}:{}: this is no line of a journal of `attune tune` ({})",
                                                       path.string(), number, error.what()));
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
  append(json_of(identity).dump(), true);
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
  append(Json{{"built", variant},
              {"error", report.error},
              {"spill_bytes", report.spill_bytes},
              {"registers", report.registers},
              {"seconds", report.seconds}}
             .dump(-1, ' ', false, Json::error_handler_t::replace),
         false);
  contents_.builds.insert_or_assign(variant, report);
}

void Journal::add_check(const std::string& variant, const std::string& found) {
  const std::scoped_lock lock(mutex_);
  // What stops the GPU may stop the process next: this one must be known.
  append(Json{{"checked", variant}, {"found", found}}.dump(-1, ' ', false, Json::error_handler_t::replace),
         !found.empty());
  contents_.checks.insert_or_assign(variant, found);
}

void Journal::add_race(const std::string& race, const RaceRecord& record) {
  const std::scoped_lock lock(mutex_);
  if (contents_.races.contains(race)) return;
  Json candidates = Json::array();
  for (const Variant& variant : record.candidates) candidates.push_back(variant_json(variant));
  append(Json{{"race", race},
              {"problem", record.problem},
              {"work", record.work},
              {"decodes", record.decodes},
              {"candidates", candidates}}
             .dump(),
         false);
  contents_.races.emplace(race, record);
}

void Journal::add_round(const std::string& race, int number, std::span<const int> order,
                        std::span<const double> seconds) {
  const std::scoped_lock lock(mutex_);
  JournalContents::Round round{{order.begin(), order.end()}, {seconds.begin(), seconds.end()}};
  append(Json{{"round", race}, {"number", number}, {"order", round.order}, {"seconds", round.seconds}}.dump(), false);
  contents_.rounds.insert_or_assign({race, number}, std::move(round));
}

void Journal::add_outcome(const std::string& race, const Outcome& outcome) {
  const std::scoped_lock lock(mutex_);
  append(Json{{"outcome", race},
              {"complete", outcome.complete},
              {"heuristic", variant_json(outcome.heuristic)},
              {"table", tuned_text({.gpu = contents_.identity.gpu, .rows = {outcome.row}})}}
             .dump(),
         true);
  contents_.outcomes.insert_or_assign(race, outcome);
}

std::string race_id(const RaceRecord& record, const std::string& rules) {
  std::string text = record.problem + "\n" + rules;
  for (const Variant& variant : record.candidates) text += "\n" + variant.name();
  return xxh3_hex(text);
}

}  // namespace attune::tune
