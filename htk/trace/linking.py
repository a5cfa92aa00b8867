"""Links of a recording's small files, made some dozen files at once before each is asked for its
own."""

from collections.abc import Sequence

from htk.derived.together import MADE_TOGETHER, links_for, made_together
from htk.trace.file import TraceFile

_FEWEST, _MOST = (
    4,
    64,
)  # files at once: of fewer it does not pay, of more their tables lie in memory


def link_together(name: str, files: Sequence[TraceFile]) -> None:
    """Make the links that a table of these files is or is made of, where they are not kept; all
    links of files whose tables are kept joined, of which most will be asked for."""
    links = set(links_for(name))
    lacking = [f for f in files if f.entry.lacks(name) and any(map(f.entry.lacks, links))]
    wanted = [link for link in MADE_TOGETHER if link in links or not files[0].keeps_small]
    for first in range(0, len(lacking), _MOST):
        batch = lacking[first : first + _MOST]
        if len(batch) < _FEWEST:
            return
        for link, tables in made_together([f.parsed_table for f in batch], wanted).items():
            for file, table in zip(batch, tables, strict=True):
                file.entry.offer(link, table)
