"""The CPU's side of activities: the calls that launch them, and events on their account."""

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.types import Ints, Mask
from htk.quantities.graph.replay import NEVER
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import part_collectives

_EVENTS = re.compile(r"EventRecord|StreamWaitEvent|EventSynchronize")
_SYNCHRONISES = re.compile(r"EventSynchronize")


def calls_of_all(model: StepModel, chosen: Mask) -> Ints:
    """Return the calls that launch nothing but these."""
    call = model.graph.activities.call
    launching = np.zeros(len(model.graph.calls.start) + 1, bool)  # a last one: none
    launching[call[chosen]] = True
    launching[call[~chosen]] = False
    return np.flatnonzero(launching[:-1])


def cpu_edges(model: StepModel, calls: Ints) -> Mask:
    """Return the edges that hold the length of these calls and the time that led up to each."""
    return np.asarray(_own_edges(model, calls) | _think_edges(model, calls))


def _own_edges(model: StepModel, calls: Ints) -> Mask:
    return _mark_edges_into(model, model.graph.call_end[calls], "call")


def _think_edges(model: StepModel, calls: Ints) -> Mask:
    return _mark_edges_into(model, model.graph.call_start[calls], "host_gap")


def _mark_edges_into(model: StepModel, heads: Ints, *kinds: str) -> Mask:
    nodes = np.zeros(len(model.graph.time), bool)
    nodes[heads] = True
    return np.asarray(nodes[model.graph.dst] & model.graph.edges(*kinds))


def remove_launches(model: StepModel, chosen: Mask) -> StepModel:
    """These activities do not happen, nor do their launches."""
    gone = cpu_edges(model, calls_of_all(model, chosen))
    weight = np.where(gone, np.minimum(model.weight, 0), model.weight)
    return replace(model, weight=weight).with_lengths(chosen, 0)


def on_account(model: StepModel, chosen: Mask) -> Ints:
    """Return the calls that launch these, and those that record or await events on their account.

    What is recorded right behind a collective that stays is the end of that.
    """
    calls = model.graph.calls
    acts = model.graph.activities
    many = len(calls.start)
    # a last one: none
    gone = np.zeros(many + 1, bool)
    launching = np.zeros(many + 1, bool)
    comm = np.zeros(many + 1, bool)
    gone[calls_of_all(model, chosen)] = True
    launching[acts.call[acts.call >= 0]] = True
    comm[acts.call[(acts.call >= 0) & model.is_comm]] = True
    before, after = _find_neighbours(calls.lane, launching[:many])
    behind = before == np.arange(many) - 1
    ends = behind & comm[before] & ~gone[before]
    feeds = comm[after] & ~gone[after]
    ours = gone[after] | (gone[before] & (behind | ~feeds))
    return np.flatnonzero(gone[:many] | (calls.named(_EVENTS) & ~ends & ours))


def _find_neighbours(lane: Ints, launching: Mask) -> tuple[Ints, Ints]:
    """Return the last launching call of its thread before each, and the next one; -1: none."""
    many = len(lane)
    every = np.arange(many)
    last = np.append(-1, np.maximum.accumulate(np.where(launching, every, -1)))[:many]
    following = np.where(launching, every, many)
    following = np.append(np.minimum.accumulate(following[::-1])[::-1][1:], many)
    following = np.where(following == many, -1, following)
    alike = np.append(lane, -1)
    before = np.where((last >= 0) & (alike[last] == lane), last, -1)
    return before, np.where((following >= 0) & (alike[following] == lane), following, -1)


def _mark_firsts(model: StepModel, calls: Ints) -> Mask:
    """Return the calls that none of these comes right before, on their thread."""
    lane = model.graph.calls.lane[calls]
    follows = (calls[1:] == calls[:-1] + 1) & (lane[1:] == lane[:-1])
    return np.append(True, ~follows)[: len(calls)]


def remove_calls(model: StepModel, chosen: Mask, hooks: bool) -> StepModel:
    """These do not happen, nor what the CPU does for them; nobody waits for them.

    What a kernel of these waited for, whatever follows it on its stream waits for; what waited for
    the kernel waits for those before it.
    `hooks`: what the CPU does before it gets to the first of neighbouring calls, it still does.
    """
    if not chosen.any():
        return model
    graph = model.graph
    calls = on_account(model, chosen)
    led = calls[~_mark_firsts(model, calls)] if hooks else calls
    gone = _own_edges(model, calls) | _think_edges(model, led)
    weight = np.where(gone, np.minimum(model.weight, 0), model.weight)
    waits = graph.rows_of("event", "capacity")
    sent = chosen & model.is_comm
    of_chosen = np.isin(graph.src[waits], graph.end[sent])
    of_chosen |= np.isin(graph.dst[waits], graph.start[sent])
    weight[waits[of_chosen]] = NEVER
    weight = np.where(_mark_edges_into(model, graph.call_end[calls], "sync"), NEVER, weight)
    facts = replace(model.facts, collective=model.facts.collective.without(chosen))
    return part_collectives(replace(model, weight=weight, facts=facts), chosen).with_lengths(
        chosen, 0
    )


def drop_event_waits(model: StepModel, dropped: Mask) -> StepModel:
    """The CPU waits for no event before it launches these."""
    graph = model.graph
    launching = np.zeros(len(model.graph.calls.start), bool)
    acts = graph.activities
    chosen = np.zeros(len(graph.calls.start) + 1, bool)
    launching[acts.call[acts.call >= 0]] = True
    chosen[calls_of_all(model, dropped)] = True
    _, after = _find_neighbours(graph.calls.lane, launching)
    calls = np.flatnonzero(chosen[after] & graph.calls.named(_SYNCHRONISES))
    weight = np.where(_own_edges(model, calls), np.minimum(model.weight, 0), model.weight)
    waits = _mark_edges_into(model, graph.call_end[calls], "sync")
    return replace(model, weight=np.where(waits, NEVER, weight))


def host_ns(model: StepModel, chosen: Mask, hooks: bool) -> float:
    """Return what the CPU usually does on account of neighbours among these; 0: it launches none.

    `hooks`: with what it does before it gets to the first of them.
    """
    calls = on_account(model, chosen)
    if not len(calls):
        return 0.0
    firsts = _mark_firsts(model, calls)
    edges = _own_edges(model, calls) | _think_edges(model, calls if hooks else calls[~firsts])
    spent = _sum_edges(model, edges)
    each = spent[model.graph.call_start[calls]] + spent[model.graph.call_end[calls]]
    return float(np.median(np.bincount(np.cumsum(firsts) - 1, weights=each)))


def operator_ns(model: StepModel) -> float:
    """Return what the CPU usually spends on an operator that launches a kernel."""
    calls = calls_of_all(model, model.is_compute)
    if not len(calls):
        return 0.0
    spent = _sum_edges(model, cpu_edges(model, calls))
    return float(
        np.median(spent[model.graph.call_start[calls]] + spent[model.graph.call_end[calls]])
    )


def _sum_edges(model: StepModel, edges: Mask) -> NDArray[np.float64]:
    """ns of these edges, by the node that they lead to."""
    rows = np.flatnonzero(edges)
    ns = np.maximum(model.weight[rows], 0)
    return np.asarray(np.bincount(model.graph.dst[rows], ns, len(model.graph.time)), np.float64)


def delay_calls(model: StepModel, calls: Ints, ns: NDArray[np.floating] | float) -> StepModel:
    """The CPU needs so much more time before each of these calls; for one named twice, twice."""
    graph = model.graph
    valid = calls >= 0
    each = np.broadcast_to(ns, calls.shape)[valid]
    more = np.bincount(graph.call_start[calls[valid]], each, len(graph.time))
    led = graph.rows_of("host_gap", "handover")
    weight = model.weight.copy()
    weight[led] += np.rint(more[graph.dst[led]]).astype(np.int64)
    return replace(model, weight=weight)


def launch_ns(model: StepModel) -> float:
    """From the begin of a call to what it launches, where nothing else holds that."""
    seen = model.weight[model.graph.edges("launch") & (model.weight >= 0)]
    return float(np.median(seen)) if len(seen) else 0.0


def usual_ns(model: StepModel, activities: Mask) -> float:
    """Return what the CPU usually spends on launching one of these."""
    calls = model.graph.activities.call
    chosen = np.unique(calls[activities & (calls >= 0)])
    if not len(chosen):
        return 0.0
    weight = model.weight[cpu_edges(model, chosen)]
    return float(weight[weight > 0].sum()) / len(chosen)
