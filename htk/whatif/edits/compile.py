"""A step compiled by torch.compile: a bound by what it can leave out.

Neighbouring elementwise kernels, norms and reductions become one, and no time of the host is left
between launches. What it does not win: products are as long as they are.
"""

import re

from htk.whatif.edit_arguments import switched_on
from htk.whatif.edits.graphs import OF_HOST, without_host
from htk.whatif.edits.replace import fuse_neighbours
from htk.whatif.step_model import StepModel

NAME = "compile"
HELP = "Compiled by torch.compile, a bound: elementwise chains are one kernel, launches free: on."

_FUSIBLE = ("elementwise", "norm", "reduction", "softmax")
_SIGMA = 0.5  # of what fusing wins
_COMPILED = re.compile("triton_")


def apply(model: StepModel, value: str) -> StepModel:
    switched_on(value, NAME)
    if any(map(_COMPILED.match, model.graph.activities.names)):
        return model.with_assumption("the recording is compiled already")
    fusible = model.facts.family.isin(*_FUSIBLE) & model.is_compute
    changed = without_host(fuse_neighbours(model, fusible))
    unsure = changed.with_uncertainty("compute", _SIGMA).with_uncertainty("host", OF_HOST)
    return unsure.with_assumption(
        f"chains of {int(fusible.sum())} elementwise kernels, norms and reductions become one "
        "kernel each, and launches take no time of the host: a bound"
    )
