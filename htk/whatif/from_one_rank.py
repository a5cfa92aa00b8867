"""From one GPU to several that train on other samples each: gradients reduced in buckets.

Gradients are ready with the products that make them, as shapes tell, that of the embedding with the
last of the backward pass; DistributedDataParallel reduces a bucket as soon as it is full, one after
the other, and the optimizer waits for all. Parameters that no product multiplies are not counted.
"""

import math
from dataclasses import replace

import numpy as np

from htk.base.columns.arrow import match_texts
from htk.base.columns.types import Ints
from htk.base.errors import UsageError
from htk.whatif.fsdp_to_ddp import BUCKET_BYTES
from htk.whatif.fsdp_units import compute_lane, find_gradient_products, next_of
from htk.whatif.group_kinds import described_degree
from htk.whatif.host_cost import delay_calls, launch_ns, operator_ns
from htk.whatif.micro_batch_count import micro_batches
from htk.whatif.network_tiers import read_network
from htk.whatif.number_format import gradient_bytes
from htk.whatif.operator_shapes import list_matrices, operator_shapes
from htk.whatif.parallel import tensor_degree
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import Work, insert_works
from htk.whatif.transfers import gpus_of_a_node

_GPUS_OF_A_NODE = 8
_LOOK_UPS = ("aten::embedding", "aten::index_select")
_SKEW = 0.02  # of the step: how late the last of several is, of which one was recorded


def is_of_one_rank(model: StepModel) -> bool:
    """Return whether the recording is of one GPU that communicates with none."""
    recorded = bool(model.facts.tables["collectives"].num_rows)
    sends = bool(model.is_comm.any()) and not model.tensor  # but what an edit has inserted
    return len(model.graph.ranks) == 1 and not recorded and not sends


def place_in_world(model: StepModel, world: str) -> StepModel:
    """Return the model of one GPU in the nodes that it gets neighbours in: of '2x4' four, else as
    many as nodes usually have."""
    if not is_of_one_rank(model) or not world:
        return model
    node = int(world.partition("x")[2] or _GPUS_OF_A_NODE)
    return replace(model, facts=replace(model.facts, gpus_per_node=node))


def parameter_gradients(model: StepModel, rank: int | None = None) -> list[tuple[int, int]]:
    """Return the activities that make gradients in a micro-batch of a rank (by default the first),
    with their elements; those of a table where it looks tokens up."""
    lane = compute_lane(model, model.graph.ranks[0] if rank is None else rank)
    products = sorted([*find_gradient_products(model, [lane])[0], *_find_convolutions(model, lane)])
    if not products:
        return []
    last = int(lane[model.facts.backward[lane]][-1])
    looks_up = rank is None or bool(model.facts.op.isin(*_LOOK_UPS)[lane].any())
    return [
        *products[-(len(products) // max(micro_batches(model), 1)) :],
        (last, widest_table(model) if looks_up else 0),
    ]


def with_replicas(model: StepModel, ranks: int, now: int, name: str) -> StepModel:
    """Return the model of so many GPUs, of which the `now` recorded ones share all samples."""
    tensor = model.tensor or tensor_degree(model)
    group = ranks // (tensor * (described_degree(model, "pipeline") or 1))
    per_node = min(max(gpus_of_a_node(model) // tensor, 1), group)
    works: list[Work] = []
    for rank in model.graph.ranks:
        first = len(model.graph.activities.start) + len(works)
        works += _build_reductions(model, rank, first, (group, per_node))
    if not works:
        raise UsageError(
            f"{name}: the trace does not say how many ranks its collectives have, nor do shapes "
            "tell the gradients of one (record_shapes=True would)"
        )
    calls = np.array([work.call for work in works], np.int64)
    changed = insert_works(delay_calls(model, calls, operator_ns(model)), works)
    total = sum(work.in_bytes for work in works) / len(model.graph.ranks)
    return (
        replace(
            changed,
            devices=model.devices * ranks / now,
            samples=model.samples * ranks / now,
            low_confidence=True,
        )
        .with_uncertainty("communication", 0.5)
        .with_uncertainty("skew", _SKEW)
        .with_assumption(
            f"{ranks} ranks in place of {now}, each with the work it has, {per_node} of a group to "
            f"a node; {total / 1e6:.0f} MB of gradients are reduced in buckets of "
            f"{BUCKET_BYTES >> 20} MB at {1 / read_network(model).pace(group, per_node):.3g} GB/s, "
            "as such links usually have"
        )
    )


def _build_reductions(
    model: StepModel, rank: int, first: int, group: tuple[int, int]
) -> list[Work]:
    """Return the reductions of a rank's gradients, the first of which gets this number, in a group
    of so many ranks, so many to a node."""
    members, per_node = group
    element = gradient_bytes(model)
    split = (model.tensor or tensor_degree(model)) // tensor_degree(model)
    lane = compute_lane(model, rank)
    ready = [(activity, element * n // split) for activity, n in parameter_gradients(model, rank)]
    if not ready:
        return []
    net = read_network(model)
    each = 2 * (members - 1) / members * net.pace(members, per_node)
    fixed = net.latency(members, per_node)
    last = ready[-1][0]
    rest = next_of(lane, last)
    works: list[Work] = []
    held = 0
    for activity, size in ready:
        held += size
        if not held or (held < BUCKET_BYTES and activity != last):
            continue
        after = (activity, first + len(works) - 1) if works else (activity,)
        before = (rest,) if rest != last else ()
        works.append(
            Work(
                activity,
                fixed + held * each,
                after,
                before,
                collective="all_reduce",
                in_bytes=held,
                out_bytes=held,
                group_size=members,
                per_node=per_node,
                call=int(model.graph.activities.call[next_of(lane, activity)]),
                lag=launch_ns(model),
            )
        )
        held = 0
    return works


def _find_convolutions(model: StepModel, lane: Ints) -> list[tuple[int, int]]:
    """Return the last kernel of each convolution's backward pass, with its weight's elements."""
    kernels = lane[model.facts.op.isin("aten::convolution_backward")[lane]]
    _, from_behind = np.unique(model.facts.op_row[kernels][::-1], return_index=True)
    lasts = kernels[::-1][from_behind]
    shapes = map(operator_shapes, model.facts.dims.rows(lasts))
    return [
        (activity, math.prod(of_call[2]))  # of the gradient, the input, the weight
        for activity, of_call in zip(lasts.tolist(), shapes, strict=True)
        if len(of_call) > 2
    ]


def widest_table(model: StepModel) -> int:
    """Return the elements of the widest table that tokens are looked up in."""
    ops = model.facts.tables["cpu_ops"]
    rows = np.flatnonzero(match_texts(ops["name"], lambda name: name == "aten::embedding"))
    tables = [list_matrices(dims) for dims in set(ops["input_dims"].take(rows).to_pylist())]
    return max((math.prod(shapes[0]) for shapes in tables if shapes), default=0)
