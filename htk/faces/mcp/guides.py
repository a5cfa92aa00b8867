"""What an agent reads before it asks: the tables of SQL, the edits, and ways from a complaint to a
decision."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from htk.base.schema import DERIVED, TABLES, doc_of


class Guide(NamedTuple):
    """A text under an address."""

    address: str
    name: str
    meaning: str
    write: Callable[[], str]


def list_guides() -> Iterator[Guide]:
    """Yield the texts that a host may show its model."""
    yield Guide("htk://tables", "tables", "Tables and columns that `sql` reads", _list_tables)
    yield Guide("htk://edits", "edits", "Edits that `whatif` takes, by name", _list_edits)


def _list_tables() -> str:
    every: Mapping[str, pa.Schema] = {**TABLES, **DERIVED}
    return "\n\n".join(
        "\n".join([name, *(f"  {field.name}: {doc_of(field)}" for field in schema)])
        for name, schema in every.items()
    )


def _list_edits() -> str:
    from htk.whatif.edits import all_edits

    return "\n".join(f"{edit.NAME}: {edit.HELP}" for edit in all_edits())


def explain_slow_job(path: str) -> str:
    """Where does the time of a training job go, and what would help most?"""
    return f"""Find out where the time of {path} goes, and what to change first.
1. `doctor`: what was recorded; say what cannot be answered for want of it.
2. `summary`: its causes are ordered by what a step gains without them (step_gain_ns, by replay).
3. For the first two causes ask the question that the row names, and give the evidence.
4. `whatif` with the edit of the first cause. Give its interval, never the middle alone.
Give each figure with its unit, and with the coverage where that is below 90 %."""


def explain_slow_server(path: str) -> str:
    """Why is a server slow, and what would give more tokens a second?"""
    return f"""Find out what limits the server recorded in {path}.
1. `summary`: iterations, requests, tokens a second, and the causes with their gains.
2. `kernel_gap`: which kernels are far from the fastest that was measured at their size.
3. `whatif` without edits: what the server's own edits (requests, weights, KV format) would give.
Say which part of the GPU time has no measured neighbour."""


def compare_runs(base: str, new: str) -> str:
    """What changed between two recordings of a job?"""
    return f"""Compare {new} with {base}.
1. `diff`: the verdict, then the causes of the change. `unclear` is not `same`.
2. Where one rank changed: `stragglers` and `gpu_speed` of {new}.
3. Name what to look at next, and say how many steps the verdict rests on."""


def explain_hang(path: str) -> str:
    """Why did a job hang, and which rank has to be looked at?"""
    return f"""Find out why the job whose dumps and logs are in {path} hung.
1. `hang`: the verdict, the rank and the call that is missing.
2. `doctor`: which ranks left no dump. A rank that left none is not thereby the culprit.
Say what is proved and what is likely."""


PROMPTS = (explain_slow_job, explain_slow_server, compare_runs, explain_hang)
