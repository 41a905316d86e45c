// From several spec files to one list of sources, each variant once.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "generator/bundle.hpp"
#include "generator/emit.hpp"
#include "generator/expand.hpp"

namespace attune {

/// A variant and the first spec, or table of tuned problems, that asked for it.
struct Wanted {
  Variant variant;
  std::string spec;
  bool tables_only = false;  ///< no spec asks for it
};

/// What several specs, and tables of tuned problems, come to.
struct Collection {
  std::vector<Wanted> wanted;           ///< each variant once
  std::vector<RefusedVariant> refused;  ///< combinations that a rule refuses
  std::vector<BundledTable> tables;     ///< as they were read
};

/// Reads and expands every spec, in order, and after them the variants of tables of tuned problems, each for the
/// architecture of its table. A variant that several ask for comes once, for all of their GPUs together.
Result<Collection> collect(std::span<const std::filesystem::path> specs,
                           std::span<const std::filesystem::path> tuned = {});

/// Narrows every variant to those of these GPUs (an empty set: all) that it is for; returns the names of the variants
/// that are for none of them, which are dropped.
std::vector<std::string> narrow(std::vector<Wanted>& wanted, ArchSet archs);

/// Emits the source of every variant.
Result<std::vector<Source>> emit_all(std::span<const Wanted> wanted, const TemplateFiles& templates);

/// What generated/ holds: all of the first spec, the quickstart, and of every family that it has not, the first that
/// the others ship for the default's problems, with the causal mask or a rotation where it has one; the default variant
/// of a family that they do not ship.
Result<std::vector<Wanted>> golden_variants(std::span<const std::filesystem::path> specs);

}  // namespace attune
