// Where a machine may have parts of the CUDA toolkit.
#pragma once

#include <filesystem>
#include <vector>

namespace attune {

/// Folders with a toolkit's bin/ and lib/, the most wanted first: $CUDA_HOME, $CUDA_PATH, /usr/local/cuda, then PyPI's
/// nvidia-* wheels in the Python environment that this library is a part of or that $VIRTUAL_ENV or $CONDA_PREFIX
/// names. Not all need exist.
std::vector<std::filesystem::path> cuda_roots();

/// The same, for a message.
inline constexpr const char* cuda_root_names =
    "$CUDA_HOME, $CUDA_PATH, /usr/local/cuda or the Python environment's nvidia wheels";

}  // namespace attune
