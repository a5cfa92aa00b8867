"""The clock of a GPU that is slower than the others, by hand."""

import pytest

from htk.verdicts.causes.clocks import describe_lower_clock
from htk.verdicts.causes.recorded import CauseEvidence
from tests.tables import make


def evidence(*clocks: float) -> CauseEvidence:
    """A kernel on each rank, and counters of its GPU."""
    where = [{"rank": rank, "device": 0} for rank in range(len(clocks))]
    kernels = [{**at, "kind": "compute", "start_ns": 10, "end_ns": 20} for at in where]
    at_zero = {"process": "GPU 0 Counters", "series": "", "time_ns": 0}
    counters = [
        {**at_zero, "rank": rank, "name": name, "value": value}
        for rank, clock in enumerate(clocks)
        for name, value in (("SM Clock (MHz)", clock), ("Power (W)", 412.0))
    ]
    tables = {"kernels": make("kernels", kernels), "counters": make("counters", counters)}
    return CauseEvidence(tables, None)


@pytest.mark.parametrize(
    ("clocks", "words"),
    [
        ((1_755, 1_230, 1_755), "its clock fell to 1,230 MHz at 412 W (the others': 1,755 MHz)"),
        ((1_755, 1_750, 1_755), ""),  # as good as theirs
        ((1_755,), ""),  # nobody to compare with
        ((), ""),
    ],
)
def test_a_clock_below_the_others(clocks: tuple[float, ...], words: str) -> None:
    assert describe_lower_clock(evidence(*clocks), 1) == words
