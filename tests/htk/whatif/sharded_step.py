"""A step of three FSDP units: gathers, gathers again, reductions."""

from tests.htk.whatif.small_step_model import Act, comm

MIB = 1 << 20


def gather(name: str, size: int, **more: object) -> Act:
    return comm(name, 10, "all_gather", in_bytes=size // 4, out_bytes=size, group=4, **more)


def reduce(name: str, size: int, after: str, **more: object) -> Act:
    return comm(name, 10, "reduce_scatter", in_bytes=size, out_bytes=size // 4, group=4,
                backward=True, waits=(after,), **more)  # fmt: skip


def fsdp(ranks: tuple[int, ...] = (0,), *, again: bool = True, marked: bool = True) -> list[Act]:
    """Units of 8, 6 and 6 MiB; all but the first are gathered again for the backward pass."""
    acts = []
    for rank in ranks:
        acts += [Act("f", 100, rank=rank), Act("b", 100, rank=rank, backward=True)]
        acts += [gather(f"g{k}", s * MIB, rank=rank) for k, s in enumerate((8, 6, 6))]
        if again:
            acts += [
                gather(f"h{k}", 6 * MIB, rank=rank, backward=marked, waits=("f",)) for k in (2, 1)
            ]
        acts += [reduce(f"r{k}", s * MIB, "b", rank=rank) for k, s in ((2, 6), (1, 6), (0, 8))]
    return acts
