"""What a rank sends in a step: messages and bytes on the wire, by type, group and scope."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_texts
from htk.base.columns.types import Mask
from htk.base.schema import TEXT
from htk.physics.training_job import TrainingJob
from htk.physics.wire import wire_bytes
from htk.whatif.label import TRAFFIC
from htk.whatif.parallelism import find_sharded, mark_replicating
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import gpus_of_a_node

Key = tuple[str, int, str]  # type, ranks that take part, scope
Sums = tuple[float, float, float]  # calls, message bytes, wire bytes


def build_traffic_table(
    recorded: StepModel, edited: StepModel | None = None, job: TrainingJob | None = None
) -> pa.Table:
    """A row for each kind of collective, largest first: recorded, and of the edited job."""
    sums_by_basis = [("recorded", _sum_traffic(recorded, recorded.is_comm))]
    if edited is not None and job is not None:
        sums_by_basis.append(("predicted", _predict_traffic(recorded, edited, job)))
    rows = []
    for name, sums in sums_by_basis:
        ordered = sorted(sums.items(), key=lambda item: -item[1][2])
        rows += [(name, *key, *values) for key, values in ordered]
    columns = list(zip(*rows, strict=True)) or [()] * len(TRAFFIC)
    arrays = [
        build_texts(list(column)) if field.type == TEXT else pa.array(column, field.type)
        for field, column in zip(TRAFFIC, columns, strict=True)
    ]
    return pa.table(arrays, schema=TRAFFIC)


def _predict_traffic(recorded: StepModel, edited: StepModel, job: TrainingJob) -> dict[Key, Sums]:
    """Collectives of parameters by the strategy's formula, all others as the edited step has them.

    (N-1)/N of what is gathered, again in the backward pass where that strategy does so, and of what
    is reduced; between replicas 2(R-1)/R of a shard.
    """
    now = find_sharded(recorded)
    name, shards, ranks = job.strategy, job.shards, job.data_ranks
    if now is None or not shards or not ranks:
        return _sum_traffic(edited, edited.is_comm)
    node = gpus_of_a_node(recorded)
    if (name, shards, ranks) == (now.strategy, now.ranks, now.world):
        return _sum_traffic(edited, edited.is_comm)
    of_parameters = recorded.is_collective("all_gather", "reduce_scatter") | mark_replicating(
        recorded
    )
    more = len(edited.graph.start) - len(of_parameters)
    others = edited.is_comm & ~np.append(of_parameters, np.ones(more, bool))
    sums = _sum_traffic(edited, others)
    units = len(now.unit_bytes)
    parameter_bytes = float(sum(now.unit_bytes))
    scope = "across nodes" if shards > node else "within a node"
    if shards > 1:
        again = name in ("full_shard", "hybrid_shard")  # the root, gathered first, stays whole
        gathered = parameter_bytes + (parameter_bytes - now.unit_bytes[0] if again else 0.0)
        calls = 2 * units - 1 if again else units
        part = (shards - 1) / shards
        sums["all_gather", shards, scope] = (calls, gathered / shards, part * gathered)
        reduced = float(now.reduced_bytes)
        sums["reduce_scatter", shards, scope] = (units, reduced, part * reduced)
    replicas = ranks // shards
    if name in ("ddp", "hybrid_shard") and replicas > 1:
        each = now.reduced_bytes / shards
        scope = "across nodes" if ranks > node else "within a node"
        sums["all_reduce", replicas, scope] = (units, each, 2 * (replicas - 1) / replicas * each)
    return sums


def _sum_traffic(model: StepModel, chosen: Mask) -> dict[Key, Sums]:
    """Return the calls, message bytes and wire bytes of a rank."""
    facts = model.facts
    ranks = len(model.graph.ranks)
    length = model.lengths()
    seen = model.graph.activities.length
    sums: dict[Key, Sums] = {}
    for call in np.flatnonzero(chosen).tolist():  # collectives of a step
        kind = facts.collective[call]
        gone = length[call] <= 0 and (call >= len(seen) or seen[call] > 0)
        if kind is None or gone:
            continue
        size = int(facts.group_size[call])
        sent = max(int(facts.in_bytes[call]), 0)
        wire = wire_bytes(kind, sent, max(int(facts.out_bytes[call]), 0), size) or 0
        key = (kind, size, _name_scope(int(facts.per_node[call]), size))
        calls, message, wires = sums.get(key, (0.0, 0.0, 0.0))
        sums[key] = (calls + 1 / ranks, message + sent / ranks, wires + wire / ranks)
    return sums


def _name_scope(per_node: int, size: int) -> str:
    if not per_node:
        return "unknown"
    return "within a node" if per_node >= size else "across nodes"
