// A bundle: compiled kernels of any number of variants, and tables of tuned problems, in one file, kernels.attune,
// which may lie anywhere.
//
//   bytes  what                                  integers are little-endian
//   0      magic, 8 bytes
//   8      version of this format, 32 bits
//   12     ATTUNE_PARAMS_ABI, 32 bits
//   16     bytes of the file, 64 bits
//   24     bytes of the manifest, 64 bits
//   32     version of Attune, text, zeros after it, 32 bytes
//   64     manifest, JSON: of each kernel its template, values, GPUs, threads and shared memory, whether tables alone
//          ask for it, and its image's place; of each table its file's name and text; of each template the keys that
//          values are of, in their order
//   ...    images, each from a multiple of 64 bytes on
//   end    XXH3 (128 bits) of all before it, 32 hex digits
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/diagnostic.hpp"
#include "generator/variant.hpp"

namespace attune {

/// One kernel of a bundle.
struct BundledKernel {
  Variant variant;           ///< its `arch` says for which GPUs the image has code; 0: every one that the variant fits
  std::string name;          ///< the extern "C" name
  std::string_view image;    ///< a fatbin or a cubin; not owned
  bool tables_only = false;  ///< tables alone ask for it: the heuristic does not choose it
};

/// A table of tuned problems (generator/tuned_file.hpp).
struct BundledTable {
  std::string file;  ///< its name, without a folder
  std::string text;

  bool operator==(const BundledTable&) const = default;
};

struct Bundle {
  std::vector<BundledKernel> kernels;  ///< a variant may come several times, each time for other GPUs
  std::vector<BundledTable> tables;
};

/// The file that holds these: the same bytes for the same kernels and tables.
std::string write_bundle(const Bundle& bundle);

/// What a bundle holds; images lie within `bytes`. What tables say is not looked at. Refuses a file that is no bundle
/// or is damaged, and one of another version of Attune, whose kernels may want other launches; `where` names it in
/// messages. Any bytes may come.
Result<Bundle> read_bundle(std::string_view bytes, const std::string& where);

}  // namespace attune
