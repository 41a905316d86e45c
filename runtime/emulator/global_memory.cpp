#include "runtime/emulator/global_memory.hpp"

#include <fmt/format.h>

#include <limits>
#include <numeric>

namespace attune::emulator {
namespace {

/// Where in a buffer the `count` elements at `offset` lie: their number, counted over the extents.
class Finder {
 public:
  Finder(const Buffer& buffer, long long count) : buffer_(buffer), count_(count), order_{0, 1, 2} {
    // The largest stride first, so that the first try is nearly always right whatever the layout.
    std::ranges::sort(order_, [&](int a, int b) { return buffer.strides[a] > buffer.strides[b]; });
  }

  std::optional<unsigned long long> find(long long offset) { return find_from(0, offset); }

 private:
  std::optional<unsigned long long> find_from(std::size_t level, long long offset) {
    if (offset < 0) return std::nullopt;
    if (level == order_.size()) {
      if (offset + count_ > buffer_.extents[3]) return std::nullopt;
      long long row = 0;
      for (std::size_t d = 0; d < 3; ++d) row = row * buffer_.extents[d] + index_[d];
      return static_cast<unsigned long long>(row * buffer_.extents[3] + offset);
    }
    const int dimension = order_[level];
    const long long stride = buffer_.strides[dimension];
    const long long last = stride == 0 ? 0 : std::min(offset / stride, buffer_.extents[dimension] - 1);
    // Rows of one view may overlap, so a smaller index can be right where the largest is not.
    for (long long i = last; i >= 0 && offset - i * stride <= reach(level + 1); --i) {
      index_[dimension] = i;
      if (auto found = find_from(level + 1, offset - i * stride)) return found;
    }
    return std::nullopt;
  }

  /// The largest offset that the inner dimensions can make.
  [[nodiscard]] long long reach(std::size_t level) const {
    long long result = buffer_.extents[3] - count_;
    for (; level < order_.size(); ++level) {
      result += (buffer_.extents[order_[level]] - 1) * buffer_.strides[order_[level]];
    }
    return result;
  }

  const Buffer& buffer_;
  long long count_;
  std::array<int, 3> order_;
  std::array<long long, 3> index_{};
};

unsigned long long elements_of(const Buffer& buffer) {
  return std::accumulate(buffer.extents.begin(), buffer.extents.end(), 1ULL,
                         [](unsigned long long product, long long extent) { return product * extent; });
}

/// Bytes from the first element to the end of the last.
long long span_of(const Buffer& buffer) {
  if (elements_of(buffer) == 0) return 0;
  long long last = buffer.extents[3];
  for (std::size_t d = 0; d < 3; ++d) last += (buffer.extents[d] - 1) * buffer.strides[d];
  return last * buffer.element_bytes;
}

long long distance(const void* from, const void* to) {
  return static_cast<long long>(reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from));
}

}  // namespace

bool Access::knows(unsigned long long other, const Epoch& earlier) const {
  if (other == block) return clock->knows(earlier);
  if (heard == nullptr) return false;
  const auto found = heard->find(other);
  return found != heard->end() && found->second.knows(earlier);
}

struct GlobalMemory::Written {
  static constexpr unsigned long long announced = std::numeric_limits<unsigned long long>::max();
  static constexpr unsigned long long added = announced - 1;
  static constexpr unsigned long long part = 4096;  // elements

  struct By {
    unsigned long long block = 0;  ///< or `announced` or `added`, whoever did it
    Epoch epoch;
    unsigned long long reader = 0;  ///< the last of other blocks that read what this one wrote, ...
    Epoch read{};                   ///< ... and when, if one did
    bool has_readers = false;       ///< several blocks did, of which nobody can know
  };
  std::mutex mutex;

  explicit Written(unsigned long long elements) : parts_((elements + part - 1) / part) {}

  /// Of an element; nobody at first. Memory is taken for what is written alone, as buffers may be larger than it.
  By& of(unsigned long long element) {
    std::unique_ptr<std::array<By, part>>& own = parts_.at(element / part);
    if (own == nullptr) own = std::make_unique<std::array<By, part>>();
    return own->at(element % part);
  }

  /// No fence orders the copy engine's accesses with others.
  static bool ordered(const By& by, const Access& access) {
    return access.epoch.proxy == Proxy::generic && access.knows(by.block, by.epoch);
  }
  static bool ordered_with_reads(const By& by, const Access& access) {
    return !by.read.exists() || (!by.has_readers && access.knows(by.reader, by.read));
  }
  static void note_read(By& by, const Access& access) {
    if (by.block == access.block) return;
    by.has_readers = by.read.exists() && by.reader != access.block;
    by.reader = access.block;
    by.read = access.epoch;
  }

 private:
  std::vector<std::unique_ptr<std::array<By, part>>> parts_;
};

GlobalMemory::GlobalMemory(std::vector<Buffer> buffers) : buffers_(std::move(buffers)) {
  for (const Buffer& buffer : buffers_) {
    written_.push_back(buffer.writable ? std::make_unique<Written>(elements_of(buffer)) : nullptr);
  }
}

GlobalMemory::~GlobalMemory() = default;

std::optional<GlobalMemory::BufferElement> GlobalMemory::find(const void* pointer, unsigned bytes,
                                                              bool writable) const {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const Buffer& buffer = buffers_[i];
    if (buffer.writable != writable || elements_of(buffer) == 0) continue;
    const long long offset = distance(buffer.data, pointer);
    if (offset < 0 || offset >= span_of(buffer) || offset % buffer.element_bytes != 0) continue;
    const unsigned count = std::max(1U, bytes / buffer.element_bytes);
    if (const auto element = Finder(buffer, count).find(offset / buffer.element_bytes)) {
      return BufferElement{&buffer, written_[i].get(), *element};
    }
  }
  return std::nullopt;
}

std::string GlobalMemory::missed(const char* does, const void* pointer, unsigned bytes, bool writable) const {
  const std::string what = fmt::format("{} {} bytes at global address {}", does, bytes, fmt::ptr(pointer));
  long long nearest = std::numeric_limits<long long>::max();
  std::string where = "; the launch has no buffer";
  for (const Buffer& buffer : buffers_) {
    const long long offset = distance(buffer.data, pointer);
    const long long span = span_of(buffer);
    const long long away = offset < 0 ? -offset : std::max(0LL, offset - span + 1);
    if (span == 0 || away >= nearest) continue;
    nearest = away;
    const std::string side = offset < 0       ? fmt::format("{} bytes before the start of", -offset)
                             : offset >= span ? fmt::format("{} bytes beyond the end of", offset - span)
                                              : fmt::format("at byte {} of", offset);
    const char* why = away > 0                      ? ""
                      : writable != buffer.writable ? (writable ? ", which the kernel may only read" : "")
                                                    : ", partly or wholly between its rows";
    where = fmt::format(": {} {}{}", side, buffer.name, why);
  }
  return fmt::format("{}, which no buffer holds{}", what, where);
}

std::optional<std::string> GlobalMemory::check_load(const void* pointer, unsigned bytes, const Access& access,
                                                    unsigned alignment) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0) {
    return fmt::format("global address {} is not aligned to the {} bytes read there", fmt::ptr(pointer), alignment);
  }
  return check_loaded_row(pointer, bytes, access);
}

std::optional<std::string> GlobalMemory::check_loaded_row(const void* pointer, unsigned bytes, const Access& access) {
  if (find(pointer, bytes, false)) return std::nullopt;
  const auto place = find(pointer, bytes, true);
  if (!place) return missed("reads", pointer, bytes, false);
  const std::lock_guard lock(place->written->mutex);
  for (unsigned i = 0; i < bytes / place->buffer->element_bytes; ++i) {
    Written::By& by = place->written->of(place->element + i);
    if (!by.epoch.exists())
      return fmt::format("reads element {} of {}, which nothing has written", place->element + i, place->buffer->name);
    if (by.block == Written::announced) {
      return fmt::format("reads element {} of {} as memory, where a word is announced in line {}", place->element + i,
                         place->buffer->name, by.epoch.line);
    }
    if (by.block == Written::added) {
      return fmt::format("reads element {} of {}, to which line {} adds", place->element + i, place->buffer->name,
                         by.epoch.line);
    }
    if (!Written::ordered(by, access)) {
      return fmt::format("race: reads element {} of {}, unordered with its write in line {}", place->element + i,
                         place->buffer->name, by.epoch.line);
    }
    Written::note_read(by, access);
  }
  return std::nullopt;
}

std::optional<std::string> GlobalMemory::check_store(const void* pointer, unsigned bytes, const Access& access) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % bytes != 0) {
    return fmt::format("global address {} is not aligned to the {} bytes written there", fmt::ptr(pointer), bytes);
  }
  return check_stored_row(pointer, bytes, access);
}

std::optional<std::string> GlobalMemory::check_stored_row(const void* pointer, unsigned bytes, const Access& access) {
  const auto place = find(pointer, bytes, true);
  if (!place) return missed("writes", pointer, bytes, true);
  const std::lock_guard lock(place->written->mutex);
  for (unsigned i = 0; i < bytes / place->buffer->element_bytes; ++i) {
    Written::By& by = place->written->of(place->element + i);
    if (by.block == Written::announced) {
      return fmt::format("writes element {} of {} as memory, where a word is announced in line {}", place->element + i,
                         place->buffer->name, by.epoch.line);
    }
    if (by.block == Written::added) {
      return fmt::format("writes element {} of {}, to which line {} adds", place->element + i, place->buffer->name,
                         by.epoch.line);
    }
    if (!Written::ordered_with_reads(by, access)) {
      return fmt::format("race: writes element {} of {}, unordered with a read in line {}", place->element + i,
                         place->buffer->name, by.read.line);
    }
    if (by.epoch.exists() && !Written::ordered(by, access)) {
      return fmt::format("race: writes element {} of {}, unordered with a write in line {} of {}", place->element + i,
                         place->buffer->name, by.epoch.line, by.block == access.block ? access.here : "another block");
    }
    by = {.block = access.block, .epoch = access.epoch};
  }
  return std::nullopt;
}

std::optional<std::string> GlobalMemory::check_added(const void* pointer, unsigned bytes, const Access& access) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % bytes != 0) {
    return fmt::format("global address {} is not aligned to the {} bytes added to", fmt::ptr(pointer), bytes);
  }
  const auto place = find(pointer, bytes, true);
  if (!place) return missed("adds to", pointer, bytes, true);
  const std::lock_guard lock(place->written->mutex);
  for (unsigned i = 0; i < bytes / place->buffer->element_bytes; ++i) {
    Written::By& by = place->written->of(place->element + i);
    if (by.epoch.exists() && by.block != Written::added) {
      return fmt::format("adds to element {} of {}, which line {} writes", place->element + i, place->buffer->name,
                         by.epoch.line);
    }
    by = {.block = Written::added, .epoch = access.epoch};
  }
  return std::nullopt;
}

std::optional<std::string> GlobalMemory::check_awaited(const void* pointer) const {
  if (reinterpret_cast<std::uintptr_t>(pointer) % word_bytes != 0) {
    return fmt::format("global address {} is not aligned to the {} bytes of a word", fmt::ptr(pointer), word_bytes);
  }
  if (!find(pointer, word_bytes, true)) return missed("hands over by", pointer, word_bytes, true);
  return std::nullopt;
}

std::optional<std::string> GlobalMemory::check_announced(const void* pointer, const Access& access) {
  if (auto problem = check_awaited(pointer)) return problem;
  const BufferElement place = *find(pointer, word_bytes, true);
  const std::lock_guard lock(place.written->mutex);
  for (unsigned i = 0; i < word_bytes / place.buffer->element_bytes; ++i) {
    Written::By& by = place.written->of(place.element + i);
    if (by.epoch.exists() && by.block != Written::announced) {
      return fmt::format("announces a word at element {} of {}, which is written as memory in line {}",
                         place.element + i, place.buffer->name, by.epoch.line);
    }
    by = {.block = Written::announced, .epoch = access.epoch};
  }
  return std::nullopt;
}

std::string GlobalMemory::name_of_word(const void* pointer) const {
  const BufferElement place = *find(pointer, word_bytes, true);
  return fmt::format("element {} of {}", place.element, place.buffer->name);
}

}  // namespace attune::emulator
