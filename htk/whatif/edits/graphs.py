"""Launch overhead gone, as with CUDA graphs."""

import re
from dataclasses import replace

import numpy as np

from htk.whatif.data_loading import loading_ns
from htk.whatif.edit_arguments import switched_on
from htk.whatif.step_model import StepModel

NAME = "graphs"
HELP = "Launch overhead gone, as if the step were captured in CUDA graphs: on."

OF_HOST = 0.1  # of the CPU's time, one sigma: what waits behind it is seen only now
# Gradients that stay where a graph writes them may have to be zeroed and added to: so many passes
# over them, of those that the optimizer takes (fused, or operator by operator).
_ZEROED_AND_ADDED = 5
_FUSED = re.compile("_fused_")
_OPTIMIZER_PASSES = {True: 7, False: 30}


def apply(model: StepModel, value: str) -> StepModel:
    switched_on(value, NAME)
    return (
        _with_kept_gradients(without_host(model))
        .with_uncertainty("host", OF_HOST)
        .with_assumption(
            "no CPU time is left between launches but that of loading data: a bound, as capture "
            "of the whole step would give"
        )
    )


def without_host(model: StepModel) -> StepModel:
    """Return the model whose host takes no time but to load data."""
    graph = model.graph
    of_edge, of_wrap = loading_ns(model)
    on_cpu = graph.edges("call", "host_gap", "handover")
    wraps = model.wrap_weight.copy()
    between = np.isin(graph.wrap_dst, graph.call_start)
    wraps[between] = of_wrap[between]
    weight = np.where(on_cpu, np.minimum(model.weight, of_edge), model.weight)
    return replace(model, weight=weight, wrap_weight=wraps)


def _with_kept_gradients(model: StepModel) -> StepModel:
    """Return the model in which gradients stay in place: half of what zeroing and adding take."""
    optimizer = model.facts.family.isin("optimizer")
    if not optimizer.any():
        return model
    fused = bool((optimizer & model.facts.op.where(_FUSED.search)).any())
    passes = _ZEROED_AND_ADDED / 2 / _OPTIMIZER_PASSES[fused]
    longer = model.with_lengths(optimizer, model.lengths() * (1 + passes))
    return longer.with_uncertainty("compute", 1.0).with_assumption(
        "gradients stay in memory; zeroing them and adding, as some captures do, counts half: "
        f"{100 * passes:.0f} % of the optimizer"
    )
