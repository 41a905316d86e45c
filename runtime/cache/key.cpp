// What a compiled kernel is found again by.
#include "generator/hash.hpp"
#include "generator/variant_json.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/cache/cache.hpp"
#include "templates/params.h"

namespace attune {
namespace {

/// Appends a part in a form that no other sequence of parts shares.
void append_part(std::string& message, std::string_view part) {
  message += std::to_string(part.size());
  message += ':';
  message += part;
}

}  // namespace

CacheKey cache_key(const Source& source, const std::string& arch, const std::vector<std::string>& options,
                   const std::string& compiler) {
  std::string message;
  append_part(message, source.text);
  append_part(message, source.name);
  for (const std::string& option : options) append_part(message, option);
  append_part(message, arch);
  append_part(message, compiler);
  append_part(message, std::to_string(ATTUNE_PARAMS_ABI));
  return {source.name, arch, xxh3_hex(message)};
}

std::string followed_from(const Variant& variant, std::string_view generation) {
  std::string text;
  append_part(text, generation);
  append_part(text, family_of(variant).name);
  append_part(text, std::to_string(variant.arch));
  append_part(text, values_line(variant));
  return text;
}

CacheKey cache_key(const Variant& variant, int capability, const std::string& compiler) {
  return cache_key({variant, variant.name(), followed_from(variant, generation_digest())}, arch_name(capability),
                   compile_options(family_of(variant), capability), compiler);
}

}  // namespace attune
