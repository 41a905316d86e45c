// attune-gen: the generator as the build uses it.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "generator/collect.hpp"
#include "generator/embed.hpp"
#include "generator/manifest.hpp"
#include "generator/schema.hpp"
#include "generator/tuned_file.hpp"

namespace attune {
namespace {

enum class Exit : int { done = 0, stale = 1, bad_input = 2 };

using std::filesystem::path;

struct Options {
  path templates;
  path out;
  std::string nvcc;
  std::string function;
  std::string header;
  std::vector<path> specs;
  std::vector<path> tuned;
  bool check = false;
};

std::string read_file(const path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Writes the file unless it holds this text already: what does not change is not compiled again.
void write_if_changed(const path& file, const std::string& text) {
  if (std::filesystem::exists(file) && read_file(file) == text) return;
  path beside = file;
  beside += ".tmp";
  std::ofstream stream(beside, std::ios::binary);
  stream << text;
  stream.close();
  if (!stream) throw std::runtime_error(fmt::format("{}: cannot be written", beside.string()));
  std::filesystem::rename(beside, file);
}

/// The emitted sources of a folder: .cu files whose first line is their own name.
std::set<path> emitted_sources(const path& folder) {
  std::set<path> files;
  if (!std::filesystem::exists(folder)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".cu") continue;
    const std::string banner = fmt::format("// {}\n", entry.path().stem().string());
    if (read_file(entry.path()).starts_with(banner)) files.insert(entry.path());
  }
  return files;
}

/// The emitted sources of a folder that are not among these.
std::set<path> leftovers(const path& folder, const std::vector<Source>& sources) {
  std::set<path> files = emitted_sources(folder);
  for (const Source& source : sources) files.erase(folder / (source.name + ".cu"));
  return files;
}

void write_sources(const path& folder, const std::vector<Source>& sources) {
  std::filesystem::create_directories(folder);
  for (path file : leftovers(folder, sources)) {
    std::filesystem::remove(file);
    std::filesystem::remove(file.replace_extension(".fatbin"));
  }
  for (const Source& source : sources) write_if_changed(folder / (source.name + ".cu"), source.text);
}

template <class T>
bool report(const Result<T>& result) {
  for (const Diagnostic& problem : result.problems) fmt::print(stderr, "{}\n", problem.text());
  return !result.ok();
}

Exit kernels(const Options& options) {
  const Result<Collection> collected = collect(options.specs, options.tuned);
  if (report(collected)) return Exit::bad_input;
  const std::vector<Wanted>& wanted = collected.value.wanted;
  std::vector<Source> sources;
  if (!wanted.empty()) {
    const Result<TemplateFiles> templates = read_templates(options.templates);
    if (report(templates)) return Exit::bad_input;
    Result<std::vector<Source>> emitted = emit_all(wanted, templates.value);
    if (report(emitted)) return Exit::bad_input;
    sources = std::move(emitted.value);
  }
  write_sources(options.out, sources);
  write_if_changed(options.out / "manifest.json", manifest_json(wanted));
  // Without a compiler there is nothing to embed.
  const std::vector<Source> embedded = options.nvcc.empty() ? std::vector<Source>{} : sources;
  write_if_changed(options.out / "kernels.ninja", kernels_ninja(embedded, options.nvcc));
  write_if_changed(options.out / "kernel_table.cpp", kernel_table(embedded));
  write_if_changed(options.out / "kernel_blobs.S", kernel_blobs(embedded));
  return Exit::done;
}

Exit texts(const Options& options) {
  const Result<TemplateFiles> files = read_templates(options.templates);
  if (report(files)) return Exit::bad_input;
  write_if_changed(options.out, text_table(files.value, options.function, options.header));
  return Exit::done;
}

Exit tables(const Options& options) {
  TemplateFiles texts;
  std::map<std::string, path> gpus;
  for (const path& file : options.tuned) {
    const Result<std::string> text = read_tuned_text(file);
    if (report(text)) return Exit::bad_input;
    const Result<TunedFile> table = parse_tuned_file(text.value, file.string());
    if (report(table)) return Exit::bad_input;
    const auto [first, is_new] = gpus.emplace(table.value.gpu.name, file);
    if (!is_new || !texts.emplace(file.filename().string(), text.value).second) {
      fmt::print(stderr, "{}: this table is for {}, as {} is; embed one\n", file.string(), first->first,
                 first->second.string());
      return Exit::bad_input;
    }
  }
  write_if_changed(options.out, text_table(texts, options.function, options.header));
  return Exit::done;
}

Exit schema(const Options& options) {
  write_if_changed(options.out, json_schema());
  return Exit::done;
}

Exit golden(const Options& options) {
  const Result<TemplateFiles> files = read_templates(options.templates);
  const Result<std::vector<Wanted>> wanted = golden_variants(options.specs.front());
  if (report(files) || report(wanted)) return Exit::bad_input;
  const Result<std::vector<Source>> sources = emit_all(wanted.value, files.value);
  if (report(sources)) return Exit::bad_input;
  if (!options.check) {
    write_sources(options.out, sources.value);
    return Exit::done;
  }
  std::set<path> stale = leftovers(options.out, sources.value);
  for (const Source& source : sources.value) {
    const path file = options.out / (source.name + ".cu");
    if (read_file(file) != source.text) stale.insert(file);
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

  CLI::App* sub = add("kernels", "Write the sources of specs and what it takes to compile and embed them", kernels);
  add_templates(sub);
  add_out(sub, "Folder for the sources, manifest.json, kernels.ninja, kernel_table.cpp and kernel_blobs.S");
  sub->add_option("--nvcc", options.nvcc, "The compiler; without one the kernel table is empty");
  sub->add_option("--tuned", options.tuned,
                  "A table of tuned problems whose variants are wanted too; any number of times")
      ->allow_extra_args(false);
  sub->add_option("specs", options.specs, "Spec files");

  sub = add("texts", "Write the sources of a folder as a C++ function that returns them", texts);
  sub->add_option("folder", options.templates, "The folder: templates/, say")->required();
  sub->add_option("--function", options.function, "The function's qualified name")->required();
  sub->add_option("--header", options.header, "The header that declares it")->required();
  add_out(sub, "The C++ file");

  sub = add("tables", "Write tables of tuned problems as a C++ function that returns their text", tables);
  sub->add_option("files", options.tuned, "The tables: specs/tuned/*.yaml");
  sub->add_option("--function", options.function, "The function's qualified name")->required();
  sub->add_option("--header", options.header, "The header that declares it")->required();
  add_out(sub, "The C++ file");

  sub = add("schema", "Write the JSON Schema of specs", schema);
  add_out(sub, "The JSON file");

  sub = add("golden", "Write the committed sources: each family's default variant, causal, and those of one spec",
            golden);
  add_templates(sub);
  add_out(sub, "The generated/ folder");
  sub->add_option("spec", options.specs, "Spec file")->required()->expected(1);
  sub->add_flag("--check", options.check, "Only compare; exit 1 when a file is not current");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(Exit::bad_input);
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
