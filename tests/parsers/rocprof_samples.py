"""The samples of rocprofv3: one job as JSON and as a database."""

from pathlib import Path
from typing import Any

from htk.traces.trace.trace import Trace
from tests.parsers.opened_files import kept, rows

SAMPLES = Path(__file__).parents[2] / "sample_traces"

JSON, DATABASE = SAMPLES / "rocprof_json/two_steps.json", SAMPLES / "rocpd/two_steps.db"


def differences(of: Trace, table: str, sample: Path = DATABASE) -> dict[str, tuple[Any, Any]]:
    """Return what the sample says in each column of the only row in which a changed one differs,
    and what that one says."""
    pairs = list(zip(rows(kept(sample), table), rows(of, table), strict=True))
    ((right, changed),) = [(a, b) for a, b in pairs if a != b]
    return {name: (value, changed[name]) for name, value in right.items() if value != changed[name]}
