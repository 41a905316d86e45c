"""What tests of attune.bench share: a small report."""

from attune.bench.report import Ceilings, Report, Result
from attune.bench.suites import SUITES


def timed(ms, **fields):
    return Result("timed", ms, **fields)


def small_report():
    """Two prefill cases at 100 and 200 TFLOP/s of Attune, one of decoding, one not served."""
    first, second = (SUITES["prefill"].cases[index] for index in (0, 2))
    decode, backward = SUITES["decode"].cases[0], SUITES["backward"].cases[0]
    ms = [case.flop / rate / 1e9 for case, rate in ((first, 100), (second, 200))]
    return Report(
        {"gpu": "NVIDIA H200", "driver": "580.159", "attune": "0.1.0", "date": "2026-11-21 08:00"},
        Ceilings(cublas_tflops=800.0, read_gb_s=4000.0, read_by="Triton"),
        {
            "prefill": {
                first.name: {"attune": timed(ms[0]), "fa2": timed(2 * ms[0])},
                second.name: {"attune": timed(ms[1]), "fa2": timed(ms[1] / 2)},
            },
            "decode": {
                decode.name: {
                    "attune": timed(decode.kv_bytes / 2000e6),  # 2000 GB/s
                    "cudnn": Result("wrong", error=0.5, allowed=0.002),
                }
            },
            "backward": {
                backward.name: {
                    "attune": Result("not served", note="there is no backward yet"),
                    "fa2": timed(1.0, quartiles=(0.9, 1.1), samples=25, error=0.1, allowed=0.2),
                }
            },
        },
    )
