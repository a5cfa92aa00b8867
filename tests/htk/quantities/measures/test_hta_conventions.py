"""What HTA counts as GPU time: classes of names, steps, synchronisations, windows of ranks."""

from pathlib import Path

import pytest

from htk.base.errors import UsageError
from htk.quantities.measures.hta_conventions import class_gpu_time, kept_kernels, kind_of
from htk.traces.trace.opening import open_trace
from tests.hta_truth import asserted
from tests.tables import make

LAUNCHES = [(1, 5), (2, 15), (3, 25), (4, 35)]  # correlation and start; steps begin at 0, 10, 30


def test_kernels_that_it_keeps(shared: Path) -> None:
    tables = open_trace(shared / "traces/hta/ns_resolution_trace").tables
    kept = kept_kernels(tables["kernels"], tables["kernel_links"], tables["annotations"])
    assert kept.num_rows == asserted(shared, "ns.kernels_with_annotations")["rows"]


def test_classes_of_names(shared: Path) -> None:
    words = {"OTHER": "other", "COMMUNICATION": "comm", "MEMORY": "memory"}
    words["COMPUTATION"] = "compute"
    for name, kind in asserted(shared, "kernel_types").items():
        if isinstance(kind, str) and kind in words:
            assert kind_of(name) == words[kind], name


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "comm"),
        ("hipMemcpyAsync", "comm"),  # its pattern for AMD's library takes all of HIP
        ("Memcpy DtoD (Device -> Device)", "memory"),
        ("Memset (Device)", "memory"),
        ("Stream Wait Event", "other"),
        ("Stream Synchronize", "other"),
        ("void gemm_kernel<float>()", "compute"),
    ],
)
def test_classes_by_the_patterns(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def tables(steps: tuple[int, ...]) -> dict[str, object]:
    """Rank 3: four kernels of 2 on two devices, one launched in each of LAUNCHES, one without a
    stream; a synchronisation of a stream, and one of the device."""
    kernels = [
        {"rank": 3, "device": k % 2, "stream": 7, "name": "gemm", "start_ns": start + 40,
         "end_ns": start + 42}
        for k, (_, start) in enumerate(LAUNCHES)
    ]  # fmt: skip
    kernels.append(kernels[0] | {"stream": None})
    links = [{"launch_start_ns": start} for _, start in (*LAUNCHES, LAUNCHES[0])]
    sync = {"rank": 3, "name": "Stream Synchronize", "correlation": 2, "start_ns": 16}
    return {
        "kernels": make("kernels", kernels),
        "kernel_links": make("kernel_links", links),
        "syncs": make("syncs", [
            sync | {"stream": 7, "end_ns": 90}, sync | {"stream": None, "end_ns": 500},
        ]),
        "launches": make("launches", [
            {"rank": 3, "correlation": c, "start_ns": start, "end_ns": start + 1}
            for c, start in LAUNCHES
        ]),
        "annotations": make("annotations", [
            {"rank": 3, "name": f"ProfilerStep#{k}", "step": k, "on_gpu": False, "start_ns": start,
             "end_ns": start + 10}
            for k, start in enumerate(steps, 8)
        ]),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "starts"),
    [
        ((0, 10, 30), [45, 55, 65, 16]),  # 35 is in the last step, which it leaves out
        ((0,), [45, 55, 65, 75, 16]),  # of one step nothing is left out
    ],
)
def test_what_the_last_step_launches_is_left_out(steps: tuple[int, ...], starts: list[int]) -> None:
    counted, windows = class_gpu_time("rank", **tables(steps))
    assert counted["start_ns"].to_pylist() == starts
    assert counted["kind"].to_pylist() == ["compute"] * (len(starts) - 1) + ["other"]
    assert set(counted["device"].to_pylist()) == {None}, "all devices of a rank are one"
    (window,) = windows.to_pylist()
    assert (window["rank"], window["start_ns"], window["end_ns"]) == (3, 16, 90)


def test_steps_are_refused() -> None:
    with pytest.raises(UsageError, match="answers per rank"):
        class_gpu_time("step", **tables((0,)))
