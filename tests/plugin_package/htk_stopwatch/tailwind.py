"""An edit that leaves all as it is: wind does not reach a data centre."""

from htk.whatif.step_model import Scene

NAME = "tailwind"
HELP = "Metres per second."


def apply(scene: Scene, value: str) -> Scene:
    return scene
