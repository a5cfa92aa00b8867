"""Gradients of accumulated micro-batches, reduced with the last one alone or with each.

Of replicas without shards: what shards keep of gradients between micro-batches is another layout.
"""

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Ints
from htk.base.errors import UsageError
from htk.whatif.data_groups import data_positions
from htk.whatif.edit_arguments import on_or_off
from htk.whatif.fsdp_units import all_waited_for, compute_lane, next_of
from htk.whatif.host_cost import delay_calls, host_ns, launch_ns, remove_calls
from htk.whatif.micro_batch_count import begins_of_backward, micro_batches
from htk.whatif.parallelism import find_replicated, find_sharded, mark_replicating
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import Work, insert_works

NAME = "no_sync"
HELP = "Gradients of DDP reduced with the last micro-batch alone: on, or with each: off."


def apply(model: StepModel, value: str) -> StepModel:
    alone = on_or_off(value, NAME)
    many = micro_batches(model)
    if many < 2:
        return model.with_assumption("a step has one micro-batch, which is the last one")
    now = find_replicated(model)
    if now is None or find_sharded(model) is not None:
        raise UsageError(
            f"{NAME}: it is answered of replicas without shards, whose reductions of gradients "
            "are seen in the step"
        )
    if now.synchronisations == (1 if alone else many):
        return model.with_assumption(
            f"{now.synchronisations} of {many} micro-batches reduce their gradients already"
        )
    if now.synchronisations not in (1, many):
        raise UsageError(
            f"{NAME}: {now.synchronisations} of {many} micro-batches reduce their gradients; "
            "it is answered where the last one does, or each"
        )
    changed = _last_alone(model, many) if alone else _with_each(model, many)
    return changed.with_uncertainty("communication", 0.15).with_assumption(
        f"gradients are reduced with {'the last' if alone else 'each'} of {many} micro-batches"
    )


def _of_rank(model: StepModel, rank: int) -> Ints:
    """Return the reductions of a rank, in order."""
    acts = model.graph.activities
    rows = np.flatnonzero(mark_replicating(model) & (acts.rank == rank))
    return rows[order_by(acts.start[rows])]


def _last_alone(model: StepModel, many: int) -> StepModel:
    earlier = np.zeros(len(model.graph.start), bool)
    for rank in model.graph.ranks:
        reduces = _of_rank(model, rank)
        earlier[reduces[: len(reduces) - len(reduces) // many]] = True
    return remove_calls(model, earlier, hooks=True)


def _with_each(model: StepModel, many: int) -> StepModel:
    """Return the model in which every micro-batch reduces what the last one does, where its own
    backward pass is as far."""
    acts, facts, lengths = model.graph.activities, model.facts, model.lengths()
    alone = len(model.graph.ranks) < 2
    positions = data_positions(model)
    host = host_ns(model, mark_replicating(model), hooks=False)
    lag = launch_ns(model)
    works: list[Work] = []
    for rank in model.graph.ranks:
        lane = compute_lane(model, rank)
        reduces = _of_rank(model, rank)
        begins = begins_of_backward(model, lane).tolist()
        if len(begins) != many:
            raise UsageError(f"{NAME}: the backward passes of micro-batches are not told apart")
        place_of = {activity: k for k, activity in enumerate(lane.tolist())}
        ready = [place_of[a] - begins[-1] for a in all_waited_for(model, reduces.tolist(), lane)]
        backward = np.flatnonzero(facts.backward[lane])
        for number, begin in enumerate(begins[:-1]):
            end = int(backward[backward < begins[number + 1]][-1])
            rest = next_of(lane, int(lane[end]))
            sent = -1
            for k, (like, later) in enumerate(zip(reduces.tolist(), ready, strict=True)):
                done = int(lane[min(max(begin + later, begin), end)])
                after = (done, sent) if sent >= 0 else (done,)
                before = (rest,) if rest != done else ()
                joined = () if alone else (number, k, positions[rank].group)
                work = Work(
                    like,
                    float(lengths[like]),
                    after,
                    before,
                    collective="all_reduce",
                    in_bytes=int(facts.in_bytes[like]),
                    out_bytes=int(facts.out_bytes[like]),
                    group_size=int(facts.group_size[like]),
                    per_node=int(facts.per_node[like]),
                    joined=joined,
                    call=int(acts.call[next_of(lane, done)]),
                    lag=lag,
                )
                sent = len(acts.start) + len(works)
                works.append(work)
    calls = np.array([work.call for work in works], np.int64)
    return insert_works(delay_calls(model, calls, host), works)
