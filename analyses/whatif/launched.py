"""The CPU's side of activities: the calls that launch them."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from htk.analyses.whatif.scene import Scene

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def calls_of_all(scene: Scene, which: Mask) -> Ints:
    """Calls that launch nothing but these."""
    call = scene.graph.activities.call
    mine, others = np.unique(call[which & (call >= 0)]), np.unique(call[~which])
    return np.setdiff1d(mine, others)


def cpu_edges(scene: Scene, calls: Ints) -> Mask:
    """Edges that hold the length of these calls and the time that led up to each."""
    graph = scene.graph
    nodes = np.zeros(len(graph.time), bool)
    nodes[graph.call_end[calls]] = True
    own = nodes[graph.dst] & graph.edges("call")
    nodes[:] = False
    nodes[graph.call_start[calls]] = True
    return np.asarray(own | (nodes[graph.dst] & graph.edges("think")))


def unlaunched(scene: Scene, which: Mask) -> Scene:
    """These activities do not happen, nor do their launches."""
    gone = cpu_edges(scene, calls_of_all(scene, which))
    weight = np.where(gone, np.minimum(scene.weight, 0), scene.weight)
    return replace(scene, weight=weight).with_lengths(which, 0)


def delayed(scene: Scene, calls: Ints, ns: float) -> Scene:
    """The CPU needs so much more time before each of these calls."""
    graph = scene.graph
    nodes = np.zeros(len(graph.time), bool)
    nodes[graph.call_start[calls[calls >= 0]]] = True
    more = nodes[graph.dst] & graph.edges("think", "handover")
    return replace(scene, weight=scene.weight + np.where(more, round(ns), 0))


def usual_ns(scene: Scene, which: Mask) -> float:
    """What the CPU usually spends on launching one of these."""
    calls = scene.graph.activities.call
    chosen = np.unique(calls[which & (calls >= 0)])
    if not len(chosen):
        return 0.0
    weight = scene.weight[cpu_edges(scene, chosen)]
    return float(weight[weight > 0].sum()) / len(chosen)
