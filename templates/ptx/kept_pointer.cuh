// A pointer that stays one value (no instruction: an empty asm that may have changed it, as far as the compiler knows).
#pragma once

// So that addresses at many offsets from it cost an addition each: the sums and products behind it are not taken apart,
// and made again with each offset.
__device__ __forceinline__ const void* kept(const void* pointer) {
  asm("" : "+l"(pointer));
  return pointer;
}
