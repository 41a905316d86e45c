// Memory and events of a GPU, in the current context.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/gpu/driver.hpp"

namespace attune {

/// Device memory that goes when this goes.
class DeviceBuffer {
 public:
  DeviceBuffer(const Driver& driver, std::size_t bytes)
      : driver_(&driver), data_(driver.allocate(std::max<std::size_t>(bytes, 16))) {}
  ~DeviceBuffer() {
    if (data_ != nullptr) driver_->free(data_);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept : driver_(other.driver_), data_(std::exchange(other.data_, nullptr)) {}
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  DeviceBuffer(const DeviceBuffer&) = delete;

  [[nodiscard]] void* data() const { return data_; }

  // To and from `offset` bytes past data().
  template <class T>
  void upload(const std::vector<T>& values, std::size_t offset = 0) const {
    if (!values.empty()) driver_->copy_to_device(at(offset), values.data(), values.size() * sizeof(T));
  }
  template <class T>
  void download(std::vector<T>& values, std::size_t offset = 0) const {
    if (!values.empty()) driver_->copy_to_host(values.data(), at(offset), values.size() * sizeof(T));
  }

 private:
  [[nodiscard]] void* at(std::size_t offset) const { return static_cast<std::byte*>(data_) + offset; }

  const Driver* driver_;
  void* data_;
};

class DeviceEvent {
 public:
  explicit DeviceEvent(const Driver& driver) : driver_(&driver), event_(driver.create_event()) {}
  ~DeviceEvent() {
    if (event_ != nullptr) driver_->destroy_event(event_);
  }
  DeviceEvent(DeviceEvent&& other) noexcept : driver_(other.driver_), event_(std::exchange(other.event_, nullptr)) {}
  DeviceEvent& operator=(DeviceEvent&&) = delete;
  DeviceEvent(const DeviceEvent&) = delete;

  void record() const { driver_->record(event_, nullptr); }
  [[nodiscard]] double seconds_since(const DeviceEvent& start) const {
    return driver_->elapsed_ms(start.event_, event_) / 1e3;
  }

 private:
  const Driver* driver_;
  void* event_;
};

}  // namespace attune
