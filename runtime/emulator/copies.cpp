#include "runtime/emulator/copies.hpp"

#include <cstring>

namespace attune::emulator {

void Copies::reset(std::uint64_t seed) {
  random_ = Random(seed);
  now_ = 0;
  copies_.clear();
  for (auto& pending : of_thread_) pending.clear();
  due_ = {};
}

void Copies::issue(unsigned thread, std::uint32_t group, std::byte* to, const void* source, unsigned source_bytes) {
  const std::size_t copy = copies_.size();
  copies_.push_back({group, to, source, source_bytes, false});
  of_thread_[thread].push_back(copy);
  if (random_.below(2) == 0) due_.push({now_ + 1 + random_.below(longest_copy), copy});
}

void Copies::land(Copy& copy) {
  if (copy.landed) return;
  copy.landed = true;
  std::memset(copy.to, 0, bytes);
  if (copy.source_bytes > 0) std::memcpy(copy.to, copy.source, copy.source_bytes);
}

void Copies::tick() {
  ++now_;
  for (; !due_.empty() && due_.top().when <= now_; due_.pop()) land(copies_[due_.top().copy]);
}

void Copies::finish(unsigned thread, std::uint32_t group) {
  auto& pending = of_thread_[thread];
  for (; !pending.empty() && copies_[pending.front()].group <= group; pending.pop_front()) {
    land(copies_[pending.front()]);
  }
}

}  // namespace attune::emulator
