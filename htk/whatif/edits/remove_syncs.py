"""No call waits for the GPU."""

from htk.errors import UsageError
from htk.whatif.step_model import Scene

NAME = "remove_syncs"
HELP = "No synchronising call or blocking copy in the step: on."


def apply(scene: Scene, value: str) -> Scene:
    if value != "on":
        raise UsageError(f"{NAME} {value!r}: it can only be on")
    return scene.without(scene.graph.edges("sync")).said(
        "calls that waited for the GPU return at once"
    )
