// The extern "C" surface: nothing but Registry behind a status code and a message.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <string>
#include <variant>
#include <vector>

#include "attune/attune.h"
#include "runtime/base/error.hpp"
#include "runtime/bundle/bundle.hpp"
#include "runtime/call/arguments.hpp"
#include "runtime/registry/prepare_all.hpp"
#include "runtime/registry/registry.hpp"

struct attune_registry {
  attune::Registry registry;
};

namespace {

/// The last failure of this thread. Thread-local state is what the C ABI promises.
std::string& last_error() {
  thread_local std::string message;
  return message;
}

attune_status fail(attune_status status, const char* message) noexcept {
  try {
    last_error() = message;
  } catch (const std::bad_alloc&) {
    last_error().clear();
  }
  return status;
}

/// Runs the body; turns whatever it throws into a status and a message.
template <class Body>
attune_status guarded(const Body& body) noexcept {
  try {
    body();
    return ATTUNE_OK;
  } catch (const attune::Error& error) {
    return fail(error.status(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ATTUNE_INTERNAL_ERROR, "out of host memory");
  } catch (const std::exception& error) {
    return fail(ATTUNE_INTERNAL_ERROR, error.what());
  } catch (...) {
    return fail(ATTUNE_INTERNAL_ERROR, "unknown failure");
  }
}

void require(const void* pointer, const char* name) {
  if (pointer == nullptr) throw attune::Error(ATTUNE_INVALID_ARGUMENT, fmt::format("{} is null", name));
}

/// Of attune_options before it had a device.
constexpr std::size_t oldest_options_size = offsetof(attune_options, cache_dir) + sizeof(const char*);

/// Of attune_counters as it was first.
constexpr std::size_t oldest_counters_size = offsetof(attune_counters, pending) + sizeof(std::uint64_t);

/// Where a field of an options struct ends.
template <class Field>
constexpr std::size_t end_of(std::size_t offset, const Field&) {
  return offset + sizeof(Field);
}

attune::RegistryOptions options_of(const attune_options* options) {
  attune::RegistryOptions result;
  if (options == nullptr) return result;
  if (options->struct_size < oldest_options_size) {
    throw attune::Error(ATTUNE_INVALID_ARGUMENT,
                        fmt::format("attune_options.struct_size is {}; it must be sizeof(attune_options), at least {}",
                                    options->struct_size, oldest_options_size));
  }
  const int policy = attune::raw(options->compile_policy);
  if (policy < ATTUNE_COMPILE_MISSING || policy > ATTUNE_COMPILE_BACKGROUND) {
    throw attune::Error(ATTUNE_INVALID_ARGUMENT,
                        fmt::format("attune_options.compile_policy is {}; it must be 0 (missing), 1 (frozen), 2 "
                                    "(exact) or 3 (background)",
                                    policy));
  }
  result.policy = options->compile_policy;
  if (options->cache_dir != nullptr) result.cache_root = options->cache_dir;
  if (options->struct_size >= end_of(offsetof(attune_options, device), options->device)) {
    const int device = attune::raw(options->device);
    if (device < ATTUNE_DEVICE_CUDA || device > ATTUNE_DEVICE_EMULATOR) {
      throw attune::Error(ATTUNE_INVALID_ARGUMENT,
                          fmt::format("attune_options.device is {}; it must be 0 (CUDA) or 1 (emulator)", device));
    }
    result.device = options->device;
  }
  if (options->struct_size >= end_of(offsetof(attune_options, emulator_seed), options->emulator_seed)) {
    result.emulator_seed = options->emulator_seed;
  }
  if (options->struct_size >= end_of(offsetof(attune_options, bundle_count), options->bundle_count)) {
    if (options->bundle_count > 0) require(options->bundles, "attune_options.bundles");
    for (size_t i = 0; i < options->bundle_count; ++i) {
      require(options->bundles[i], "a file of attune_options.bundles");
      result.bundles.emplace_back(options->bundles[i]);
    }
  }
  if (options->struct_size >= end_of(offsetof(attune_options, log_user), options->log_user) &&
      options->log != nullptr) {
    result.log = [log = options->log, user = options->log_user](attune_log_level level, const std::string& line) {
      log(user, level, line.c_str());
    };
  }
  return result;
}

/// `operation` as a number: a caller may give any.
attune::AnyArgs any_args(int operation, const void* args, const std::string& name) {
  require(args, (name + "args").c_str());
  if (const std::optional<attune::AnyArgs> found = attune::AnyArgs::of(operation, args)) return *found;
  throw attune::Error(ATTUNE_INVALID_ARGUMENT,
                      fmt::format("{}operation is {}; it must be a number of attune_operation, 0 to {}", name,
                                  operation, std::variant_size_v<attune::AnyArgs::Pointer> - 1));
}

// What every operation's functions do.

template <class Args>
attune_status prepare(attune_registry* registry, const Args* args) {
  return guarded([&] {
    require(registry, "registry");
    require(args, "args");
    registry->registry.prepare(*args);
  });
}

template <class Args>
attune_status run(attune_registry* registry, const Args* args, void* stream) {
  return guarded([&] {
    require(registry, "registry");
    require(args, "args");
    registry->registry.run(*args, stream);
  });
}

template <class Args>
attune_status workspace_of(attune_registry* registry, const Args* args, size_t* bytes) {
  return guarded([&] {
    require(registry, "registry");
    require(args, "args");
    require(bytes, "bytes");
    *bytes = registry->registry.workspace_bytes(*args);
  });
}

/// As much of a name as fits.
template <std::size_t size>
void put(char (&to)[size], const std::string& name) {
  to[name.copy(to, size - 1)] = '\0';
}

}  // namespace

extern "C" {

const char* attune_version(void) { return ATTUNE_VERSION; }

const char* attune_last_error(void) { return last_error().c_str(); }

attune_status attune_add_bundle(const void* data, size_t bytes) {
  return guarded([&] {
    require(data, "data");
    attune::register_bundle({static_cast<const char*>(data), bytes});
  });
}

attune_status attune_registry_create(const attune_options* options, attune_registry** registry) {
  return guarded([&] {
    require(registry, "registry");
    *registry = nullptr;
    *registry = new attune_registry{attune::Registry(options_of(options))};
  });
}

void attune_registry_destroy(attune_registry* registry) { delete registry; }

attune_status attune_registry_counters(const attune_registry* registry, attune_counters* counters) {
  return guarded([&] {
    require(registry, "registry");
    require(counters, "counters");
    const std::size_t size = counters->struct_size;
    if (size < oldest_counters_size) {
      throw attune::Error(ATTUNE_INVALID_ARGUMENT,
                          fmt::format("attune_counters.struct_size is {}; it must be sizeof(attune_counters), at least "
                                      "{}",
                                      size, oldest_counters_size));
    }
    attune_counters all = registry->registry.counters();
    all.struct_size = size;
    std::memcpy(counters, &all, std::min(size, sizeof(all)));
  });
}

attune_status attune_registry_serving(attune_registry* registry, attune_operation operation, const void* args,
                                      attune_serving* serving) {
  return guarded([&] {
    require(registry, "registry");
    require(serving, "serving");
    if (serving->struct_size < sizeof(attune_serving)) {
      throw attune::Error(
          ATTUNE_INVALID_ARGUMENT,
          fmt::format("attune_serving.struct_size is {}; it must be sizeof(attune_serving), at least {}",
                      serving->struct_size, sizeof(attune_serving)));
    }
    const attune::ServingNames found = registry->registry.serving(any_args(attune::raw(operation), args, ""));
    put(serving->now, found.now);
    put(serving->coming, found.coming);
  });
}

attune_status attune_registry_finish(attune_registry* registry) {
  return guarded([&] {
    require(registry, "registry");
    registry->registry.finish();
  });
}

attune_status attune_prepare_all(attune_registry* registry, const attune_prepare_item* items, size_t count,
                                 int32_t threads, attune_prepare_callback callback, void* user) {
  return guarded([&] {
    require(registry, "registry");
    if (count > 0) require(items, "items");
    if (threads < 0) {
      throw attune::Error(ATTUNE_INVALID_ARGUMENT,
                          fmt::format("threads is {}; it must be 0 (one for each core) or more", threads));
    }
    std::vector<attune::AnyArgs> all;
    all.reserve(count);
    for (std::size_t i = 0; i < count; ++i)
      all.push_back(any_args(attune::raw(items[i].operation), items[i].args, fmt::format("items[{}].", i)));
    attune::OnProgress tell;
    if (callback != nullptr) {
      tell = [&](const attune::PrepareProgress& progress) {
        const attune_prepare_progress raw{.struct_size = sizeof(raw),
                                          .done = progress.done,
                                          .total = progress.total,
                                          .item = progress.item,
                                          .name = progress.name.c_str(),
                                          .seconds = progress.seconds,
                                          .status = progress.status,
                                          .message = progress.message.c_str()};
        callback(user, &raw);
      };
    }
    attune::prepare_all(registry->registry, all, threads, tell);
  });
}

attune_status attune_prefill_workspace(attune_registry* registry, const attune_prefill_args* args, size_t* bytes) {
  return workspace_of(registry, args, bytes);
}

attune_status attune_prefill_prepare(attune_registry* registry, const attune_prefill_args* args) {
  return prepare(registry, args);
}

attune_status attune_prefill(attune_registry* registry, const attune_prefill_args* args, void* stream) {
  return run(registry, args, stream);
}

attune_status attune_decode_workspace(attune_registry* registry, const attune_decode_args* args, size_t* bytes) {
  return workspace_of(registry, args, bytes);
}

attune_status attune_decode_prepare(attune_registry* registry, const attune_decode_args* args) {
  return prepare(registry, args);
}

attune_status attune_decode(attune_registry* registry, const attune_decode_args* args, void* stream) {
  return run(registry, args, stream);
}

attune_status attune_store_kv_prepare(attune_registry* registry, const attune_store_kv_args* args) {
  return prepare(registry, args);
}

attune_status attune_store_kv(attune_registry* registry, const attune_store_kv_args* args, void* stream) {
  return run(registry, args, stream);
}

attune_status attune_merge_states_prepare(attune_registry* registry, const attune_merge_states_args* args) {
  return prepare(registry, args);
}

attune_status attune_merge_states(attune_registry* registry, const attune_merge_states_args* args, void* stream) {
  return run(registry, args, stream);
}

attune_status attune_rotary_embedding_prepare(attune_registry* registry, const attune_rotary_embedding_args* args) {
  return prepare(registry, args);
}

attune_status attune_rotary_embedding(attune_registry* registry, const attune_rotary_embedding_args* args,
                                      void* stream) {
  return run(registry, args, stream);
}

attune_status attune_backward_workspace(attune_registry* registry, const attune_backward_args* args, size_t* bytes) {
  return workspace_of(registry, args, bytes);
}

attune_status attune_backward_prepare(attune_registry* registry, const attune_backward_args* args) {
  return prepare(registry, args);
}

attune_status attune_backward(attune_registry* registry, const attune_backward_args* args, void* stream) {
  return run(registry, args, stream);
}

}  // extern "C"
