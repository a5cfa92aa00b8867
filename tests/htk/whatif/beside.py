"""Steps in which some of the communication has compute beside it."""

from htk.whatif.step_model import StepModel
from tests.htk.whatif.small_step_model import Act, comm, small_model


def every_other_beside() -> StepModel:
    """16 gathers of 1000; every other one has compute beside it and takes a tenth longer."""
    step = []
    for k in range(16):
        beside = k % 2 == 0
        length = 1100 if beside else 1000
        before = (f"a{k - 1}",) if k else ()
        step.append(Act(f"i{k}", 10, waits=before))
        step.append(comm(f"g{k}", length, "all_gather", waits=(f"i{k}",), in_bytes=1 << 20))
        waits = (f"i{k}",) if beside else (f"g{k}",)
        step.append(Act(f"a{k}", 1100, waits=waits))
    return small_model(step)
