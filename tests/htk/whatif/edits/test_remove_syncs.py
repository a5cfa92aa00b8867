"""No call waits for the GPU: steps overlap, but not beyond what they depend on."""

from dataclasses import replace

import numpy as np

from htk.whatif.edits import remove_syncs
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import link_nodes
from tests.htk.whatif.small_step_model import Act, comm, period, small_model


def free_running(model: StepModel) -> StepModel:
    """The step repeats itself as its streams and its thread allow, not as a whole."""
    graph, acts = model.graph, model.graph.activities
    whole = graph.period_ns
    lanes = np.unique(acts.lane).tolist()
    own = [np.flatnonzero(acts.lane == lane) for lane in lanes]
    lasts = np.array([rows[np.argmax(acts.end[rows])] for rows in own])
    firsts = np.array([rows[np.argmin(acts.start[rows])] for rows in own])
    tails, heads = graph.end[lasts], graph.start[firsts]
    zero = np.zeros(len(lanes), np.int64)
    repeated = replace(
        graph,
        wrap_src=tails,
        wrap_dst=heads,
        wrap_weight=zero,
        wrap_seen=graph.time[tails] - whole,
    )
    last = int(np.argmax(acts.end))  # a call waits for it
    blocked = replace(model, graph=repeated, wrap_weight=zero)
    waiting = graph.call_end[acts.call[last : last + 1]]
    return link_nodes(blocked, graph.end[last : last + 1], waiting, "sync")


def step(optimizer: str) -> list[Act]:
    """Gather 50, compute 100 with it, reduce 60, and an optimizer of 20 for those gradients."""
    return [
        comm("g", 50, "all_gather", lane="gathers", group=2, out_bytes=1 << 20),
        Act("a", 100, waits=("g",)),
        comm("r", 60, "reduce_scatter", lane="reduces", waits=("a",), group=2, in_bytes=1 << 20),
        Act("o", 20, waits=("r",), family=optimizer),
        Act("log", 30),
    ]


def test_the_next_step_gathers_what_the_optimizer_has_updated() -> None:
    # g 0 to 50, a to 150, r to 210, o to 230, log to 260; the next g may start at 230
    model = free_running(small_model(step("optimizer")))
    assert period(remove_syncs.apply(model, "on")) == 230


def test_without_it_in_the_names_the_whole_stream_is_waited_for() -> None:
    model = free_running(small_model(step("gemm")))
    assert period(remove_syncs.apply(model, "on")) == 260


def test_a_communicator_takes_its_collectives_in_turn() -> None:
    """Nothing is gathered: the first reduction still follows the last of the step before."""
    ddp = [
        Act("a", 10),
        comm("r", 80, "all_reduce", lane="first", waits=("a",), group=2, in_bytes=1 << 20),
        comm("s", 80, "all_reduce", lane="second", waits=("r",), group=2, in_bytes=1 << 20),
    ]
    model = free_running(small_model(ddp))
    assert period(remove_syncs.apply(model, "on")) == 160
