"""What an NCCL call moves and between whom, from the arguments that it was given."""

from htk.base.mappings import Fields
from htk.base.names.collectives import NCCL_DTYPES, dtype_bytes

_ROOTED = ("broadcast", "reduce", "gather", "scatter")


def find_call_ends(kind: str, rank: int | None) -> Fields:
    """Return what NCCL calls root is the root of a rooted call, and the peer of a message."""
    return {
        "root": rank if kind in _ROOTED else None,
        "peer": rank if kind in ("send", "recv") else None,
    }


def dtype_of(number: int | None) -> str | None:
    """NCCL's name of an element type, by its number."""
    has_name = number is not None and 0 <= number < len(NCCL_DTYPES)
    return NCCL_DTYPES[number] if has_name and number is not None else None


def bytes_of_rank(kind: str, size: int | None, ranks: int | None) -> dict[str, int | None]:
    """Bytes in and out, from the size that NCCL Inspector tells: of what one rank gives to an
    all_gather, gets from a reduce_scatter, moves in the others."""
    full = size * ranks if size is not None and ranks else None
    into = full if kind == "reduce_scatter" else None if kind == "recv" else size
    out = full if kind == "all_gather" else None if kind == "send" else size
    return {"in_bytes": into, "out_bytes": out}


def compute_call_sizes(
    kind: str, count: int | None, dtype: str | None, ranks: int | None
) -> Fields:
    """Return the elements and bytes in and out, as columns of `collectives`.

    NCCL's count is per rank in all_gather (sent), reduce_scatter (received), gather and scatter,
    per peer in all_to_all, and the whole buffer in the others.
    """
    if count is None:
        return {"dtype": dtype}
    full = count * ranks if ranks else None
    into: int | None = count
    out: int | None = count
    if kind in ("all_gather", "gather"):
        out = full
    elif kind in ("reduce_scatter", "scatter"):
        into = full
    elif kind == "all_to_all":
        into = out = full
    elif kind == "send":
        out = None
    elif kind == "recv":
        into = None
    width = dtype_bytes(dtype) if dtype else None
    return {
        "dtype": dtype,
        "in_elements": into,
        "out_elements": out,
        "in_bytes": None if into is None or width is None else into * width,
        "out_bytes": None if out is None or width is None else out * width,
    }
