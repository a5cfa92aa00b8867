"""Two ranks, two steps, the second rank 10 µs late: every figure can be worked out on paper.

           0        5                35   40 41 42                        82   100
    rank 0 mm at 2, launch at 3: gemm 5-35; add at 40, launch at 41: all-reduce 42-82
    rank 1 the same, 10 later:   gemm 15-45; add at 50, launch at 51: all-reduce 52-82

Times are µs; step 1 is step 0 again, 100 later.
"""

from pathlib import Path

from tests.kineto_file import Event, kernel, launch, of_rank, op, step, write

COMM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def write_ranks(folder: Path) -> Path:
    for rank, late in ((0, 0), (1, 10)):
        events: list[Event] = []
        for k in (0, 1):
            begin = 100 * k
            events += [
                step(k, begin, 100),
                op("aten::mm", begin + 2 + late, 5),
                launch(10 * k + 1, begin + 3 + late),
                kernel("ampere_bf16_gemm", begin + 5 + late, 30, 10 * k + 1),
                op("aten::add", begin + 40 + late, 5),
                launch(10 * k + 2, begin + 41 + late),
                kernel(COMM, begin + 42 + late, 40 - late, 10 * k + 2, 20),
            ]
        write(folder / f"rank{rank}.json", *events, **of_rank(rank, 2))
    return folder
