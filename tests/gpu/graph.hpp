// Streams, and CUDA graphs of what is launched on one.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

namespace attune::gpu_tests {

/// A function of libcuda that Driver has not.
template <class Signature>
void find(Signature*& function, const char* name) {
  void* const libcuda = dlopen("libcuda.so.1", RTLD_NOW);
  REQUIRE(libcuda != nullptr);
  function = reinterpret_cast<Signature*>(dlsym(libcuda, name));
  REQUIRE_MESSAGE(static_cast<bool>(function), name);
}

/// A new stream that the default one does not wait for, nor it for that one; it stays as long as the process.
inline void* make_stream() {
  int (*stream_create)(void**, unsigned) = nullptr;
  find(stream_create, "cuStreamCreate");
  void* stream = nullptr;
  REQUIRE(stream_create(&stream, 1) == 0);
  return stream;
}

/// Captures what `work` launches on the stream that it is given; replay() runs it again, to its end.
class CapturedGraph {
 public:
  template <class Work>
  explicit CapturedGraph(const Work& work) {
    int (*begin_capture)(void*, int) = nullptr;
    int (*end_capture)(void*, void**) = nullptr;
    int (*instantiate)(void**, void*, unsigned long long) = nullptr;
    find(begin_capture, "cuStreamBeginCapture_v2");
    find(end_capture, "cuStreamEndCapture");
    find(instantiate, "cuGraphInstantiateWithFlags");
    find(graph_launch_, "cuGraphLaunch");
    find(synchronize_, "cuStreamSynchronize");
    void* graph = nullptr;
    REQUIRE(begin_capture(stream_, 0) == 0);
    work(stream_);
    REQUIRE(end_capture(stream_, &graph) == 0);
    REQUIRE(instantiate(&executable_, graph, 0) == 0);
  }

  /// Waits, because copies on the default stream do not wait for this one.
  void replay() const {
    REQUIRE(graph_launch_(executable_, stream_) == 0);
    REQUIRE(synchronize_(stream_) == 0);
  }

 private:
  int (*graph_launch_)(void*, void*) = nullptr;
  int (*synchronize_)(void*) = nullptr;
  void* stream_ = make_stream();
  void* executable_ = nullptr;
};

}  // namespace attune::gpu_tests
