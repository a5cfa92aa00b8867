"""The recorded step with edits applied, and its replay."""

from collections.abc import Callable, Sequence

import numpy as np

from htk.base.errors import UsageError
from htk.quantities.graph.replay import Replay
from htk.whatif.contention import settle_contention
from htk.whatif.curves import apply_curves, narrow_count
from htk.whatif.edit_arguments import on_or_off
from htk.whatif.edit_uncertainty import accumulated_together, measure_distance
from htk.whatif.edited_job import edited_job, with_own_batch
from htk.whatif.edits import (
    REPEATABLE,
    all_edits,
    bucket,
    find_edit,
    gradients,
    no_sync,
    prefetch_depth,
    sharding,
    split,
)
from htk.whatif.from_one_rank import place_in_world
from htk.whatif.left_out_ranks import follow_left_out
from htk.whatif.missing_ranks import add_unrecorded_waits, drop_unrecorded_waits
from htk.whatif.recorded_step import Baseline
from htk.whatif.step_model import StepModel

# Edits of what several ranks share, and what reads their values.
_OF_SEVERAL: dict[str, Callable[[str], object]] = {
    "sharding": sharding.read_strategy,
    "bucket": bucket.read_size,
    "prefetch_depth": prefetch_depth.read_depth,
    "split": split.read_cut,
    "gradients": gradients.read_share,
    "no_sync": lambda value: on_or_off(value, no_sync.NAME),
}

_OF_COMMUNICATION = frozenset({"network", "no_skew", "overlap"})


def order_edits(edits: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the edits in the order in which they are applied, with strategies by htk's names."""
    names = [e.NAME for e in all_edits()]
    for name, _ in edits:
        find_edit(name)
    check_once([name for name, _ in edits])
    by_our_names = [(n, sharding.parse_strategy(v) if n == "sharding" else v) for n, v in edits]
    return tuple(sorted(by_our_names, key=lambda pair: names.index(pair[0])))


def check_once(names: Sequence[str]) -> None:
    """Refuse an edit that is asked for twice: the second would overrule the first."""
    for name in dict.fromkeys(names):
        if names.count(name) > 1 and name not in REPEATABLE:
            raise UsageError(f"{name} is given {names.count(name)} times; give it once")


def apply_edits(start: Baseline, asked: Sequence[tuple[str, str]]) -> tuple[StepModel, Replay]:
    """Return the step after the edits, which are in their order, and its replay."""
    asked = with_own_batch(start.job, _with_shards_of_nodes(start, _with_wrapper(start, asked)))
    model = place_in_world(start.model, dict(asked).get("world", ""))
    before = edited = drop_unrecorded_waits(model, start.waits)
    recorded = np.ones(1) if start.curves is None else start.curves.ratios
    is_alone = edited_job(start.job, asked).ranks == 1
    for name, value in asked:
        if is_alone and name in _OF_SEVERAL:
            _OF_SEVERAL[name](value)  # refuses what means nothing
            edited = edited.with_assumption(f"{name}: one rank shares nothing")
            continue
        if name in _OF_COMMUNICATION and not edited.is_comm.any():
            raise UsageError(f"{name}: no communication was recorded")
        after = find_edit(name).apply(edited.fresh(), value)
        if start.curves is not None and start.curves.recorded and name == "batch":
            after = apply_curves(after, start.curves, find_micro_batch(start, asked))
        if start.curves is not None and start.curves.off and name == "accumulation":
            after = narrow_count(after, start.curves, find_count(start, asked))
        if name != "seq" or "batch" not in dict(asked):  # else both are one change of tokens
            before = edited
        far = measure_distance(before, after, recorded)
        edited = accumulated_together(before, edited, after, name, far)
    edited = add_unrecorded_waits(edited, start.model, start.waits)
    if start.left_out is not None:
        edited = follow_left_out(edited, start.model)
    if start.waits.any():
        edited = edited.with_assumption(
            "ranks are not recorded: in their collectives, time beyond the pace of the fastest "
            "tenth is taken for waiting; it may be transfer"
        )
    return settle_contention(edited, start.contention, start.concurrent_share)


def _with_wrapper(start: Baseline, asked: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """Return the edits, and with the first replicas of a job the sharding that it is wrapped
    for."""
    wrapped_for = start.job.strategy
    names = dict(asked)
    if start.job.data_ranks != 1 or "world" not in names or "sharding" in names:
        return asked
    return (
        asked if wrapped_for in (None, "ddp") else order_edits([*asked, ("sharding", wrapped_for)])
    )


def _with_shards_of_nodes(
    start: Baseline, asked: Sequence[tuple[str, str]]
) -> Sequence[tuple[str, str]]:
    """Return the edits, and with nodes of another size the hybrid shards that fill these."""
    before = start.job
    edited = edited_job(before, asked)
    names = [name for name, _ in asked]
    follows = before.strategy == "hybrid_shard" and "world" in names and "sharding" not in names
    if not follows or None in (before.shards, edited.shards) or edited.shards == before.shards:
        return asked
    return order_edits([*asked, ("sharding", f"hybrid_shard:{edited.shards}")])


def find_micro_batch(start: Baseline, asked: Sequence[tuple[str, str]]) -> float:
    """Return the micro-batch over the recorded one."""
    value = dict(asked).get("batch")
    return 1.0 if value is None else find_edit("batch").apply(start.model, value).activation_scale


def find_count(start: Baseline, asked: Sequence[tuple[str, str]]) -> float:
    """Return the number of micro-batches over the recorded one."""
    values = dict(asked)
    if "accumulation" not in values or start.curves is None or not start.curves.counted:
        return 1.0
    model = start.model
    if "batch" in values:
        model = find_edit("batch").apply(model, values["batch"])
    return find_edit("accumulation").apply(model, values["accumulation"]).samples / model.samples
