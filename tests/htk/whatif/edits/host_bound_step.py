"""A small step whose launches take time on the host."""

from dataclasses import replace

import numpy as np

from htk.whatif.step_model import StepModel
from tests.htk.whatif.small_step_model import Act, small_model

ON_HOST = ("call", "host_gap", "handover")


def host_bound_step() -> StepModel:
    """Three kernels of 10; a call takes 21, 101 pass between calls and 1001 between steps."""
    model = small_model([Act(name, 10) for name in "abc"])
    graph, weight, wraps = model.graph, model.weight.copy(), model.wrap_weight.copy()
    weight[graph.edges("call")] = 21
    weight[graph.edges("host_gap")] = 101
    wraps[np.isin(graph.wrap_dst, graph.call_start)] = 1001
    return replace(model, weight=weight, wrap_weight=wraps)
