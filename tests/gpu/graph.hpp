// A CUDA graph of what is launched on a stream.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

namespace attune::gpu_tests {

/// Captures what `work` launches on the stream that it is given; replay() runs it again, to its end.
class CapturedGraph {
 public:
  template <class Work>
  explicit CapturedGraph(const Work& work) {
    int (*stream_create)(void**, unsigned) = nullptr;
    int (*begin_capture)(void*, int) = nullptr;
    int (*end_capture)(void*, void**) = nullptr;
    int (*instantiate)(void**, void*, unsigned long long) = nullptr;
    find(stream_create, "cuStreamCreate");
    find(begin_capture, "cuStreamBeginCapture_v2");
    find(end_capture, "cuStreamEndCapture");
    find(instantiate, "cuGraphInstantiateWithFlags");
    find(graph_launch_, "cuGraphLaunch");
    find(synchronize_, "cuStreamSynchronize");
    void* graph = nullptr;
    REQUIRE(stream_create(&stream_, 1) == 0);
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
  template <class Signature>
  static void find(Signature*& function, const char* name) {
    void* const libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    REQUIRE(libcuda != nullptr);
    function = reinterpret_cast<Signature*>(dlsym(libcuda, name));
    REQUIRE_MESSAGE(static_cast<bool>(function), name);
  }

  int (*graph_launch_)(void*, void*) = nullptr;
  int (*synchronize_)(void*) = nullptr;
  void* stream_ = nullptr;
  void* executable_ = nullptr;
};

}  // namespace attune::gpu_tests
