"""Launch overhead gone, as with CUDA graphs."""

from dataclasses import replace

import numpy as np

from htk.errors import UsageError
from htk.whatif.step_model import StepModel

NAME = "graphs"
HELP = "Launch overhead gone, as if the step were captured in CUDA graphs: on."


def apply(scene: StepModel, value: str) -> StepModel:
    if value != "on":
        raise UsageError(f"{NAME} {value!r}: it can only be on")
    graph = scene.graph
    on_cpu = graph.edges("call", "host_gap", "handover")
    wraps = scene.wrap_weight.copy()
    wraps[np.isin(graph.wrap_dst, graph.call_start)] = 0
    weight = np.where(on_cpu, np.minimum(scene.weight, 0), scene.weight)
    return replace(scene, weight=weight, wrap_weight=wraps).with_assumption(
        "no CPU time is left between launches: a bound, as capture of the whole step would give"
    )
