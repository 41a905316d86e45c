// Where tensor maps of a ragged batch have the ends of its sequences; plain C, under params.h's ATTUNE_PARAMS_ABI.
#pragma once

// Along the map's dimension of seqlen every sequence ends here; this is also the one coordinate of the dimension that
// takes as many rows back (blocks/ragged_tiles.cuh).
enum { ATTUNE_SEQUENCE_END = 1 << 30 };
