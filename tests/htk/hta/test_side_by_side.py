"""htk.hta beside the installed HTA: each method, cell by cell, on sixteen recordings.

Times of recordings in nanoseconds are compared to half a microsecond: HTA keeps them as doubles
of microseconds since 1970, whose step is a quarter. Integers are compared by value, as their width
follows from HTA's parser. Where a method differs for one of the reasons of docs/hta.md, the
reason stands in `_DIFFERENT`, and a test holds that it still does.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from htk.hta import TraceAnalysis

_RECORDINGS = {
    "hta/amd_trace": 0,
    "hta/call_stack": 0,
    "hta/cpu_only": 34,
    "hta/critical_path/alexnet": 0,
    "hta/critical_path/cuda_event_sync": 0,
    "hta/critical_path/simple_add": 0,
    "hta/distributed_info_unavailable": 0,
    "hta/execution_trace": 0,
    "hta/nccl_parser_config": 0,
    "hta/ns_resolution_trace": 0,
    "hta/timeline_analysis": 0,
    "hta/trace_compare/base": 0,
    "hta/trace_diff/control": 0,
    "hta/trace_file_list": 1,
    "hta/trace_filter": 1,
    "dlrm_8rank": 3,
}
_IN_NANOSECONDS = {"hta/amd_trace", "hta/nccl_parser_config", "hta/ns_resolution_trace"}
_SHOW = {"visualize": False}
_METHODS: dict[str, Callable[[Any, int], Any]] = {
    "get_comm_comp_overlap": lambda a, rank: a.get_comm_comp_overlap(**_SHOW),
    "get_profiler_steps": lambda a, rank: a.get_profiler_steps(),
    "get_potential_stragglers": lambda a, rank: a.get_potential_stragglers(),
    "get_gpu_kernel_breakdown": lambda a, rank: a.get_gpu_kernel_breakdown(
        num_kernels=9999, **_SHOW
    ),
    "get_gpu_kernels_with_user_annotations": lambda a, rank: (
        a.get_gpu_kernels_with_user_annotations(rank)
    ),
    "get_gpu_user_annotation_breakdown": lambda a, rank: a.get_gpu_user_annotation_breakdown(
        **_SHOW
    ),
    "the same of the CPU": lambda a, rank: a.get_gpu_user_annotation_breakdown(False, **_SHOW),
    "get_temporal_breakdown": lambda a, rank: a.get_temporal_breakdown(**_SHOW),
    "get_aten_op_kernels_and_delay": lambda a, rank: a.get_aten_op_kernels_and_delay([rank]),
    "get_cuda_kernel_launch_stats": lambda a, rank: a.get_cuda_kernel_launch_stats([rank], **_SHOW),
    "get_queue_length_summary": lambda a, rank: a.get_queue_length_summary([rank]),
    "get_queue_length_time_series": lambda a, rank: a.get_queue_length_time_series([rank]),
    "get_time_spent_blocked_on_full_queue": lambda a, rank: a.get_time_spent_blocked_on_full_queue(
        a.get_queue_length_time_series([rank]), 3
    ),
    "get_memory_bw_summary": lambda a, rank: a.get_memory_bw_summary([rank]),
    "get_memory_bw_time_series": lambda a, rank: a.get_memory_bw_time_series([rank]),
    "get_idle_time_breakdown": lambda a, rank: a.get_idle_time_breakdown(
        [rank], show_idle_interval_stats=True, **_SHOW
    ),
}
# What differs, by the reasons that docs/hta.md gives.
_EXACT_TIMES = {
    "get_gpu_kernel_breakdown": _IN_NANOSECONDS,
    "get_queue_length_time_series": {"hta/critical_path/simple_add", "hta/ns_resolution_trace"},
    "get_queue_length_summary": {"hta/critical_path/simple_add"},
    "get_idle_time_breakdown": {"hta/ns_resolution_trace"},
}
_WHAT_COUNTS = {
    "get_gpu_kernel_breakdown": {"hta/critical_path/alexnet", "hta/critical_path/simple_add"},
    "get_gpu_kernels_with_user_annotations": {"hta/amd_trace"},
    "get_temporal_breakdown": {
        "hta/critical_path/alexnet",
        "hta/critical_path/cuda_event_sync",
        "hta/critical_path/simple_add",
    },
    "get_aten_op_kernels_and_delay": {
        "hta/critical_path/alexnet",
        "hta/critical_path/cuda_event_sync",
        "hta/critical_path/simple_add",
        "hta/nccl_parser_config",
        "hta/ns_resolution_trace",
        "hta/timeline_analysis",
        "hta/trace_filter",
        "dlrm_8rank",
    },
    "get_cuda_kernel_launch_stats": {"hta/amd_trace"},
    "get_queue_length_summary": {"hta/trace_file_list"},
    "get_queue_length_time_series": {"hta/trace_file_list"},
}
_WHAT_HTA_LOSES = {
    "get_gpu_kernels_with_user_annotations": {"hta/ns_resolution_trace"},
    "get_gpu_user_annotation_breakdown": {"hta/ns_resolution_trace"},
    "get_time_spent_blocked_on_full_queue": {"hta/timeline_analysis", "hta/trace_filter"},
    "get_idle_time_breakdown": {"dlrm_8rank"},  # kernels that overlap are negative idle time there
}


# HTA takes seconds to read one: by day a recording for each kind of reason, all at night.
_BY_DAY = (
    "hta/amd_trace",
    "hta/critical_path/simple_add",
    "hta/ns_resolution_trace",
)


@pytest.mark.parametrize(
    "recordings",
    [_BY_DAY, pytest.param((*_RECORDINGS,), marks=pytest.mark.nightly)],
    ids=["some", "all"],
)
def test_each_method_beside_hta(
    recordings: tuple[str, ...], shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = pytest.importorskip("hta.trace_analysis", reason="HTA is an extra").TraceAnalysis
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    logging.getLogger("hta").setLevel(logging.ERROR)
    asked = 0
    different: dict[str, set[str]] = {}
    for recording in recordings:
        rank = _RECORDINGS[recording]
        folder = str(shared / "traces" / recording)
        hta = theirs(trace_dir=folder)
        htk = TraceAnalysis(trace_dir=folder)
        for name, ask in _METHODS.items():
            try:
                expected = ask(hta, rank)
            except Exception:  # docs/hta.md: a traceback there is an answer or a clear line here
                continue
            asked += 1
            answer = ask(htk, rank)
            if list(_compare(expected, answer, recording in _IN_NANOSECONDS)):
                different.setdefault(name, set()).add(recording)
    expected_differences: dict[str, set[str]] = {}
    for reason in (_EXACT_TIMES, _WHAT_COUNTS, _WHAT_HTA_LOSES):
        for name, unlike in reason.items():
            expected_differences.setdefault(name, set()).update(unlike & {*recordings})
    assert asked > 12 * len(recordings)
    assert different == {name: unlike for name, unlike in expected_differences.items() if unlike}


def _compare(hta: Any, htk: Any, in_nanoseconds: bool) -> Iterator[str]:
    """Tell what differs between two answers of one method."""
    if isinstance(hta, dict):
        hta, htk = list(hta.items()), list(htk.items())
    if isinstance(hta, (list, tuple)):
        if len(hta) != len(htk):
            yield f"{len(hta)} and {len(htk)} parts"
        for expected, answer in zip(hta, htk, strict=False):
            yield from _compare(expected, answer, in_nanoseconds)
    elif isinstance(hta, pd.DataFrame):
        yield from _compare_frames(hta, htk, in_nanoseconds)
    elif hta != htk:
        yield f"{hta} and {htk}"


def _compare_frames(hta: pd.DataFrame, htk: pd.DataFrame, in_nanoseconds: bool) -> Iterator[str]:
    """Tell what differs between two frames: columns, rows, index, cells."""
    if list(hta.columns) != list(htk.columns):
        yield f"columns {list(hta.columns)} and {list(htk.columns)}"
        return
    if len(hta) != len(htk):
        yield f"{len(hta)} and {len(htk)} rows"
        return
    if hta.index.names != htk.index.names or list(hta.index) != list(htk.index):
        yield "index"
    # HTA's numbers of names stand beside the names as text.
    for column in [name for name in hta.columns if f"s_{name}" not in hta.columns]:
        expected, answer = (frame[column].to_numpy() for frame in (hta, htk))
        if not _are_equal(expected, answer, 0.51 if in_nanoseconds else 0.00101):
            yield str(column)


def _are_equal(expected: np.ndarray, answer: np.ndarray, tolerance: float) -> bool:
    try:
        numbers = [cells.astype(float) for cells in (expected, answer)]
    except (TypeError, ValueError):
        return [str(cell) for cell in expected] == [str(cell) for cell in answer]
    return bool(np.allclose(*numbers, rtol=0, atol=tolerance, equal_nan=True))
