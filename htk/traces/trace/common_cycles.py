"""Which cycles of several ranks are of one time: a rank may have missed one."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from htk.traces.trace.file import TraceFile, steps_of


@dataclass
class _Cycle:
    """What some ranks recorded at one time."""

    steps: set[int] = field(default_factory=set)
    start_ns: int | None = None  # not known
    end_ns: int = 0

    @classmethod
    def from_file(cls, file: TraceFile) -> "_Cycle":
        facts = file.entry.parsed.facts
        start = facts.get("start_ns")
        end = facts.get("end_ns")
        steps = set(steps_of(file.entry))
        return (
            cls(steps)
            if start is None or end is None
            else cls(steps, int(str(start)), int(str(end)))
        )

    def overlap_ns(self, other: "_Cycle") -> int:
        if self.start_ns is None or other.start_ns is None:
            return 0
        shared = min(self.end_ns, other.end_ns) - max(self.start_ns, other.start_ns)
        return max(shared + 1, 0)  # an instant is a time too

    def likeness(self, other: "_Cycle") -> tuple[bool, int, int]:
        """Return what tells that two are of one time; equal step numbers may come again later."""
        steps = len(self.steps & other.steps)
        return steps > 0, self.overlap_ns(other), steps


def with_common_cycles(files: Iterable[TraceFile]) -> list[TraceFile]:
    """Return the files with one number for the cycles of one time, on whatever ranks.

    The ranks with most cycles count them; those of another rank are told by their steps and times.
    One that is like none of them keeps its order among its rank's.
    """
    by_rank: dict[tuple[str, int | None], list[TraceFile]] = defaultdict(list)
    for file in files:
        by_rank[file.format, file.rank].append(file)
    if all(len(recordings) < 2 for recordings in by_rank.values()):
        return [file for recordings in by_rank.values() for file in recordings]
    counted: dict[str, list[_Cycle]] = {}
    numbered: list[TraceFile] = []
    for (form, rank), recordings in sorted(
        by_rank.items(), key=lambda item: (-len(item[1]), item[0][0], item[0][1] or 0)
    ):
        cycles = [_Cycle.from_file(file) for file in recordings]
        common = counted.setdefault(form, cycles)
        one_rank = rank is None or len(common) < 2
        numbers = list(range(len(cycles))) if one_rank else _number_cycles(cycles, common)
        numbered += [replace(f, cycle=k) for f, k in zip(recordings, numbers, strict=True)]
    return numbered


def _number_cycles(cycles: list[_Cycle], common: list[_Cycle]) -> list[int]:
    """Return which of the common cycles each of a rank's is, in their order."""
    numbers: list[int] = []
    for k, cycle in enumerate(cycles):
        first = numbers[-1] + 1 if numbers else 0
        last = len(common) - (len(cycles) - k)  # so that those after it have one too
        candidates = range(first, last + 1)
        likeness = {n: cycle.likeness(common[n]) for n in candidates}
        numbers.append(max(candidates, key=lambda n: (likeness[n][:2], likeness[n][2], -n)))
    return numbers
