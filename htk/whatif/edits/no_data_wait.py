"""No thread waits for data: loading takes no time on the threads that launch."""

from dataclasses import replace

from htk.base.errors import UsageError
from htk.whatif.data_loading import loading_ns
from htk.whatif.edit_arguments import switched_on
from htk.whatif.step_model import StepModel

NAME = "no_data_wait"
HELP = "No thread that launches waits for its data loader: on."


def apply(model: StepModel, value: str) -> StepModel:
    switched_on(value, NAME)
    of_edge, of_wrap = loading_ns(model)
    gone = int(of_edge.sum() + of_wrap.sum())
    if not gone:
        raise UsageError(f"{NAME}: no loading of data is seen on a thread that launches")
    faster = replace(model, weight=model.weight - of_edge, wrap_weight=model.wrap_weight - of_wrap)
    ranks = len(model.graph.ranks)
    return faster.with_uncertainty("host", 0.1).with_assumption(
        f"loading data takes no time of a rank's step, {gone / ranks / 1e6:.2f} ms now; what "
        "copies it to the GPU still does"
    )
