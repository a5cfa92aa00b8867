"""Mutants are changes of one expression; the tests that would see them are run first."""

import ast
import json
import random
from pathlib import Path

import pytest

from bench import quality
from bench.mutants import mutants
from bench.mutation import (
    ROOT,
    Tree,
    Verdict,
    draw,
    listed,
    modules,
    nearest_tests,
    note_killed,
    summary,
)

SOURCE = b"""
LIMIT: "int" = 5

@cache(7)
def late(start: Ints, end: Ints) -> "3":
    \"\"\"1 + 1.\"\"\"
    if not start < end and end.min() != -1:
        raise ValueError("x" + str(2 + 2))
    return np.searchsorted(start, end, side="left") + min(LIMIT, f"{1 + 1}")
"""


def changed(source: bytes) -> set[tuple[str, str]]:
    return {(mutant.before, mutant.after) for mutant in mutants("m.py", source)}


def test_mistakes_are_made_where_code_computes() -> None:
    rows = changed(SOURCE)
    assert ("start < end", "start <= end") in rows
    assert ("not start < end", "(start < end)") in rows
    assert ("end.min() != -1", "end.min() == -1") in rows
    assert ("end.min", "end.max") in rows
    assert ("-1", "(1)") in rows and ("5", "6") in rows
    assert ('"left"', "'right'") in rows
    assert any("max(LIMIT" in after and before.startswith("min(") for before, after in rows)
    of_texts = {("7", "8"), ("3", "4"), ("2", "3"), ("2 + 2", "(2 - 2)"), ("1 + 1", "(1 - 1)")}
    assert not rows & of_texts, "no decorators, types, errors or texts"


def test_arguments_are_swapped_where_that_is_a_mistake() -> None:
    assert changed(b"x = f(a, b)") == {("f(a, b)", "f(b, a)")}
    assert changed(b"x = np.minimum(a, b)") == {("np.minimum", "np.maximum")}
    assert changed(b"x = math.hypot(a.x, b.x)") == changed(b"x = np.array_equal(a, b)") == set()


def test_each_mutant_is_one_expression_of_code_that_can_be_read() -> None:
    for path in random.Random(3).sample(modules(), 10):
        source = (ROOT / path).read_bytes()
        plain = ast.dump(ast.parse(source))
        for mutant in random.Random(4).sample(every := mutants(path, source), min(len(every), 9)):
            assert source[mutant.start : mutant.end].decode() == mutant.before
            assert ast.dump(ast.parse(mutant.apply(source))) != plain


def test_a_seed_draws_the_same_mutants() -> None:
    prefixes = ("htk/base/columns",)
    assert draw(5, 1, prefixes) == draw(5, 1, prefixes) != draw(5, 2, prefixes)


def test_what_is_judged_equivalent_has_a_reason_and_is_not_drawn() -> None:
    """Where the code has changed since, an entry says nothing: the mutant is judged anew."""
    entries = listed()
    keys = {tuple(entry[name] for name in ("path", "code", "before", "after")) for entry in entries}
    assert len(keys) == len(entries) and all(len(entry["why"]) > 20 for entry in entries)
    paths = tuple({entry["path"] for entry in entries})
    assert not keys & {mutant.key for mutant in draw(10**6, 1, paths)}


@pytest.mark.nightly  # every file of code and tests is parsed
def test_the_nearest_tests_come_first() -> None:
    near, wider = nearest_tests("htk/quantities/derived/waits.py")
    assert near[0] == "tests/htk/quantities/derived/test_waits.py"
    assert "tests/htk/quantities/derived/test_match.py" in wider
    assert len(wider) == len(set(wider) - set(near)) == 10


@pytest.mark.nightly
def test_a_mistake_is_killed_by_a_test_that_passes_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree.__new__(Tree)
    tree.root, tree.limit = tmp_path, 60
    tree._passing, tree.broken = {}, set()
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    source = b"def larger(a, b):\n    return a if a > b else b\n"
    (tmp_path / "m.py").write_bytes(source)
    (tmp_path / "test_m.py").write_text(
        "import m\ndef test_it():\n    assert m.larger(1, 2) == 2\n"
    )
    (tmp_path / "test_broken.py").write_text("def test_broken():\n    assert False\n")
    verdicts = {
        mutant.after: tree.judge(mutant, ("test_m.py",)) for mutant in mutants("m.py", source)
    }
    assert {after: v.outcome for after, v in verdicts.items()} == {
        "a >= b": "survived",  # the same answer
        "(b if a > b else a)": "killed",
    }
    assert verdicts["(b if a > b else a)"].by == "test_m.py::test_it"
    assert (tmp_path / "m.py").read_bytes() == source
    (mutant, *_) = mutants("m.py", source)
    assert tree.judge(mutant, ("test_broken.py",)).outcome == "survived", "it fails without too"
    after = {
        m.after: tree.judge(m, ("test_broken.py", "test_m.py")) for m in mutants("m.py", source)
    }
    assert after["(b if a > b else a)"].by == "test_m.py::test_it", "and hides no other"


def test_figures_by_package() -> None:
    first, second = draw(2, 1, ("htk/base/columns",))
    figures = summary([Verdict(first, "killed", "t"), Verdict(second, "survived")], 1)
    assert figures["packages"] == {"columns": {"killed": 1, "survived": 1}}
    assert [s["before"] for s in figures["survivors"]] == [second.before]


def test_survivors_that_are_killed_later_are_marked_and_counted_apart(tmp_path: Path) -> None:
    """The figure stays that of the draw."""
    several = draw(4, 11, ("htk/base/columns",))
    verdicts = [Verdict(m, o) for m, o in zip(several, ["killed"] + 3 * ["survived"], strict=True)]
    file = tmp_path / "mutation.json"
    file.write_text(json.dumps(summary(verdicts, 11)))
    note_killed(file, [Verdict(several[2], "killed"), Verdict(several[3], "survived")])
    lines = quality.mutation(json.loads(file.read_text())).splitlines()
    (headline,) = (line for line in lines if "of 4 killed" in line)
    assert headline.startswith("**1 of 4 killed (25 %)**") and "kill 1 of the survivors" in headline
    marked = [line for line in lines if line.endswith("| killed since |")]
    assert len(marked) == 1 and f"`{several[2].path}`" in marked[0]
