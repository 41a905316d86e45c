"""Attune beside its peers in one process: `python -m attune.bench`.

Times Attune and every peer that can be imported on the same tensors, interleaved, and only results
that agree with float32 attention; one suite tells how far they are from float64 instead. `python -m
attune.bench --help` has the suites and options.

A measurement is a value (`report.Report`) that tables, plots and JSON are made of; only the modules
that take it import PyTorch, so that a saved one can be shown anywhere.
"""
