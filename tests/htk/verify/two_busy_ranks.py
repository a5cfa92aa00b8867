"""Two ranks, two steps, of everything something: three streams, nested operators, ranges on the
host and on the GPU, an autograd thread, a copy, Python calls, fractions of a microsecond.

The second rank is 10 µs late; its all-reduces are as much shorter.
"""

from pathlib import Path

from tests.kineto_file import Event, kernel, launch, of_rank, op, span, step, write

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def write_ranks(folder: Path) -> Path:
    for rank, late in ((0, 0), (1, 10)):
        events: list[Event] = [python("train.py(1): main", 0, 1000)]
        for k in (0, 1):
            events += _step(k, 500 * k, late)
        write(folder / f"rank{rank}.json", *events, **of_rank(rank, 2))
    return folder


def python(name: str, ts: float, dur: float) -> Event:
    return {**span(name, ts, dur), "cat": "python_function"}


def _step(k: int, begin: float, late: float) -> list[Event]:
    at, ids = begin + late, 100 * k
    copy = kernel("Memcpy HtoD (Pinned -> Device)", at + 70.125, 30, ids + 2, 8)
    copy |= {"cat": "gpu_memcpy"}
    copy["args"] |= {"bytes": 4096}
    return [
        step(k, begin, 480),
        python("train.py(9): step", at + 0.5, 400),
        python("<built-in method linear>", at + 11, 40),
        span("forward", at + 1, 100),
        span("layer", at + 10, 50),
        op("aten::linear", at + 12, 30.001),
        op("aten::addmm", at + 15, 20),
        launch(ids + 1, at + 20),
        kernel("ampere_bf16_gemm", at + 40.5, 50.253, ids + 1),
        op("aten::copy_", at + 62, 10),
        launch(ids + 2, at + 64),
        copy,
        {**span("forward", at + 40.5, 60), "cat": "gpu_user_annotation", "pid": 0, "tid": 7},
        span("backward", at + 110, 190),
        op("autograd::engine::evaluate_function: AddmmBackward0", at + 120, 60, tid=2),
        op("aten::mm", at + 125, 20, tid=2),
        launch(ids + 3, at + 130, tid=2),
        kernel("ampere_bf16_gemm_nt", at + 150, 60, ids + 3),
        op("record_param_comms", at + 185, 10, tid=2),
        launch(ids + 4, at + 188, tid=2),
        kernel(ALL_REDUCE, at + 200, 90 - late, ids + 4, 20),
        launch(ids + 5, at + 310),  # outside operators and ranges
        kernel("ampere_bf16_gemm", at + 330, 25.5, ids + 5),
        kernel("vectorized_add", at + 360, 5, 9000 + ids),  # launched by nothing recorded
    ]
