#include "runtime/cli/build.hpp"

#include <fmt/format.h>

#include <functional>

#include "generator/check.hpp"
#include "runtime/cli/machine.hpp"
#include "runtime/emulated.hpp"
#include "runtime/error.hpp"
#include "runtime/parallel.hpp"

namespace attune::cli {

namespace {

/// Every source with each of the architectures that it fits.
std::vector<Built> to_build(const std::vector<Source>& sources, const std::vector<Arch>& archs) {
  std::vector<Built> built;
  for (const Source& source : sources) {
    for (const Arch& arch : archs) {
      if (check_arch(source.variant, arch).empty()) {
        built.push_back({.source = &source, .arch = arch, .compiled = {}, .error = {}});
      }
    }
  }
  return built;
}

void compile_all(std::vector<Built>& built, int jobs, const std::function<Compiled(const Built&)>& compile) {
  parallel_for(static_cast<long long>(built.size()), jobs, [&](long long i) {
    try {
      built[i].compiled = compile(built[i]);
    } catch (const Error& error) {
      built[i].error = error.what();
    }
  });
}

}  // namespace

std::vector<Built> build(const Compiler& compiler, const std::vector<Source>& sources, const std::vector<Arch>& archs,
                         int jobs) {
  std::vector<Built> built = to_build(sources, archs);
  compile_all(built, jobs, [&](const Built& one) { return compiler.compile(*one.source, one.arch.capability); });
  return built;
}

std::vector<Built> build(const emulator::HostCompiler& compiler, const std::vector<Source>& sources, int jobs) {
  const Cache cache(default_cache_root());
  std::vector<Built> built = to_build(sources, {emulated_arch()});
  compile_all(built, jobs, [&](const Built& one) { return compile_cached(compiler, *one.source, cache); });
  return built;
}

std::string resource_table(const std::vector<Built>& built) {
  Table table({{"variant"},
               {"arch"},
               {"registers", Align::right},
               {"shared", Align::right},
               {"spills", Align::right},
               {"code", Align::right},
               {"compiled in", Align::right}});
  for (const Built& one : built) {
    if (!one.ok()) {
      table.add({one.source->name, std::string(one.arch.name), "failed"});
      continue;
    }
    const ResourceUsage& usage = one.compiled.usage;
    const Resources asked = resources(one.source->variant);
    table.add({one.source->name, std::string(one.arch.name), std::to_string(usage.registers),
               bytes_text(asked.shared_bytes + usage.static_shared_bytes),
               bytes_text(usage.spill_stores + usage.spill_loads), bytes_text(static_cast<double>(usage.code_bytes)),
               seconds_text(one.compiled.seconds)});
  }
  return table.text();
}

nlohmann::ordered_json resource_json(const std::vector<Built>& built) {
  auto rows = nlohmann::ordered_json::array();
  for (const Built& one : built) {
    const ResourceUsage& usage = one.compiled.usage;
    const Resources asked = resources(one.source->variant);
    nlohmann::ordered_json row{{"variant", one.source->name}, {"arch", one.arch.name}, {"ok", one.ok()}};
    if (one.ok()) {
      row["threads"] = asked.threads;
      row["registers"] = usage.registers;
      row["shared_bytes"] = asked.shared_bytes + usage.static_shared_bytes;
      row["stack_bytes"] = usage.stack_bytes;
      row["spill_store_bytes"] = usage.spill_stores;
      row["spill_load_bytes"] = usage.spill_loads;
      row["code_bytes"] = usage.code_bytes;
      row["seconds"] = one.compiled.seconds;
    } else {
      row["error"] = one.error;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

bool report_failures(const std::vector<Built>& built) {
  bool all_compiled = true;
  for (const Built& one : built) {
    if (one.ok()) continue;
    all_compiled = false;
    fmt::print(stderr, "{} for {} did not compile: {}\n", one.source->name, one.arch.name, one.error);
  }
  return all_compiled;
}

}  // namespace attune::cli
