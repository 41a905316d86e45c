#!/bin/sh
# From a trial run to a server that never compiles: record, specs, a pack, frozen. Takes the tool and Python from
# ATTUNE and PYTHON, and leaves all files in the folder that its argument names.
set -eu
here="$(cd "$(dirname "$0")" && pwd)"
attune="${ATTUNE:-attune}"
python="${PYTHON:-python3}"
out="${1:-frozen_out}"
mkdir -p "$out"

# 1. A trial run notes the problems that it meets.
rm -f "$out/calls.jsonl"
ATTUNE_RECORD="$out/calls.jsonl" "$python" "$here/serve.py"

# 2. Specs of exactly the kernels that serve them, and the kernels as one file.
"$attune" spec-from "$out/calls.jsonl" --arch sm_90 -o "$out/specs"
"$attune" pack "$out"/specs/*.yaml --arch sm_90 -o "$out/kernels.attune"

# 3. The server takes its kernels from the pack and compiles nothing. On a GPU the pack alone is enough; the emulator has
#    the host's compiler make its kernels, so that here the first run with the pack leaves them in the cache.
export ATTUNE_BUNDLES="$out/kernels.attune"
"$python" "$here/serve.py"
ATTUNE_COMPILE=frozen "$python" "$here/serve.py"
