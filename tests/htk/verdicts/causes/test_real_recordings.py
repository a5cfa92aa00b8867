"""Causes of public recordings of several GPUs or ranks, each confirmed in the files themselves.

Behind each cause stands what a reading of the raw events shows, by plain json or sqlite3: unions of
GPU activities, and how late the call came that launched the end of a gap. Times: means over GPUs.
"""

from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.traces.trace.opening import open_trace

LAUNCHING = "launch-bound: the host launches slower than the GPU works"
ELSEWHERE = "the GPU waits while the host works on something else"
BLOCKING = "synchronising calls drain the GPU"
UNDETERMINED = "exposed communication: wait or transfer, cannot be told"
LOADING = "the GPU waits for data"
ONE_KERNEL = "memory-bound kernels that one kernel could be"
# A cause, and the time in ms that the raw events show; None: they show it otherwise.
Confirmed = tuple[str, float | None]

RECORDINGS: dict[str, list[Confirmed]] = {
    "dlrm_8rank": [
        # 6.3 to 9.1 ms of a window of 11 to 19 are gaps below 1 ms: 5.0 to 7.2 until the launch.
        (LAUNCHING, 7.52),
        # enumerate(DataLoader) begins each step, 1.05 to 1.41 ms, before the first kernel.
        (LOADING, None),
        # 10 cudaStreamSynchronize and a pageable copy a rank, up to 6.6 ms; 8 to 16 gaps of 0.4 ms
        # begin inside of one.
        (BLOCKING, None),
        # 16 times a rank addcmul, sqrt, add and addcdiv in a row on a stream, 0.21 ms: Adam.
        (ONE_KERNEL, None),
    ],
    "hta/trace_filter": [
        # 337 and 304 ms of SendRecv with nothing beside them; the metadata says 128 ranks.
        (UNDETERMINED, 320.0),
        # 45 gaps of each rank end with a launch that comes 1 to 135 ms late, 270 ms in all, under
        # _foreach_add_, _foreach_mul_, forward, or nothing (the file is a sample of its events).
        (ELSEWHERE, 270.0),
        (LAUNCHING, None),  # 33 and 29 ms of shorter gaps until the launch, and what follows
    ],
    "nsys/mfu_2gpu_before.sqlite": [
        (LAUNCHING, 25.0),  # 11.5 and 22.5 ms until the launch, 9.1 and 6.9 after it
        # Gaps of 1 ms and more: 5.5 and 2.1 ms, in two each, less 2.0 of "CUPTI Buffer flush".
        (ELSEWHERE, 2.8),
        # 17.2 and 8.2 ms of NCCL with no compute beside it are no cause: the 64 all-reduces stand
        # between the product that makes and the one that takes their activations.
    ],
    "nsys/mfu_2gpu_after.sqlite": [
        (LAUNCHING, 43.0),  # 29.8 and 28.4 ms until the launch, 16.7 and 11.1 after it
        (ELSEWHERE, None),  # 12.7 and 5.8 ms in four gaps each, in part under "CUPTI Buffer flush"
        ("the profiler itself holds the GPU up", 4.0),  # four of those, 8.1 ms, on two hosts
    ],
    "jax/conv_minimal_08": [
        # Eight devices compute for 3.4 ms of 91 to 138; four gaps of each, inside
        # PjitFunction(forward_3d_conv), are the rest. TensorBoard's table calls 90 % idle.
        (ELSEWHERE, 97.0),
        (LAUNCHING, None),  # 13 to 45 gaps of each below 1 ms, 2.2 ms, and parts of the long ones
    ],
    "hta/trace_diff/control": [
        (LAUNCHING, 62.6),  # gaps below 1 ms: 40.9 ms until the launch, 21.7 after it
        (UNDETERMINED, 87.9),  # NCCL with no compute beside it; one of eight ranks is at hand
        # 150 times a norm, a sigmoid and a product in a row on a stream, 6.2 ms; and backward.
        (ONE_KERNEL, None),
        (ELSEWHERE, 13.4),  # seven gaps, under backward operators
        (LOADING, None),  # "## load_batch ##" takes 1 ms of each step
    ],
    "hta/trace_diff/test": [
        ("matrix kernels without tensor cores", 100.0),  # 1,792 of sgemm, 199 ms: half of it
        # Copies with no kernel beside them: 96.5 ms, 2,768 of 64 KiB and more, 2,088 smaller.
        ("copies hold the GPU", 90.0),
        (UNDETERMINED, 73.3),
        ("kernels too small for the GPU", None),  # 3,913, with 64 of NCCL, at < 1 block per SM
    ],
    "tracelens/b200/eager_trace.json.gz": [
        # An iteration of vLLM without graphs: 54.7 of 84.5 ms until the launch, 9.3 after it, and
        # five gaps of 8.95 under aten::linear and vllm::unified_attention_with_output.
        ("the GPU waits for launches within iterations", 73.0),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDINGS)
def test_each_cause_that_is_named_is_in_the_raw_events(shared: Path, name: str) -> None:
    rows = ask_trace(open_trace(shared / "traces" / name), "recommendations").to_pylist()
    causes = [row for row in rows if row["finding"] != "unexplained"]
    assert [row["finding"] for row in causes] == [finding for finding, _ in RECORDINGS[name]]
    for row, (finding, raw_ms) in zip(causes, RECORDINGS[name], strict=True):
        if raw_ms is not None:
            time_ns = row["gain_ns"] or row["step_gain_ns"]  # of a server only the gain is known
            assert time_ns / 1e6 == pytest.approx(raw_ms, rel=0.2), finding
