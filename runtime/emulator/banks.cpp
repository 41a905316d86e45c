#include "runtime/emulator/banks.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "runtime/emulator/fragments.hpp"

namespace attune::emulator {

namespace {
constexpr unsigned bank_count = 32;
constexpr unsigned word_bytes = 4;
constexpr unsigned pass_bytes = bank_count * word_bytes;
}  // namespace

void Banks::note(unsigned warp, unsigned lane, int line, unsigned address, unsigned bytes) {
  open_[warp].push_back({line, lane, address, bytes});
}

void Banks::close(unsigned warp) {
  // line -> lanes' parts, the n-th of each lane in the n-th access
  std::map<int, std::vector<std::vector<Part>>> accesses;
  std::map<int, Lanes<std::size_t>> seen;
  for (const Part& part : open_[warp]) {
    const std::size_t nth = seen[part.line][part.lane]++;
    auto& of_line = accesses[part.line];
    if (of_line.size() <= nth) of_line.resize(nth + 1);
    of_line[nth].push_back(part);
  }
  for (const auto& [line, of_line] : accesses) {
    for (const auto& access : of_line) count(line, access);
  }
  open_[warp].clear();
}

void Banks::count(int line, std::span<const Part> access) {
  BankSite& site = sites_[line];
  site.line = line;
  ++site.accesses;
  const unsigned lanes_at_once = std::min(warp_size, pass_bytes / std::max(word_bytes, access.front().bytes));
  for (unsigned first = 0; first < warp_size; first += lanes_at_once) {
    std::set<unsigned> words;  // lanes that want the same word share it
    for (const Part& part : access) {
      if (part.lane < first || part.lane >= first + lanes_at_once) continue;
      for (unsigned b = 0; b < part.bytes; b += word_bytes) words.insert((part.address + b) / word_bytes);
    }
    std::array<long long, bank_count> wanted{};
    for (const unsigned word : words) ++wanted[word % bank_count];
    site.wavefronts += *std::ranges::max_element(wanted);
    site.ideal += static_cast<long long>((words.size() + bank_count - 1) / bank_count);
  }
}

}  // namespace attune::emulator
