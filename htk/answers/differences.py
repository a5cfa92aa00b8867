"""What changed between two recordings, as every face answers it."""

from htk.compare.items import EACH, By
from htk.compare.runs import DIFF, compare
from htk.core.analysis import coverage_of
from htk.output.result import Result
from htk.trace.coverage import coverage
from htk.trace.trace import Trace


def differences(base: Trace, new: Trace, by: tuple[By, ...] = EACH, n: int = 20) -> Result:
    """Return the changes from `base` to `new` by kind, `n` rows of each (0: all)."""
    table = compare(base.tables, new.tables, by, n)
    facts = coverage(new, ("kernels",)) | dict(coverage_of(table))
    return Result(DIFF, table, facts)
