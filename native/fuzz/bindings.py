"""Call the compiled modules, built with sanitizers, with what no caller should give them.

    python native/fuzz/bindings.py FOLDER [--seconds 10] [--seed N]

FOLDER holds the modules that setup.py names. Any argument of any type in any order: an exception
is an answer, a crash is not. What they accept must be what their twins in Python compute.
"""

import argparse
import contextlib
import gc
import importlib.util
import random
import time
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from htk.base.columns.nesting import nest_pure
from htk.base.columns.order import ordered_pure
from htk.parsers.kineto.columns import COLUMNS, REST
from htk.physics.allocator_replay import AllocatorFigures, Before, replay_pure
from htk.quantities.graph.overlaps import Nodes, beside_pure, busy_pure
from htk.quantities.graph.replay import critical_pure, longest_pure

SCOPES = {"event": 0, "args": 1}
KINDS = {"ints": 0, "floats": 1, "nanos": 2, "ids": 3, "text": 4, "json": 5}
DESCRIPTION = [
    (2 if column.name == REST else SCOPES[column.scope], column.key, KINDS[column.kind])
    for column in COLUMNS
]
ANYTHING = (None, 0, -1, 2**31, 2**63, 2**70, 1.5, "", "x", "\0", b"", b"{", (), [], {}, object())
TIMES = (0, 1, -1, 5, 1 << 40, -(1 << 61), 1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63))


class Lent:
    def __init__(self, capsules: Any) -> None:
        self.capsules = capsules

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self.capsules


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**9)
    dice = random.Random(seed)
    print(f"seed {seed}", flush=True)
    names = ("_kineto", "_allocator", "_order", "_replay", "_overlaps")
    kineto, *others = (loaded(options.folder, name) for name in names)
    modules = dict(zip((allocate, reorder, longest, overlaps), others, strict=True))
    modules[repeats] = modules[critical] = modules[longest]
    seeds = [file.read_bytes()[2:] for file in sorted((options.folder / "corpus/parse").iterdir())]
    until, runs = time.monotonic() + options.seconds, Counter[str]()
    while time.monotonic() < until:
        for target in (parse, misuse, nest, strings, arrays, *modules):
            target(modules.get(target, kineto), dice, seeds)
            runs[target.__name__] += 1
        if runs["parse"] % 100 == 0:
            gc.collect()
    print("Done", *(f"{count} runs of {name}" for name, count in runs.items()), sep=", ")


def loaded(folder: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"htk.{name}", folder / f"{name}.abi3.so")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parse(module: Any, dice: random.Random, seeds: list[bytes]) -> None:
    """Documents in pieces; columns that outlive their parser; arguments that nobody should give."""
    text = bytearray(dice.choice(seeds))
    for _ in range(dice.randrange(4)):
        spot = dice.randrange(len(text) + 1)
        text[spot : spot + dice.randrange(3)] = dice.choice(seeds)[: dice.randrange(9)]
    parser = module.Parser(DESCRIPTION, dice.random() < 0.5)
    while text:
        size = dice.choice([1, 16, 300, 5000])
        parser.feed(bytes(text[:size]), False)
        del text[:size]
    parser.feed(b"", True)
    result = parser.result()
    lent = []
    for number in dice.sample(range(len(DESCRIPTION)), 3):
        lent.append(pa.array(Lent(parser.lend(number, False))))
        if (rows := parser.lend(number, True)) is not None:
            lent.append(pa.array(Lent(rows)))
        lent += selected(parser, number, dice, result["rows"])
    try:
        parser.feed(b"{}", True)
        assert not any(len(array) for array in lent), "columns that are lent cannot grow"
    except RuntimeError:
        pass
    del parser
    for array in lent:
        array.validate(full=True)
        assert len(array) <= result["rows"]
        array.to_pylist()


def selected(parser: Any, number: int, dice: random.Random, length: int) -> list[pa.Array]:
    """Some rows of a column must hold what the whole column has there."""
    wanted = np.array([k for k in range(length) if dice.random() < 0.4], np.int64)
    kind = DESCRIPTION[number][2]
    if dice.random() < 0.2:
        wanted = np.array([dice.randrange(-2, length + 2) for _ in range(3)], np.int64)
    target = dice.choice("ligcux") if dice.random() < 0.2 else ["l", "g", "l", "l", "u", "u"][kind]
    try:
        some = pa.array(Lent(parser.select(number, wanted, target)))
    except ValueError:
        return []
    if target in "cx" or (target == "i" or (target == "g") != (kind == 1)):
        return [some]
    values, lent_rows = pa.array(Lent(parser.lend(number, False))), parser.lend(number, True)
    rows = range(len(values)) if lent_rows is None else pa.array(Lent(lent_rows)).to_pylist()
    by_row = dict(zip(rows, values.to_pylist(), strict=True))
    expected = [by_row.get(row) for row in wanted.tolist()]
    assert all(a == b or a != a for a, b in zip(some.to_pylist(), expected, strict=True))
    return [some]


def misuse(module: Any, dice: random.Random, seeds: list[bytes]) -> None:
    def anything(most: int) -> list[Any]:
        return [dice.choice(ANYTHING) for _ in range(dice.randrange(most))]

    calls = [
        lambda: module.Parser(*anything(4)),
        lambda: module.Parser([tuple(anything(5))], True),
        lambda: module.Parser.__new__(module.Parser).feed(*anything(3)),
        lambda: module.Parser(DESCRIPTION).feed(*anything(4)),
        lambda: module.Parser(DESCRIPTION).lend(*anything(4)),
        lambda: module.Parser(DESCRIPTION).select(*anything(4)),
        lambda: module.Parser.__new__(module.Parser).select(*anything(4)),
        lambda: module.Parser.__new__(module.Parser).result(),
        lambda: module.Parser.__new__(module.Parser).lend(*anything(3)),
        lambda: module.nest(*anything(5)),
        lambda: module.json_strings(*anything(2)),
        lambda: module.join(*anything(7)),
        lambda: reinitialised(module),
    ]
    with contextlib.suppress(TypeError, ValueError, RuntimeError, OverflowError, BufferError):
        dice.choice(calls)()


def reinitialised(module: Any) -> None:
    """A parser begun anew while its columns are lent."""
    parser = module.Parser(DESCRIPTION)
    parser.feed(b'[{"ph":"X","name":"a"}]', True)
    lent = pa.array(Lent(parser.lend(2, False)))
    parser.__init__(DESCRIPTION)
    assert lent.to_pylist() == ["a"]


def nest(module: Any, dice: random.Random, seeds: list[bytes]) -> None:
    length = dice.randrange(30)
    threads = np.array([dice.randrange(3) for _ in range(length)], np.int32)
    times = TIMES if dice.random() < 0.3 else range(12)
    starts, ends = (np.array([dice.choice(times) for _ in range(length)], np.int64) for _ in "se")
    if dice.random() < 0.1:
        starts = starts[: dice.randrange(length + 1)]
    try:
        parents, depths = module.nest(threads, starts, ends)
    except ValueError:
        assert len(starts) != length
        return
    if length and max(abs(int(t)) for t in (*starts, *ends)) > 1 << 62:
        return  # no such time reaches the twin, which negates it
    expected = nest_pure(threads, starts, ends)
    assert np.frombuffer(parents, np.int32).tolist() == expected[0].tolist()
    assert np.frombuffer(depths, np.int32).tolist() == expected[1].tolist()


def strings(module: Any, dice: random.Random, seeds: list[bytes]) -> None:
    """Strings of any text; pieces of it in any order, some of which are not there."""
    text = dice.choice(seeds)[: dice.randrange(400)]
    try:
        columns = module.json_strings(text)
    except ValueError:
        return
    cuts = np.frombuffer(columns[0], np.int32)
    pieces = [text[a:b] for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)]
    assert b"".join(pieces) == text
    inside = [pieces[2 * first + 1] for first in np.frombuffer(columns[3], np.int32).tolist()]
    assert [inside[code] for code in np.frombuffer(columns[1], np.int32).tolist()] == pieces[1::2]
    numbers = np.array([dice.randrange(-1, len(pieces) + 2) for _ in range(9)], np.int32)
    try:
        joined = module.join(text, cuts, b"more", np.array([0, 4], np.int32), numbers)
    except ValueError:
        return
    assert joined == b"".join([*pieces, b"more"][number] for number in numbers.tolist())


def arrays(module: Any, dice: random.Random, seeds: list[bytes]) -> None:
    """NumPy's arrays on the heap and in files hold what is put in, wherever they are moved to."""
    folder = dice.choice(["/dev/shm", "/nowhere", "/dev/null", "x\0"])
    functions = np._core._multiarray_umath._ARRAY_API
    with contextlib.suppress(ValueError):
        module.spill_beyond(folder, dice.choice([0, 1 << 20, 1 << 40, -1]), dice.choice([0, 5000]))
    before = module.set_array_memory(functions, module.array_memory())
    try:
        kept = [np.full(dice.randrange(40_000), k) for k in range(6)]
        assert not np.zeros(dice.randrange(40_000)).any()
        for k, array in enumerate(kept):
            length = dice.randrange(80_000)
            same = min(len(array), length)
            array.resize(length, refcheck=False)
            assert (array[:same] == k).all() and not array[same:].any()
    finally:
        module.set_array_memory(functions, before)
        module.spill_beyond("", 1 << 62)
    for anything in ANYTHING:
        with contextlib.suppress(TypeError, ValueError):
            module.set_array_memory(anything, anything)


def allocate(module: Any, dice: random.Random, seeds: list[bytes]) -> None:
    """Allocations and releases in any order, of any size; segments and blocks anywhere."""

    def some(columns: int, *, most: int = 12) -> np.ndarray[Any, Any]:
        bound = dice.choice((4, 1 << 21, 1 << 25, 1 << 40, 1 << 62))
        rows = dice.randrange(most)
        return np.array(
            [dice.randrange(-bound, bound) for _ in range(columns * rows)], np.int64
        ).reshape(rows, columns)

    segments, blocks, sizes = some(3), some(4), some(1, most=60)[:, 0]
    segments[:, 1] = np.abs(segments[:, 1]) + (dice.random() < 0.9)
    blocks = blocks[: dice.randrange(1 + len(blocks))]
    blocks[:, 0] = dice.sample(range(20), len(blocks))
    if dice.random() < 0.5:  # within segments, most of them
        lie = [segments[dice.randrange(len(segments)), 0] if len(segments) else 0 for _ in blocks]
        blocks[:, 2] = lie
    keys = np.array([dice.randrange(-(dice.random() < 0.01), 20) for _ in sizes], np.int64)
    if dice.random() < 0.05:
        keys = keys[1:]
    rest = dice.choice((0, 0, 600, -5, 1 << 62))
    limits = [dice.choice((-1, 0, 1 << 21, 1 << 26, (1 << 63) - 1)) for _ in "cs"]
    try:
        figures = module.replay(rest, segments, blocks, keys, sizes, 20, *limits)
    except (ValueError, IndexError, OverflowError):
        return
    ends = [limit if limit >= 0 else None for limit in limits]
    before = Before(rest, segments, blocks)
    assert AllocatorFigures(*figures) == replay_pure(before, keys, sizes, ends[0], ends[1])


def reorder(module: Any, dice: random.Random, seeds: list[bytes]) -> None:
    rows = dice.randrange(40)
    widest = dice.choice((1, 1 << 11, 1 << 22, 1 << 33, 1 << 63))
    keys = np.array([dice.randrange(-widest, widest) for _ in range(rows)], np.int64)
    order = np.arange(rows)
    if dice.random() < 0.3:  # some rows, of which some may have no key
        order = np.array([dice.randrange(-1, rows + 2) for _ in range(rows)], np.int64)
    chosen = order.copy()
    if dice.random() < 0.1:
        keys = keys.astype(np.int32)
    try:
        module.reorder(keys, order)
    except (ValueError, IndexError):
        return
    assert order.tolist() == chosen[ordered_pure(keys[chosen])].tolist()


def longest(module: Any, dice: random.Random, seeds: list[bytes]) -> None:
    nodes, edges = dice.randrange(1, 9), dice.randrange(12)
    time_of = np.array([dice.choice(TIMES) for _ in range(nodes)], np.int64)
    ends = range(-1, nodes + 1) if dice.random() < 0.2 else range(nodes)
    src, dst = (np.array([dice.choice(ends) for _ in range(edges)], np.int64) for _ in "sd")
    weight = np.array([dice.choice(TIMES) for _ in range(edges)], np.int64)
    if dice.random() < 0.1:
        weight = weight[:-1] if dice.random() < 0.5 else weight.astype(np.int32)
    compiled, pure = time_of.copy(), time_of.copy()
    try:
        module.longest(compiled, src, dst, weight)
    except (ValueError, IndexError, OverflowError):
        return
    longest_pure(pure, src, dst, weight)
    assert compiled.tolist() == pure.tolist()


def critical(module: Any, dice: random.Random, seeds: list[bytes]) -> None:
    """Edges in the order of their heads; any others must only not crash."""
    nodes, edges = dice.randrange(1, 9), dice.randrange(20)
    time_of = np.array([dice.randrange(4) for _ in range(nodes)], np.int64)
    some = range(-1, nodes + 2)
    src, dst = (np.array([dice.choice(some) for _ in range(edges)], np.int64) for _ in "sd")
    weight = np.array([dice.randrange(3) for _ in range(edges)], np.int64)
    path, node = np.empty(nodes, np.int64), dice.choice(some)
    with contextlib.suppress(ValueError):
        module.critical(time_of, src, dst, weight, node, path)
    forward = (src >= 0) & (src < dst) & (dst < nodes)
    order = np.flatnonzero(forward)[np.argsort(dst[forward], kind="stable")]
    valid, node = (src[order], dst[order], weight[order]), max(min(node, nodes - 1), 0)
    many = module.critical(time_of, *valid, node, path)
    assert path[:many][::-1].tolist() == critical_pure(time_of, *valid, node).tolist()


def repeats(module: Any, dice: random.Random, seeds: list[bytes]) -> None:
    """Steps that follow each other: any nodes, any times, arrays that do not fit."""
    nodes, edges, wraps = dice.randrange(1, 9), dice.randrange(12), dice.randrange(4)
    some = range(-1, nodes + 1) if dice.random() < 0.2 else range(nodes)
    counts = {"pinned": nodes, "src": edges, "dst": edges, "end": dice.randrange(4)}
    counts |= {"wrap_src": wraps, "wrap_dst": wraps, "weight": edges, "wraps": wraps}
    lists = {
        name: [
            dice.choice(TIMES if name in ("pinned", "weight", "wraps") else some) for _ in range(n)
        ]
        for name, n in (counts | {"wrap_seen": wraps}).items()
    }
    arrays = {name: np.array(values, np.int64) for name, values in lists.items()}
    arrays["wrap_seen"] = np.array([dice.choice(TIMES) for _ in range(wraps)], np.int64)
    if dice.random() < 0.1:
        arrays[dice.choice(list(arrays))] = np.zeros(dice.randrange(12), np.int64)
    graph, low = tuple(arrays[name] for name in counts), dice.choice(TIMES)
    first, again = np.zeros((2, nodes), np.int64)
    with contextlib.suppress(ValueError, IndexError, OverflowError):
        more = np.array([dice.choice(TIMES) for _ in range(edges)], np.int64)
        module.repeated_beside(graph, arrays["wrap_seen"], low, 24, 1e-4, more)
    with contextlib.suppress(ValueError, IndexError, OverflowError):
        module.repeated(graph, arrays["wrap_seen"], low, 24, 1e-4, first, again)


def overlaps(module: Any, dice: random.Random, seeds: list[bytes]) -> None:
    """Spans that lie beside each other: any nodes, any times, arrays that do not fit."""
    nodes = dice.randrange(1, 9)
    time_of = np.array([dice.choice(TIMES) for _ in range(nodes)], np.int64)
    ends = range(-1, nodes + 1) if dice.random() < 0.2 else range(nodes)
    sets = []
    for _ in range(3):
        many = dice.randrange(7)
        both = [np.array([dice.choice(ends) for _ in range(many)], np.int64) for _ in range(2)]
        sets.append(Nodes(*both))
    share = np.empty(len(sets[0].start) + (dice.random() < 0.1))
    if dice.random() < 0.1:
        sets[dice.randrange(3)] = Nodes(time_of, time_of[:-1])
    try:
        lengths = module.busy(time_of, *sets[0], *sets[1], *sets[2])
        module.beside(time_of, *sets[0], *sets[1], share)
    except (ValueError, IndexError):
        return
    with np.errstate(all="ignore"):
        assert lengths == busy_pure(time_of, (sets[0], sets[1], sets[2]))
        assert share.tolist() == beside_pure(time_of, sets[0], sets[1]).tolist()


if __name__ == "__main__":
    main()
