"""Links of a recording's small files, made some dozen files at once before each is asked for its
own."""

from collections.abc import Sequence

from htk.derived.together import MADE_TOGETHER, made_together, needs_links
from htk.trace.file import TraceFile

_FEWEST, _MOST = (
    4,
    64,
)  # files at once: of fewer it does not pay, of more their tables lie in memory


def link_together(name: str, files: Sequence[TraceFile]) -> None:
    """Make the links that a table of these files is or is made of, where they are not kept."""
    if not needs_links(name):
        return
    lacking = [f for f in files if f.entry.lacks(name) and any(map(f.entry.lacks, MADE_TOGETHER))]
    for first in range(0, len(lacking), _MOST):
        batch = lacking[first : first + _MOST]
        if len(batch) < _FEWEST:
            return
        for link, tables in made_together([file.parsed_table for file in batch]).items():
            for file, table in zip(batch, tables, strict=True):
                file.entry.offer(link, table)
