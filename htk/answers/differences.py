"""What changed between two recordings, as every face answers it."""

from htk.answers.output.result import Result
from htk.base.core.analysis import coverage_of
from htk.traces.compare.items import EACH, By
from htk.traces.compare.runs import DIFF, compare
from htk.traces.compare.tree_diff import DIFF_TREE, compare_trees
from htk.traces.trace.coverage import coverage
from htk.traces.trace.trace import Trace


def differences(base: Trace, new: Trace, by: tuple[By, ...] = EACH, n: int = 20) -> Result:
    """Return the changes from `base` to `new` by kind, `n` rows of each (0: all)."""
    table = compare(base.tables, new.tables, by, n)
    facts = coverage(new, ("kernels",)) | dict(coverage_of(table))
    return Result(DIFF, table, facts)


def tree_differences(base: Trace, new: Trace, n: int = 20) -> Result:
    """Return where the call trees of one step of each differ, `n` places (0: all)."""
    for trace in (base, new):
        trace.need("cpu_ops")
    table = compare_trees(base.tables, new.tables, n)
    facts = coverage(new, ("cpu_ops", "kernels")) | dict(coverage_of(table))
    return Result(DIFF_TREE, table, facts)
