"""Files and folders become sources."""

import re
from collections.abc import Sequence
from pathlib import Path

from htk.errors import TraceError
from htk.parser import HEAD_BYTES, Head, Source
from htk.streams import open_stream


def resolve(inputs: str | Path | Sequence[str | Path]) -> list[Source]:
    names = [inputs] if isinstance(inputs, str | Path) else inputs
    found = []
    for name in names:
        path = Path(name)
        if not path.exists():
            raise TraceError(f"{name}: no such file or folder")
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for f in files:
            found.append(Source(str(f), lambda f=f: f.open("rb"), f.stat().st_size, None))
    return found


def head(source: Source) -> Head:
    buffer = bytearray(HEAD_BYTES)
    done = 0
    with source.open() as file, open_stream(file) as stream:
        while done < HEAD_BYTES and (n := stream.readinto(memoryview(buffer)[done:])):
            done += n
    return Head(source.name, bytes(buffer[:done]), done < HEAD_BYTES)


def rank_from_name(name: str) -> int | None:
    m = re.search(r"(?:rank|worker)[-_]?(\d+)", Path(name).name)
    return int(m[1]) if m else None
