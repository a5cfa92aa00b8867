"""Two ranks, two steps, of everything something: three streams, nested operators, ranges on the
host and on the GPU, an autograd thread, a copy, Python calls, fractions of a microsecond.

The second rank is 10 µs late; its all-reduces are as much shorter.
"""

from pathlib import Path

from tests.kineto_file import Event, kernel, launch, of_rank, op, span, step, write

# 128 registers of 256 threads: two blocks, 16 of the 64 warps.
PRODUCT = {
    **{"grid": [432, 1, 1], "block": [256, 1, 1], "registers per thread": 128},
    **{"shared memory": 0, "blocks per SM": 4.0, "est. achieved occupancy %": 25},
}
A100 = {
    **{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "computeMinor": 0},
    **{"warpSize": 32, "numSms": 108, "maxThreadsPerMultiprocessor": 2048},
    **{"regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 167_936},
}
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def write_ranks(folder: Path) -> Path:
    for rank, late in ((0, 0), (1, 10)):
        events: list[Event] = [python("train.py(1): main", 0, 1000)]
        for k in (0, 1):
            events += _step(k, 500 * k, late)
        write(folder / f"rank{rank}.json", *events, **of_rank(rank, 2), deviceProperties=[A100])
    return folder


def python(name: str, ts: float, dur: float) -> Event:
    return {**span(name, ts, dur), "cat": "python_function"}


def _step(k: int, begin: float, late: float) -> list[Event]:
    start, ids = begin + late, 100 * k
    copy = kernel("Memcpy HtoD (Pinned -> Device)", start + 70.125, 30, ids + 2, 8)
    copy |= {"cat": "gpu_memcpy"}
    copy["args"] |= {"bytes": 4096}
    product = kernel("ampere_bf16_gemm", start + 40.5, 50.253, ids + 1)
    product["args"] |= PRODUCT
    return [
        step(k, begin, 480),
        python("train.py(9): step", start + 0.5, 400),
        python("<built-in method linear>", start + 11, 40),
        span("forward", start + 1, 100),
        span("layer", start + 10, 50),
        op("aten::linear", start + 12, 30.001),
        op("aten::addmm", start + 15, 20),
        launch(ids + 1, start + 20),
        product,
        op("aten::copy_", start + 62, 10),
        launch(ids + 2, start + 64),
        copy,
        {**span("forward", start + 40.5, 60), "cat": "gpu_user_annotation", "pid": 0, "tid": 7},
        span("backward", start + 110, 190),
        op("autograd::engine::evaluate_function: AddmmBackward0", start + 120, 60, tid=2),
        op("aten::mm", start + 125, 20, tid=2),
        launch(ids + 3, start + 130, tid=2),
        kernel("ampere_bf16_gemm_nt", start + 150, 60, ids + 3),
        op("record_param_comms", start + 185, 10, tid=2),
        launch(ids + 4, start + 188, tid=2),
        kernel(ALL_REDUCE, start + 200, 90 - late, ids + 4, 20),
        launch(ids + 5, start + 310),  # outside operators and ranges
        kernel("ampere_bf16_gemm", start + 330, 25.5, ids + 5),
        kernel("vectorized_add", start + 360, 5, 9000 + ids),  # launched by nothing recorded
    ]
