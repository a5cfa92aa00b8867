"""Collectives of a DDP step by hand: buckets of gradients, and what else is reduced."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest

import htk
from htk.answers.export.operation_rows import cut_operations
from tests.kineto_file import Event, kernel, launch, of_rank, op, span, step, write

NODE = "autograd::engine::evaluate_function: "
BUCKET = NODE + "torch::autograd::AccumulateGrad"
# What a step launches: the operators round it (outermost first), its name or call, and elements.
STEP: list[tuple[tuple[str, ...], str, int]] = [
    ((), "_allgather_base", 4096),  # of metrics, before the step's first kernel
    ((), "broadcast", 512),  # buffers
    (("aten::mm",), "gemm", 0),
    ((), "_allgather_base", 4096),  # features of a contrastive loss
    ((), "allreduce", 1),  # a loss
    ((), "allreduce", 256),  # statistics of the forward
    (("aten::mm",), "gemm", 0),
    ((NODE + "MmBackward0", "aten::mm"), "gemm", 0),
    ((NODE + "SyncBatchNormBackward", "c10d::allreduce_"), "allreduce", 128),
    ((NODE + "MmBackward0", "aten::mm"), "gemm", 0),
    ((BUCKET, "c10d::allreduce_"), "allreduce", 1 << 20),
    ((NODE + "MmBackward0", "aten::mm"), "gemm", 0),
    ((BUCKET, "c10d::allreduce_"), "allreduce", 8),  # a small bucket
    ((), "allreduce", 1),  # the norm
    ((), "allreduce", 1),
    (("Optimizer.step#AdamW.step", "aten::_fused_adamw_"), "adam", 0),
    ((), "allreduce", 1),  # a loss that is logged
    ((), "allreduce", 4096),  # metrics
]
NAMES = {"allreduce": "AllReduce_Sum_f32", "broadcast": "Broadcast", "_allgather_base": "AllGather"}


def written(folder: Path, steps: list[Any]) -> htk.Trace:
    for rank in (0, 1):
        events: list[Event] = []
        number = count(1)
        for k, entries in enumerate(steps):
            base = 1000.0 * k
            events.append(step(k, base + 1, 20 * len(entries)))
            for place, (around, name, elements) in enumerate(entries):
                events += launched(base + 5 + 20 * place, around, name, elements, next(number))
        write(folder / f"rank{rank}.json", *events, **of_rank(rank, 2))
    return htk.open(folder)


def launched(
    call: float, around: tuple[str, ...], name: str, elements: int, number: int
) -> list[Event]:
    """The host's call at `call` us, and a kernel of 10 us that starts 5 us after it."""
    thread = 2 if around and around[0].startswith(NODE) else 1
    listed: list[Event] = []
    for depth, operator in enumerate(around):
        to_event = span if operator.startswith("Optimizer") else op
        listed.append(to_event(operator, call + depth / 10, 6 - depth, thread))
    args: dict[str, Any] = {}
    if elements:
        args = {
            "Collective name": name, "In msg nelems": elements, "Out msg nelems": elements,
            "dtype": "Float", "Group size": 2, "Process Group Name": "0",
            "Process Group Ranks": "[0, 1]",
        }  # fmt: skip
        listed.append(op("record_param_comms", call + 0.5, 3, thread, **args))
        name = f"ncclDevKernel_{NAMES[name]}_RING_LL"
    gpu = kernel(name, call + 5, 10, number, 20 if elements else 7)
    gpu["args"] |= args
    return [*listed, launch(number, call + 1, 1, thread), gpu]


def test_buckets_are_told_from_other_reductions(tmp_path: Path) -> None:
    rows = cut_operations(written(tmp_path, [STEP, STEP])).to_pylist()
    for rank, number in ((0, 0), (1, 1)):
        own = [r for r in rows if (r["rank"], r["step"]) == (rank, number)]
        own.sort(key=lambda r: r["start_ns"])
        base = 1000 * number + 10
        found = [
            (r["type"], (r["start_ns"] / 1e3 - base) / 20, (r["end_ns"] / 1e3 - base - 10) / 20)
            for r in own
        ]
        assert found == [  # by the places in STEP
            ("forward_compute", 2, 6),
            ("backward_compute", 7, 11),
            ("grads_all_reduce", 10, 10),
            ("grads_all_reduce", 12, 12),
            ("clip_grads", 13, 14),
            ("optimizer", 15, 15),
        ]


@pytest.mark.parametrize("node", ["CompiledFunctionBackward", "SumBackward0"])
def test_what_nothing_tells_from_buckets_counts_as_gradients(node: str, tmp_path: Path) -> None:
    """Reductions of compiled graphs stand in no node that accumulates a gradient."""
    entries = [
        (around, name, elements)
        for around, name, elements in STEP
        if not (around and around[0] == BUCKET)
    ]
    entries[8] = ((NODE + node, "c10d::allreduce_"), "allreduce", 128)
    rows = cut_operations(written(tmp_path, [entries])).to_pylist()
    assert [r["type"] for r in rows if r["rank"] == 0].count("grads_all_reduce") == 1
