"""The CPU side is faster: its calls and the time between them."""

from dataclasses import replace

import numpy as np

from htk.whatif.edit_arguments import parse_factor
from htk.whatif.step_model import StepModel

NAME = "host"
HELP = "The CPU is so many times faster: 2x."


def apply(model: StepModel, value: str) -> StepModel:
    times = parse_factor(value, NAME)
    changed = speed_host_up(model, times)
    return changed.with_uncertainty("host", 0.1).with_assumption(
        f"every CPU call and the time between them is {times:g} times faster; the GPU is as it was"
    )


def speed_host_up(model: StepModel, times: float) -> StepModel:
    """Return the step with CPU calls, and the time between them, so many times faster."""
    graph = model.graph
    on_cpu = graph.edges("call", "host_gap", "handover")
    weight = np.where(on_cpu, np.rint(model.weight / times), model.weight).astype(np.int64)
    wraps = model.wrap_weight.copy()
    between = np.isin(graph.wrap_dst, graph.call_start)
    wraps[between] = np.rint(wraps[between] / times)
    return replace(model, weight=weight, wrap_weight=wraps)
