"""An edit that leaves all as it is: wind does not reach a data centre."""

from htk.whatif.step_model import StepModel

NAME = "tailwind"
HELP = "Metres per second."


def apply(model: StepModel, value: str) -> StepModel:
    return model
