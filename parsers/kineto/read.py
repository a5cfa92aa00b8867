"""Ingest by the engine in use."""

from htk.base.core.engine import choose_engine
from htk.parsers.kineto.raw import ByteStream, Progress, RawEvents


def read_events(
    stream: ByteStream, *, rest: bool = False, progress: Progress | None = None
) -> RawEvents:
    """Return the events of a decompressed stream, by the engine in use.

    `rest` keeps the arguments that no column reads, in `args_rest`. `progress` is told the bytes
    read so far: stored ones where the stream knows them.
    """
    if choose_engine() == "compiled":
        from htk.parsers.kineto import native  # needs the compiled core

        return native.parse_events(stream, rest=rest, progress=progress)
    from htk.parsers.kineto import pure  # a second to import that the other engine saves

    return pure.parse_events(stream, rest=rest, progress=progress)
