// attune-gen: the generator as the build uses it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <set>

#include "generator/bundle.hpp"
#include "generator/collect.hpp"
#include "generator/command_words.hpp"
#include "generator/embed.hpp"
#include "generator/fatbin.hpp"
#include "generator/files.hpp"
#include "generator/key_reference.hpp"
#include "generator/schema.hpp"
#include "generator/wgmma.hpp"

namespace attune {
namespace {

enum class Exit : int { done = 0, stale = 1, bad_input = 2 };

using std::filesystem::path;

struct Options {
  path templates;
  path out;
  std::string nvcc;
  std::vector<std::string> archs;
  std::string function;
  std::string header;
  std::vector<path> specs;
  std::vector<path> tuned;
  bool check = false;
};

template <class T>
bool report(const Result<T>& result) {
  for (const Diagnostic& problem : result.problems) fmt::print(stderr, "{}\n", problem.text());
  return !result.ok();
}

Exit kernels(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  Result<Collection> collected = collect(options.specs, options.tuned);
  if (report(collected)) return Exit::bad_input;
  ArchSet archs = 0;
  for (const std::string& name : options.archs) archs |= set_of(*find_arch(name));
  std::vector<Wanted>& wanted = collected.value.wanted;
  for (const std::string& name : narrow(wanted, archs)) {
    fmt::print("{}: left out, for none of {}\n", name, fmt::join(options.archs, ", "));
  }
  std::vector<Source> sources;
  if (!options.nvcc.empty() && !wanted.empty()) {
    const Result<TemplateFiles> templates = read_templates(options.templates);
    if (report(templates)) return Exit::bad_input;
    Result<std::vector<Source>> emitted = emit_all(wanted, templates.value);
    if (report(emitted)) return Exit::bad_input;
    sources = std::move(emitted.value);
  }
  Bundle bundle{.kernels = {}, .tables = std::move(collected.value.tables)};
  Result<Fatbins> fatbins;
  // Without a compiler there are no kernels to embed.
  if (options.nvcc.empty()) {
    write_sources(options.out, sources);
  } else {
    const auto say = [](const std::string& line) { fmt::print("{}\n", line); };
    fatbins = build_fatbins(sources, {.nvcc = options.nvcc, .folder = options.out, .say = say});
    if (report(fatbins)) return Exit::bad_input;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      bundle.kernels.push_back({sources[i].variant, sources[i].name, fatbins.value.images[i], wanted[i].tables_only});
    }
  }
  const std::string bytes = write_bundle(bundle);
  // Written in any case: the build looks at its time.
  write_bytes(options.out / "kernels.attune", bytes);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("kernels.attune: {} kernel{}, {} compiled now, {} bytes, in {:.1f} s\n", bundle.kernels.size(),
             bundle.kernels.size() == 1 ? "" : "s", fatbins.value.compiled, bytes.size(), seconds);
  return Exit::done;
}

Exit texts(const Options& options) {
  const Result<TemplateFiles> files = read_templates(options.templates);
  if (report(files)) return Exit::bad_input;
  write_if_changed(options.out, text_table(files.value, options.function, options.header));
  return Exit::done;
}

Exit schema(const Options& options) {
  write_if_changed(options.out, json_schema());
  return Exit::done;
}

Exit keys(const Options& options) {
  const Result<std::string> page = with_key_reference(read_bytes(options.out), options.out.string());
  if (report(page)) return Exit::bad_input;
  write_if_changed(options.out, page.value);
  return Exit::done;
}

Exit golden(const Options& options) {
  const Result<TemplateFiles> files = read_templates(options.templates);
  const Result<std::vector<Wanted>> wanted = golden_variants(options.specs);
  if (report(files) || report(wanted)) return Exit::bad_input;
  const Result<std::vector<Source>> sources = emit_all(wanted.value, files.value);
  if (report(sources)) return Exit::bad_input;
  const path shapes = options.templates / wgmma_path;
  if (!options.check) {
    write_sources(options.out, sources.value);
    write_if_changed(shapes, own_wgmma_text());
    return Exit::done;
  }
  std::set<path> stale = leftovers(options.out, sources.value);
  if (read_bytes(shapes) != own_wgmma_text()) stale.insert(shapes);
  for (const Source& source : sources.value) {
    const path file = options.out / (source.name + ".cu");
    if (read_bytes(file) != source.text) stale.insert(file);
  }
  for (const path& file : stale)
    fmt::print(stderr, "{}: not what is emitted today; run attune-gen golden\n", file.string());
  return stale.empty() ? Exit::done : Exit::stale;
}

int run(int argc, char** argv) {
  CLI::App app("The generator of Attune as the build uses it", "attune-gen");
  app.require_subcommand(1);
  Options options;
  Exit (*command)(const Options&) = nullptr;
  const auto add = [&](const char* name, const char* help, Exit (*function)(const Options&)) {
    CLI::App* sub = app.add_subcommand(name, help);
    sub->callback([&command, function] { command = function; });
    return sub;
  };
  const auto add_templates = [&](CLI::App* sub) {
    sub->add_option("--templates", options.templates, "The templates/ folder")->required();
  };
  const auto add_out = [&](CLI::App* sub, const char* help) {
    sub->add_option("--out", options.out, help)->required();
  };

  CLI::App* sub = add("kernels", "Compile the kernels of specs, those alone that changed, and bundle them", kernels);
  add_templates(sub);
  add_out(sub, "Folder for kernels.attune, and for the sources and fatbins that the next build starts from");
  sub->add_option("--nvcc", options.nvcc, "The compiler; without one the bundle has no kernels");
  std::vector<std::string> known;
  for (const Arch& arch : all_archs()) known.emplace_back(arch.name);
  sub->add_option("--arch", options.archs, "GPUs to make machine code for [default: 8.0 and 9.0, and PTX for others]")
      ->check(CLI::IsMember(known));
  sub->add_option("--tuned", options.tuned,
                  "A table of tuned problems to bundle, with the variants that it names; any number of times")
      ->allow_extra_args(false);
  sub->add_option("specs", options.specs, "Spec files");

  sub = add("texts", "Write the sources of a folder as a C++ function that returns them", texts);
  sub->add_option("folder", options.templates, "The folder: templates/, say")->required();
  sub->add_option("--function", options.function, "The function's qualified name")->required();
  sub->add_option("--header", options.header, "The header that declares it")->required();
  add_out(sub, "The C++ file");

  sub = add("schema", "Write the JSON Schema of specs", schema);
  add_out(sub, "The JSON file");

  sub = add("keys", "Write the reference of all keys between the marks of a page", keys);
  add_out(sub, "The Markdown file: specs/README.md, say");

  sub = add("golden",
            "Write the committed sources: those of the first spec, one of each other family, and ptx/wgmma_shapes.cuh",
            golden);
  add_templates(sub);
  add_out(sub, "The generated/ folder");
  sub->add_option("specs", options.specs, "Spec files")->required();
  sub->add_flag("--check", options.check, "Only compare; exit 1 when a file is not current");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // prints the help that was asked for
    const std::string unknown = unknown_word(app, {argv, argv + argc});
    fmt::print(stderr, "{}\nRun with --help for more information.\n", unknown.empty() ? error.what() : unknown);
    return static_cast<int>(Exit::bad_input);
  }
  return static_cast<int>(command(options));
}

}  // namespace
}  // namespace attune

int main(int argc, char** argv) {
  try {
    return attune::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "attune-gen: {}\n", error.what());
    return static_cast<int>(attune::Exit::bad_input);
  }
}
