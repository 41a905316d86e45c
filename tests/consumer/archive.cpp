// A library that has kernels and hands on one call.
#include <attune/attune.h>

const char* version_through_archive() { return attune_version(); }

bool archive_has_kernels() {
#ifdef CONSUMER_HAS_KERNELS
  return true;
#else
  return false;
#endif
}
