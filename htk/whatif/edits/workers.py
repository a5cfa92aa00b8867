"""More or fewer workers of the data loader, which fetch batches side by side.

A loader that is waited for takes as long for a batch as a step does, with the workers it has; with
twice as many it takes half of that, and what is left of the wait is what the step does not hide.
"""

from dataclasses import replace

import numpy as np

from htk.base.errors import UsageError
from htk.whatif.data_loading import loading_ns
from htk.whatif.edit_arguments import parse_factor
from htk.whatif.step_model import StepModel

NAME = "workers"
HELP = "Workers of the data loader: 2x the recorded ones."


def apply(model: StepModel, value: str) -> StepModel:
    ratio = parse_factor(value, NAME)
    of_edge, of_wrap = loading_ns(model)
    waited = (of_edge.sum() + of_wrap.sum()) / len(model.graph.ranks)
    if not waited and ratio < 1:
        raise UsageError(f"{NAME}: nothing waits for data, so how long a batch takes is not seen")
    if not waited or ratio == 1:
        return model.with_assumption("nothing waits for data that more workers would fetch sooner")
    sooner = model.graph.period_ns * (1 - 1 / ratio)
    if sooner < 0:
        changed = model.add_step_time("data loading", -sooner, idle=-sooner)
    else:
        share = min(sooner / waited, 1.0)
        less = np.rint(share * of_edge).astype(np.int64)
        between = np.rint(share * of_wrap).astype(np.int64)
        weight = model.weight - less
        wraps = model.wrap_weight - between
        changed = replace(model, weight=weight, wrap_weight=wraps)
    return changed.with_uncertainty("host", 0.2).with_assumption(
        f"batches come {ratio:g} times as often as now, {waited / 1e6:.2f} ms of a step wait for "
        "them; nothing else bounds the loader (disks, cores of the host)"
    )
