"""What speed is aimed at, and how far the figures of a run are from it.

Limits in seconds are those of the machine that the page names; limits of commands are multiples of
the imports of NumPy and Arrow.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Kept = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Goal:
    """A limit, what a run measured (None: it did not), and what stands in the way of meeting it."""

    what: str
    limit: float
    unit: str
    measured: float | None
    obstacle: str = ""
    is_least: bool = False  # the limit is the least that is wanted, not the most

    @property
    def is_met(self) -> bool:
        if self.measured is None:
            return False
        return self.measured >= self.limit if self.is_least else self.measured <= self.limit

    @property
    def verdict(self) -> str:
        """Return "met", how far the figure is, or that there is none, in words."""
        if self.measured is None:
            return "not measured in this run"
        if self.is_met:
            return "met"
        far = self.limit / self.measured if self.is_least else self.measured / self.limit
        return f"{far:.1f} times off"


_IMPORTS = (
    "importing NumPy and Arrow alone is about as much as the goal; only the same question again is "
    "printed without them"
)
_COLD = "parsing, on top of the imports"
_SMALL = (
    "what a rank costs depends little on its size: parsing is a tenth of it, the rest some "
    "thousand short calls of Python, NumPy and Arrow, none of them a tenth; links and passes are "
    "made for several ranks at a time, while each rank's tables, collectives and idle time are "
    "still made one by one"
)
_LARGER = f"these ranks are eight times as large as those of the limit; {_SMALL}"
_COMMANDS = (
    ("kernel-top", "one large trace", "cold", 1.6, _COLD),
    ("kernel-top", "one large trace", "warm", 0.9, _IMPORTS),
    ("summary", "one large trace", "cold", 2.0, _COLD),
    ("summary", "one large trace", "warm", 0.9, _IMPORTS),
    ("time-breakdown", "8 ranks of 57 kB", "cold", 1.5, _SMALL),
    ("time-breakdown", "8 ranks of 57 kB", "warm", 0.9, _IMPORTS),
    ("time-breakdown", "8 small ranks", "cold", 1.5, _LARGER),
    ("time-breakdown", "8 small ranks", "warm", 0.9, _IMPORTS),
)
_WHATIF = {
    "graph": "sorting and grouping of columns that hold every activity, call and edge: one pass "
    "over memory after the other, none of them in Python",
    "graph and gate": "the whole recording is put in order once, the step is built from it, and of "
    "the one held out the lengths: some hundreds of passes over columns of every call, activity "
    "and edge, none of which takes a tenth of the time; a quarter to a half is the system's, which "
    "clears the pages that they are the first to use",
    "replay": "contention is settled in three replays of two passes over all edges each, which are "
    "more than half; the rest writes new lengths among the weights of all edges, and asks what "
    "runs beside what",
    "answer": "of another sharding, the calls that go are looked for among all, and nodes and "
    "edges are numbered anew once new collectives are put in; then what the slider takes",
    "slider": "ten passes over all edges are two fifths, two of them for both sides of an "
    "uncertainty at once; the rest are passes over all activities and weights: new lengths, how "
    "uncertain each edge is, a slower host, guards",
    "sweep of 40": "each answer replays the step four times and more, a quarter of it; the rest "
    "are some hundreds of short passes over all activities and edges",
}


def goals(kept: Kept) -> list[Goal]:
    """Return every goal with what the kept figures say of it."""
    return [
        *_of_commands(_figures(kept, "commands")),
        *_of_rows_by(_figures(kept, "rows_by")),
        *_of_ingest(_figures(kept, "ingest")),
        *_of_analyses(_figures(kept, "analyses")),
        *_of_whatifs(_figures(kept, "whatif")),
        *_of_timeline(_figures(kept, "timeline")),
        *_of_rewriting(_figures(kept, "rewriting")),
    ]


def _figures(kept: Kept, name: str) -> Any:
    return kept[name]["figures"] if name in kept else {}


def _get(figures: Any, *path: Hashable) -> float | None:
    """Return a figure by the keys that lead to it; None where one is missing."""
    for key in path:
        figures = figures.get(key) if isinstance(figures, Mapping) else None
    return None if figures is None else float(figures)


def _of_commands(figures: Mapping[str, Any]) -> list[Goal]:
    unit, rows = "× imports", figures.get("commands", [])
    by_row = {(row["question"], row["input"]): row["times_imports"] for row in rows}
    asked = [
        Goal(
            f"`{question}`, {trace}, {state}", limit, unit,
            _get(by_row, (question, trace), state), obstacle,
        )
        for question, trace, state, limit, obstacle in _COMMANDS
    ]  # fmt: skip
    start = _get(figures, "starting", "times_imports", "htk --help")
    return [*asked, Goal("`htk --help`", 0.4, unit, start)]


def _of_rows_by(figures: Mapping[str, Any]) -> list[Goal]:
    ratios = figures.get("times_kernel_top", {})
    return [Goal("dearest `kernel-top --by …`, cold", 1.3, "×", max(ratios.values(), default=None))]


def _of_ingest(figures: Mapping[str, Any]) -> list[Goal]:
    ratios: Sequence[tuple[str, tuple[str, ...], float, str]] = (
        (
            "linked, HTA's CPU over it", ("cpu_ratio_to_hta", "linked"), 40,
            "a fresh process faults in every page that it writes, and half of the rest is "
            "unpacking and parsing, which the limit below needs too",
        ),
        (
            "pure, HTA's CPU over it", ("cpu_ratio_to_hta", "raw_pure"), 8,
            "Python's JSON reader itself is most of what is left",
        ),
        ("raw, speed over the limit's (best)", ("raw_speed_of_neighbour", "best"), 0.8, ""),
    )  # fmt: skip
    return [
        Goal(what, limit, "×", _get(figures, *path), obstacle, is_least=True)
        for what, path, limit, obstacle in ratios
    ]


def _of_analyses(figures: Mapping[str, Any]) -> list[Goal]:
    by_size = figures.get("analyses", {})
    return [
        Goal(
            f"all questions of made-up tables, {events:,} events", limit, "s",
            _all_of(by_size.get(f"{events} events")),
            "the questions are passes over columns, none of them in Python; at ten million events "
            "two fifths is the system's, which clears the pages that each question is the first to "
            "use: a process that keeps freed memory has them ready for the next question, and a "
            "command asks one",
        )
        for events, limit in ((1_000_000, 1.1), (10_000_000, 16.0))
    ]  # fmt: skip


def _all_of(part: Mapping[str, Any] | None) -> float | None:
    return None if part is None else sum((part["analyses_s"] | part["shared_s"]).values())


def _of_whatifs(figures: Any) -> list[Goal]:
    return [
        Goal(
            f"{row['what']}, {row['activities']:,} activities",
            row["limit_ms"],
            "ms",
            row["ms"],
            _WHATIF.get(row["what"], ""),
        )
        for row in figures
        if "ms" in row
    ]


def _of_timeline(figures: Mapping[str, Any]) -> list[Goal]:
    size, what = "10000000 events", "timeline in one file, 10,000,000 events"
    held = "columns of every event are held, sorted and packed at once"
    return [
        Goal(what, 6, "s", _get(figures, size, "page_s"), held),
        Goal(f"{what}, made up", 1024, "MB", _get(figures, size, "process_mb"), held),
    ]


def _of_rewriting(figures: Mapping[str, Any]) -> list[Goal]:
    return [
        Goal(f"`{name}`", 5, "µs an event", _get(figures, "us_per_event", name))
        for name in _REWRITING
    ]


_REWRITING = ("htk scrub", "htk convert --to chrome")
