"""Launch overhead gone, as with CUDA graphs."""

from dataclasses import replace

import numpy as np

from htk.base.errors import UsageError
from htk.whatif.data_loading import loading_ns
from htk.whatif.step_model import StepModel

NAME = "graphs"
HELP = "Launch overhead gone, as if the step were captured in CUDA graphs: on."

_HOST = 0.1  # of the CPU's time, one sigma: what waits behind it is seen only now


def apply(model: StepModel, value: str) -> StepModel:
    if value != "on":
        raise UsageError(f"{NAME} {value!r}: it can only be on")
    graph = model.graph
    of_edge, of_wrap = loading_ns(model)
    on_cpu = graph.edges("call", "host_gap", "handover")
    wraps = model.wrap_weight.copy()
    between = np.isin(graph.wrap_dst, graph.call_start)
    wraps[between] = of_wrap[between]
    weight = np.where(on_cpu, np.minimum(model.weight, of_edge), model.weight)
    return (
        replace(model, weight=weight, wrap_weight=wraps)
        .with_uncertainty("host", _HOST)
        .with_assumption(
            "no CPU time is left between launches but that of loading data: a bound, as capture "
            "of the whole step would give"
        )
    )
