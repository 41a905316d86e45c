"""A small serving engine around Attune's attention, a file for each of its parts:

* pages: which pages of the K/V cache are whose, and which hold a prefix that another request may share;
* scheduler: which tokens of which requests a step computes (continuous batching, chunked prefill);
* model: a random Qwen3, and eager attention to compare with;
* engine: steps on the device, whose attention is Attune's, and CUDA graphs of those that only decode.

examples/python/serve.py runs it.
"""
