"""No call waits for the GPU."""

from htk.errors import UsageError
from htk.whatif.step_model import StepModel

NAME = "remove_syncs"
HELP = "No synchronising call or blocking copy in the step: on."


def apply(scene: StepModel, value: str) -> StepModel:
    if value != "on":
        raise UsageError(f"{NAME} {value!r}: it can only be on")
    return scene.without(scene.graph.edges("sync")).with_assumption(
        "calls that waited for the GPU return at once"
    )
