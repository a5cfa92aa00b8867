"""Tables made of a recording's small files, some dozen files at once before each is asked for its
own."""

from collections.abc import Sequence

from htk.derived.together import LINKS, links_for, made_together
from htk.trace.file import TraceFile

# Files at once: of fewer it does not pay, of more their tables lie in memory.
_FEWEST, _MOST = 4, 64


def link_together(name: str, files: Sequence[TraceFile]) -> None:
    """Make the links that a table of these files is or is made of, where they are not kept; all
    links of files whose tables are kept joined, of which most will be asked for."""
    asked = set(links_for(name))
    lacking = [f for f in files if f.entry.lacks(name) and any(map(f.entry.lacks, asked))]
    likely = asked if not files or files[0].keeps_small else asked | LINKS.keys()
    for first in range(0, len(lacking), _MOST):
        batch = lacking[first : first + _MOST]
        if len(batch) < _FEWEST:
            return
        lacks = {n for n in likely if any(f.entry.lacks(n) for f in batch)}
        # Links are made of links as these are made, with threads numbered through all files.
        wanted = lacks | {link for n in lacks & LINKS.keys() for link in links_for(n)}
        for table_name, tables in made_together([f.own_or_empty for f in batch], wanted).items():
            for file, table in zip(batch, tables, strict=True):
                file.entry.offer(table_name, table)
