"""Seven ranks of two roles, one of them late: every time can be worked out on paper."""

from pathlib import Path

from tests.kineto_file import Event, kernel, launch, of_rank, op, step, write

US = 1000
COMM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
# A gemm from 5 µs on, then 2 µs later the all-reduce, which ends everywhere at 92. Ranks 4 to 6
# then run three more kernels. The last one is rank 3, which arrives at 62.
GEMM = {0: 35, 1: 37, 2: 39, 3: 55, 4: 41, 5: 43, 6: 47}
ARRIVED = {rank: 5 + length + 2 for rank, length in GEMM.items()}


def write_seven(folder: Path) -> Path:
    for rank, length in GEMM.items():
        events: list[Event] = []
        for k in (0, 1):
            begin, number = 100 * k, 10 * k
            events += [
                step(k, begin, 100),
                op("aten::mm", begin + 2, 5),
                launch(number + 1, begin + 3),
                kernel("ampere_bf16_gemm", begin + 5, length, number + 1),
                launch(number + 2, begin + 8),
                kernel(COMM, begin + ARRIVED[rank], 92 - ARRIVED[rank], number + 2),
            ]
            for n in range(3 if rank > 3 else 0):
                events.append(launch(number + 3 + n, begin + 10 + 2 * n))
                events.append(kernel("small", begin + 93 + 2 * n, 1, number + 3 + n))
        write(folder / f"rank{rank}.json", *events, **of_rank(rank, 7))
    return folder
