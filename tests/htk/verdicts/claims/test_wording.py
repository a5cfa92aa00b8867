"""What a claim says, and what its words take for each other."""

import pytest

from htk.verdicts.claims.wording import find_confusions, speedup_claim


@pytest.mark.parametrize(
    ("text", "speedup", "part"),
    [
        ("1.594x by RMSNorm", 1.594, "RMSNorm"),
        ("We see a 2.1× speedup from fused attention, on 8 GPUs", 2.1, "fused attention"),
        ("20 % less time with CUDA graphs", 1.25, "CUDA graphs"),
        ("1.3x faster through larger buckets on H100", 1.3, "larger buckets"),
    ],
)
def test_speedups_are_read(text: str, speedup: float, part: str) -> None:
    claim = speedup_claim(text)
    assert claim is not None and claim.speedup == pytest.approx(speedup) and claim.part == part


@pytest.mark.parametrize("text", ["", "RMSNorm is fast", "70.5 % MFU", "a 100 % reduction by X"])
def test_what_is_no_speedup_is_none(text: str) -> None:
    assert speedup_claim(text) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("AllGather and ReduceScatter take 80 % of kernel time", ["share of kernel time"]),
        ("FSDP's default bucket of 25 MB is below the range", ["buckets of DDP"]),
        ("forward communicates 1.75 GB", ["message and wire bytes"]),
        ("40 % MFU of 1979 TFLOP/s", ["dense and sparse peak"]),
        ("MFU with recomputation of 57 %", ["MFU and HFU"]),
        ("training time is 2.10x shorter", ["step and job"]),
        ("GPU utilization is 99 %", ["busy and useful"]),
        ("DDP's bucket of 25 MB", []),
        ("exposed communication is 12 % of the step", []),
        ("AllGather kernels take 80 ms", []),
    ],
)
def test_confusions_are_named_where_the_words_show_them(text: str, names: list[str]) -> None:
    assert [confusion.name for confusion in find_confusions(text)] == names
