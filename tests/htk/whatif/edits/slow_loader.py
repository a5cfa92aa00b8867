"""A small simulated job whose loader takes as long as a test says."""

import pytest

from htk.recording.simulate.host import SimulatedHost

JOB = {"layers": 2, "nodes": 1, "gpus_per_node": 2, "micro_batch": 2, "seq": 512}


def loading_takes(patch: pytest.MonkeyPatch, ns: int) -> None:
    think = SimulatedHost.think

    def changed(self: SimulatedHost, cost: int, why: str = "") -> None:
        think(self, ns if why == "data" else cost, why)

    patch.setattr(SimulatedHost, "think", changed)
