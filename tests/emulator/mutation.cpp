// The emulator notices bugs: every wait, fence, barrier, mask, bound and swizzle of the emitted sources is made wrong,
// one at a time, and something has to speak: a fault, numbers that disagree with the reference, bank conflicts, or work
// that was not there before.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "generator/check.hpp"
#include "generator/expression/pool.hpp"
#include "generator/hash.hpp"
#include "generator/parallel.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/emulator/emulator.hpp"
#include "runtime/emulator/host_compiler.hpp"
#include "tests/emulator/experiment.hpp"
#include "tests/emulator/mutate.hpp"

namespace attune::mutation_tests {

using expression::Use;

std::string Experiment::run_unmutated(const emulator::Kernel& kernel) {
  *static_cast<long long*>(kernel.symbol(steps_symbol)) = 0;
  const Seen seen = launch(kernel);
  most_wavefronts_ = seen.wavefronts;
  most_steps_ = *static_cast<const long long*>(kernel.symbol(steps_symbol));
  return seen.notice == Notice::none ? "" : complaint();
}

Notice Experiment::run(const emulator::Kernel& kernel) {
  auto& steps = *static_cast<long long*>(kernel.symbol(steps_symbol));
  steps = 0;
  const Seen seen = launch(kernel);
  if (seen.notice != Notice::none) return seen.notice;
  if (seen.wavefronts > most_wavefronts_) return Notice::banks;
  return steps > most_steps_ ? Notice::work : Notice::none;
}

namespace {

// Of thousands of mutants a run takes a part, which follows from the emitted text: the same one everywhere, and another
// one of each source that a commit changes. ATTUNE_MUTANTS=all runs all of them.
constexpr std::uint64_t sampled_one_in = 5;

constexpr double least_noticed = 0.96;
constexpr double most_excused = 0.07;

/// A variant under a short name, by which excuses know it.
struct Subject {
  std::string label;
  Variant variant;

  /// Whether only lines count that no kernel without expressions, whose warpgroups have keys of their own, has.
  [[nodiscard]] bool counts_own_lines() const {
    const bool shares_keys = variant.family == backward_sm90 && variant.B_c == 64;
    return variant.score != 0 || variant.mask != 0 || shares_keys;
  }
};

/// What the library ships for head_dim 64 and 128 and the quickstart, then small tiles that together take every branch
/// of the templates.
std::vector<Subject> subjects() {
  std::vector<Subject> result;
  const auto add = [&](const std::string& label, const std::function<void(Variant&)>& change) {
    Variant variant;
    change(variant);
    result.push_back({label, variant});
  };
  const auto small = [](Variant& v) {
    v.head_dim = 64, v.B_r = 64, v.B_c = 32, v.warps = 2, v.stages = 1, v.causal = 1;
  };
  add("d64", [](Variant& v) { v.head_dim = 64, v.B_c = 128, v.double_buffer = 0; });
  add("d64_causal", [](Variant& v) { v.head_dim = 64, v.B_c = 128, v.double_buffer = 0, v.causal = 1; });
  add("d128", [](Variant&) {});
  add("d128_causal", [](Variant& v) { v.causal = 1; });
  add("quickstart_causal", [](Variant& v) { v.head_dim = 64, v.causal = 1; });
  add("eager", [&](Variant& v) { small(v), v.dtype = static_cast<int>(Dtype::fp16); });
  add("lazy", [&](Variant& v) { small(v), v.eager_load = 0, v.head_dim = 96; });
  add("plain", [&](Variant& v) { small(v), v.async_copy = v.eager_load = 0, v.head_dim = 96; });
  add("three_stages", [&](Variant& v) { small(v), v.stages = 3, v.head_dim = 96; });
  add("Q_in_registers", [&](Variant& v) { small(v), v.Q_in_registers = 1, v.Q_fragment_tiles = 0, v.head_dim = 96; });
  add("short_tiles", [&](Variant& v) {
    small(v), v.B_c = 48, v.head_dim = 48, v.stages = 2, v.double_buffer = 0,
              v.rescale = static_cast<int>(Rescale::skip_first);
  });

  add("cut", [&](Variant& v) { small(v), v.cut_rows = 1; });
  add("window_ragged", [&](Variant& v) { small(v), v.causal = 0, v.window = v.ragged = 1; });
  // A lane looks up two rows of a block.
  add("paged", [&](Variant& v) { small(v), v.B_c = 96, v.causal = 0, v.window = v.paged = 1; });

  const auto add_sm90 = [&](const std::string& label, const std::function<void(Variant&)>& change) {
    add(label, [&](Variant& v) {
      v = families()[prefill_sm90].defaults;
      v.rescale_bound = 1;  // small problems have no maximum that grows by more
      change(v);
    });
  };
  add_sm90("sm90_causal", [](Variant& v) { v.Q_columns_in_registers = 64, v.causal = 1; });
  add_sm90("sm90_three_warpgroups", [](Variant& v) { v.head_dim = 64, v.B_r = 192; });
  add_sm90("sm90_stream_k", [](Variant& v) { v.head_dim = 64, v.B_c = 64, v.stream_k = 1, v.P_residual_keys = 32; });
  add_sm90("sm90_one_stage", [](Variant& v) {
    v.head_dim = v.Q_columns_in_registers = 192, v.B_c = 64, v.stages = 1, v.causal = 1, v.ping_pong = 0;
    v.P_residual_keys = 16;
  });
  add_sm90("sm90_alone", [](Variant& v) {
    v.dtype = static_cast<int>(Dtype::fp16), v.head_dim = 128, v.head_dim_v = 96, v.B_r = v.B_c = 64;
    v.stages = 3, v.causal = v.tile_list = 1, v.ping_pong = 0, v.gqa_ratio = 4, v.pack_gqa = 1;
  });

  add_sm90("sm90_window_ragged", [](Variant& v) { v.B_c = 64, v.stages = 3, v.window = v.ragged = 1; });
  add_sm90("sm90_paged", [](Variant& v) { v.B_c = 64, v.window = v.paged = 1, v.page_multiple = 16; });
  // A lane looks up two rows of a block.
  add_sm90("sm90_gathered", [](Variant& v) { v.B_c = 112, v.window = v.paged = 1; });

  // Dead, full and partial blocks: by ranges of positions, and by what is looked up.
  const auto number = [](std::string_view text, Use use) { return expression::number_of_text(text, use).value(); };
  const int bias = number("s + bias[h, p - k - 9] where bias: fp32[head, 40]", Use::score);
  // `not k > p`, unlike `k <= p`, stays in the expression.
  const int holes = number("not k > p and (p - k < 95 or (k >= 40 and k < 44))", Use::mask);
  const int documents = number(
      "not k > p and document[b, h, p] == document[b, h, k] where document: int32[batch, head, position]", Use::mask);
  add("masked", [&](Variant& v) { small(v), v.causal = 0, v.score = bias, v.mask = holes; });
  add("looked_up", [&](Variant& v) { small(v), v.causal = 0, v.mask = documents; });
  add_sm90("sm90_masked", [&](Variant& v) { v.head_dim = 64, v.B_c = 64, v.score = bias, v.mask = holes; });
  add_sm90("sm90_looked_up", [&](Variant& v) { v.head_dim = 64, v.B_c = 64, v.mask = documents; });
  // A slope so steep that the warps of a warpgroup differ in whether a block has any weight.
  const int slope = number("s + k - p", Use::score);
  add_sm90("sm90_tilted", [&](Variant& v) { v.head_dim = 64, v.B_c = 64, v.window = 1, v.score = slope; });
  add("mask_blocks", [&](Variant& v) {
    v = std::ranges::find(families(), Operation::mask_blocks, &Family::operation)->defaults;
    v.mask = documents;
  });

  const auto add_store = [&](const std::string& label, Rotary rotary) {
    add(label, [&](Variant& v) {
      v = families()[store_kv].defaults;
      v.rotary = static_cast<int>(rotary);
    });
  };
  add_store("store", Rotary::none);
  add_store("store_cut", Rotary::none);
  result.back().variant.cut_rows = 1;
  add_store("store_interleaved", Rotary::interleaved);
  add_store("store_halves", Rotary::halves);
  const auto add_backward = [&](const std::string& label, std::string_view family, const auto& change) {
    add(label, [&](Variant& v) {
      v = std::ranges::find(families(), family, &Family::name)->defaults;
      v.head_dim = 64, v.B_r = v.B_c = 32, v.warps = 2;
      change(v);
    });
  };
  add_backward("backward_causal", "backward_sm80", [](Variant& v) { v.B_c = 64, v.causal = 1; });
  add_backward("backward_window_ragged", "backward_sm80", [](Variant& v) {
    v.dtype = static_cast<int>(Dtype::fp16), v.warps = 4, v.stages = v.window = v.ragged = 1;
  });
  add_backward("backward_unordered", "backward_sm80", [](Variant& v) { v.B_c = 64, v.warps = 4, v.deterministic = 0; });
  const auto add_backward_sm90 = [&](const std::string& label, const auto& change) {
    add_backward(label, "backward_sm90", [&](Variant& v) {
      v = families()[backward_sm90].defaults;
      v.head_dim = 64, v.B_r = 128;
      change(v);
    });
  };
  add_backward_sm90("backward_sm90_causal", [](Variant& v) { v.causal = 1; });
  add_backward_sm90("backward_sm90_window_ragged_unordered", [](Variant& v) {
    v.dtype = static_cast<int>(Dtype::fp16), v.window = v.ragged = v.softcap = 1, v.deterministic = 0;
  });
  add_backward_sm90("backward_sm90_shared_keys", [](Variant& v) { v.head_dim = 96, v.B_r = v.B_c = 64, v.causal = 1; });
  add_backward("backward_dq_causal", "backward_dq_sm80", [](Variant& v) { v.causal = v.softcap = 1; });
  add_backward("backward_dq_window_ragged", "backward_dq_sm80", [](Variant& v) { v.stages = v.window = v.ragged = 1; });
  add_backward("backward_masked", "backward_sm80", [&](Variant& v) { v.mask = holes; });
  add_backward("backward_looked_up", "backward_sm80", [&](Variant& v) { v.mask = documents; });
  add_backward("backward_dq_masked", "backward_dq_sm80", [&](Variant& v) { v.mask = holes; });
  add_backward_sm90("backward_sm90_masked", [&](Variant& v) { v.score = bias, v.mask = holes; });
  add_backward("backward_rows", "backward_rows", [](Variant& v) { v.B_r = 128, v.B_c = 64; });
  add_backward("backward_rows_ragged", "backward_rows", [](Variant& v) { v.B_r = 128, v.B_c = 64, v.ragged = 1; });
  add_backward("backward_convert", "backward_convert", [](Variant& v) { v.B_r = 128, v.B_c = 64; });
  for (const Rotary rotary : {Rotary::interleaved, Rotary::halves}) {
    add(rotary == Rotary::halves ? "rotary_halves" : "rotary_interleaved", [&](Variant& v) {
      v = std::ranges::find(families(), Operation::rotate, &Family::operation)->defaults;
      v.rotary = static_cast<int>(rotary);
    });
  }
  return result;
}

std::vector<std::unique_ptr<Experiment>> experiments_of(const Variant& variant) {
  if (variant.family == store_kv) return store_experiments(variant);
  if (family_of(variant).operation == Operation::rotate) return rotary_experiments(variant);
  if (family_of(variant).name.starts_with("backward")) return backward_experiments(variant);
  if (variant.score != 0 || variant.mask != 0) return expressed_experiments(variant);
  return prefill_experiments(variant);
}

struct Excuse {
  std::string label;  ///< of the source
  std::string key;    ///< section | line | mutation
  auto operator<=>(const Excuse&) const = default;
};

struct Excuses {
  std::set<Excuse> each;           ///< still to be met
  std::set<std::string> of_all;    ///< keys that hold in whatever source has them, ...
  std::set<std::string> unneeded;  ///< ... and those that none has had
  std::set<std::string> never;     ///< keys of what no source ever comes to

  /// Whether the mutant is excused; it then has been met.
  bool take(const Excuse& excuse) {
    unneeded.erase(excuse.key);
    return of_all.contains(excuse.key) || each.erase(excuse) != 0;
  }
};

std::string key_of(const Site& site, std::size_t mutation) {
  return fmt::format("{} | {} | {}", site.section, site.text, site.mutations[mutation]);
}

/// The lines of excused.txt, spread out over the sources that each names.
Excuses read_excuses(const std::vector<Subject>& sources) {
  std::ifstream file(ATTUNE_SOURCE_DIR "/tests/emulator/excused.txt");
  REQUIRE(file);
  Excuses result;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    CAPTURE(line);
    constexpr std::string_view bar = " | ";
    const std::size_t labels_end = line.find(bar);
    const std::size_t proof = line.rfind(bar);
    REQUIRE(std::ranges::count(line, '|') >= 4);
    const std::string labels = " " + line.substr(0, labels_end) + " ";
    const std::string key = line.substr(labels_end + bar.size(), proof - labels_end - bar.size());
    if (labels == " never ") CHECK_MESSAGE(result.never.insert(key).second, "excused twice");
    if (labels == " * ") CHECK_MESSAGE(result.of_all.insert(key).second, "excused twice");
    for (const Subject& source : sources) {
      if (labels.find(" " + source.label + " ") == std::string::npos) continue;
      CHECK_MESSAGE(result.each.insert({source.label, key}).second, "excused twice");
    }
  }
  result.unneeded = result.of_all;
  return result;
}

/// A source with bugs in it, ready to run.
struct Prepared {
  Subject subject;
  std::string digest;  ///< of the source without them
  Instrumented instrumented;
  std::string image;
  std::string name;
};

Prepared prepare(const Subject& subject) {
  Result<Source> source = emit(subject.variant, embedded_templates(), "mutation test");
  if (!source.ok()) throw std::runtime_error(source.problems.front().text());
  Prepared result{.subject = subject,
                  .digest = xxh3_hex(source.value.text),
                  .instrumented = instrument(source.value.text),
                  .image = {},
                  .name = source.value.name};
  source.value.text = result.instrumented.text;
  result.image = emulator::HostCompiler().compile(source.value).image;
  return result;
}

/// What became of every mutant of a source. Sites in branches that this variant discards do not count.
struct Outcome {
  std::vector<char> reached;    ///< by mutant number; of a site's first one
  std::vector<Notice> notices;  ///< by mutant number
  std::string unmutated;        ///< what was wrong without a mutant
};

/// Which mutants run.
class Sample {
 public:
  Sample() {
    const char* const mutants = std::getenv("ATTUNE_MUTANTS");
    all_ = mutants != nullptr && std::string_view(mutants) == "all";
  }

  [[nodiscard]] bool has(const Prepared& source, int mutant) const {
    if (all_) return true;
    const std::string key = fmt::format("{} {}", source.digest, mutant);
    return std::stoull(xxh3_hex(key).substr(0, 15), nullptr, 16) % sampled_one_in == 0;
  }

  [[nodiscard]] std::string text() const {
    return all_ ? "all" : fmt::format("one in {}, all with ATTUNE_MUTANTS=all", sampled_one_in);
  }

 private:
  bool all_ = false;
};

/// Runs a source's mutants in the sample.
Outcome run(const Prepared& prepared, const Sample& sample) {
  Outcome outcome;
  outcome.notices.assign(static_cast<std::size_t>(prepared.instrumented.mutants) + 1, Notice::none);
  const emulator::Kernel kernel(prepared.image, prepared.name);
  auto* const mutant = static_cast<int*>(kernel.symbol(mutant_symbol));
  auto* const reached = static_cast<unsigned char*>(kernel.symbol(reached_symbol));
  const std::vector<std::unique_ptr<Experiment>> experiments = experiments_of(prepared.subject.variant);
  for (const auto& experiment : experiments) {
    const std::string wrong = experiment->run_unmutated(kernel);
    if (!wrong.empty()) outcome.unmutated = wrong;
  }
  if (!outcome.unmutated.empty()) return outcome;
  outcome.reached.assign(reached, reached + prepared.instrumented.mutants + 1);
  for (const Site& site : prepared.instrumented.sites) {
    for (int i = 0; i < static_cast<int>(site.mutations.size()); ++i) {
      *mutant = site.first + i;
      if (outcome.reached[static_cast<std::size_t>(site.first)] == 0) continue;
      if (!sample.has(prepared, *mutant)) continue;
      Notice& notice = outcome.notices[static_cast<std::size_t>(*mutant)];
      for (std::size_t e = 0; notice == Notice::none && e < experiments.size(); ++e)
        notice = experiments[e]->run(kernel);
    }
  }
  return outcome;
}

TEST_CASE("the emulator notices bugs put into the emitted sources") {
  const std::vector<Subject> all = subjects();
  for (const Subject& subject : all) {
    for (const Refusal& refusal : check(subject.variant)) FAIL(subject.label, ": ", refusal.message);
  }
  std::vector<Prepared> prepared(all.size());
  parallel_for(static_cast<long long>(all.size()), 0,
               [&](long long i) { prepared[static_cast<std::size_t>(i)] = prepare(all[static_cast<std::size_t>(i)]); });

  // Of kernels with expressions, or of shared keys, only what no other has counts.
  std::set<std::string> plain;
  const auto name_of = [](const Site& site) { return fmt::format("{} | {}", site.section, site.text); };
  for (const Prepared& source : prepared) {
    if (source.subject.counts_own_lines()) continue;
    for (const Site& site : source.instrumented.sites) plain.insert(name_of(site));
  }
  for (Prepared& source : prepared) {
    if (!source.subject.counts_own_lines()) continue;
    std::erase_if(source.instrumented.sites, [&](const Site& site) { return plain.contains(name_of(site)); });
  }

  const Sample sample;
  std::vector<Outcome> outcomes(all.size());
  parallel_for(static_cast<long long>(all.size()), 0, [&](long long i) {
    outcomes[static_cast<std::size_t>(i)] = run(prepared[static_cast<std::size_t>(i)], sample);
  });

  Excuses excuses = read_excuses(all);
  std::map<Notice, int> by;
  int there = 0;
  int excusable = 0;
  int mutants = 0;
  int excused = 0;
  std::vector<std::string> missed;
  std::map<std::string, bool> ever_reached;  // by the key of a site's first mutant
  for (std::size_t s = 0; s < all.size(); ++s) {
    CAPTURE(all[s].label);
    const std::vector<Site>& sites = prepared[s].instrumented.sites;
    REQUIRE_MESSAGE(outcomes[s].unmutated.empty(), outcomes[s].unmutated);
    for (std::size_t i = 0; i < sites.size(); ++i) {
      bool& reached = ever_reached[key_of(sites[i], 0)];
      if (outcomes[s].reached[static_cast<std::size_t>(sites[i].first)] == 0) continue;
      reached = true;
      for (std::size_t m = 0; m < sites[i].mutations.size(); ++m) {
        const auto number = static_cast<std::size_t>(sites[i].first) + m;
        const Notice notice = outcomes[s].notices[number];
        const std::string key = key_of(sites[i], m);
        const bool has_excuse = excuses.take({all[s].label, key});
        ++there;
        excusable += has_excuse ? 1 : 0;
        if (!sample.has(prepared[s], static_cast<int>(number))) continue;
        ++mutants;
        ++by[notice];
        if (notice != Notice::none) {
          CHECK_MESSAGE(!has_excuse, "excused, but noticed: ", key);
          const bool splits_warp = key.ends_with("without thread 0") || key.ends_with("without lane 0");
          CHECK_MESSAGE((notice == Notice::fault || !splits_warp), "no fault: ", key);
        } else if (has_excuse) {
          ++excused;
        } else {
          missed.push_back(fmt::format("{} | {} (line {})", all[s].label, key, sites[i].line));
        }
      }
    }
  }
  for (const std::string& line : missed) MESSAGE("missed: ", line);
  for (const Excuse& excuse : excuses.each)
    FAIL_CHECK("excused, but no such mutant: ", excuse.label, " | ", excuse.key);
  for (const std::string& key : excuses.unneeded) FAIL_CHECK("excused, but no such mutant: ", key);
  for (const auto& site : ever_reached) {
    CHECK_MESSAGE(site.second != excuses.never.contains(site.first), "in no source, or excused as such: ", site.first);
  }

  const int noticed = mutants - by[Notice::none];
  MESSAGE(fmt::format(
      "{} of {} mutants in {} sources ({}): {} noticed (by fault {}, by numbers {}, by bank conflicts {}, by "
      "work {}), {} excused, {} missed",
      mutants, there, all.size(), sample.text(), noticed, by[Notice::fault], by[Notice::numbers], by[Notice::banks],
      by[Notice::work], excused, missed.size()));
  CHECK(excusable <= most_excused * there);
  CHECK(noticed >= least_noticed * (mutants - excused));
}

}  // namespace
}  // namespace attune::mutation_tests
