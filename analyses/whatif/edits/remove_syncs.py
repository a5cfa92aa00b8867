"""No call waits for the GPU."""

from htk.analyses.whatif.scene import Scene
from htk.errors import UsageError

NAME = "remove_syncs"
HELP = "No synchronising call or blocking copy in the step: on."


def apply(scene: Scene, value: str) -> Scene:
    if value != "on":
        raise UsageError(f"{NAME} {value!r}: it can only be on")
    return scene.without(scene.graph.edges("sync")).said(
        "calls that waited for the GPU return at once"
    )
