// Which lines of an emitted source meet bank conflicts in shared memory.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "generator/emit.hpp"
#include "runtime/emulator/emulator.hpp"

namespace attune::cli {

/// Adds what another launch counted, line by line.
void add_sites(std::vector<emulator::BankSite>& total, const std::vector<emulator::BankSite>& more);

/// The lines with conflicts, each with its text; "none" when there is no such line.
std::string bank_report(const Source& source, const std::vector<emulator::BankSite>& sites);
nlohmann::ordered_json bank_json(const Source& source, const std::vector<emulator::BankSite>& sites);

}  // namespace attune::cli
