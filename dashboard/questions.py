"""The menu of questions: by what one wants to know, and only what the recording can answer."""

import re

from htk.analyses import ANALYSES, Added, MenuEntry
from htk.base.columns.arrow import codes_of
from htk.base.names.server_ranges import form_of
from htk.traces.trace.trace import Trace

# What one wants to know, by the folder that its questions lie in; other packages' come last.
WANTED = {
    "causes": "What should change first?",
    "time": "Where does the time go?",
    "kernels": "Are kernels and launches fast?",
    "ops": "What in the program costs it?",
    "comm": "Is communication fast and hidden?",
    "memory": "Does the memory suffice?",
    "run": "How do graphs, shards, servers do?",
    "jobs": "Why is the job slower than it could be?",
}
_OTHERS = "Others"
_BESIDES = re.compile(r":|, (?=(?:and|as|at|how|in|is|layer|of|on|one|over|who)\b)")
# What else a question needs than rows of what it reads: types of collectives, sources, ranges.
_TYPES = {
    "alltoall_balance": {"all_to_all"},
    "moe_balance": {"all_to_all"},
    "comm_matrix": {"all_to_all", "send", "recv", "send_recv"},
    "pipeline_bubble": {"send", "recv", "send_recv"},
}
_OF_SERVERS = {"iteration_gaps", "iteration_times", "serving_iterations"}
_READ_FIRST = {"link_counters": ("link_samples",), "hang": ("comm_counts", "python_stacks")}


def menu_of(trace: Trace) -> dict[str, list[tuple[str, str, str]]]:
    """Return what one may want to know, with the page, the words and the whole question of each
    that the recording can answer."""
    subjects: dict[str, list[tuple[str, str, str]]] = {words: [] for words in WANTED.values()}
    facts = _Facts(trace)
    for name, entry in ANALYSES.items():
        if isinstance(entry, Added):  # of another package, which is imported when it is asked
            of_plugin = (name, name.replace("_", " "), entry.question)
            subjects.setdefault(_OTHERS, []).append(of_plugin)
        elif facts.can_answer(name, entry):
            wanted = subjects[WANTED[entry.subject]]
            wanted.append((name, in_short(entry.question), entry.question))
    return {words: questions for words, questions in subjects.items() if questions}


def in_short(question: str) -> str:
    """Return a question without what it asks besides."""
    return _BESIDES.split(question.rstrip("?"), maxsplit=1)[0]


class _Facts:
    """What a recording holds, as far as questions differ by it; each is looked at once."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def can_answer(self, name: str, entry: MenuEntry) -> bool:
        if name == "hang" and "flight_recorder" in self._list_values("collectives", "source"):
            return True
        if name in _READ_FIRST:
            return any(map(self._has, _READ_FIRST[name]))
        if name in _TYPES and not _TYPES[name] & self._list_values("collectives", "type"):
            return False
        if name in _OF_SERVERS and not any(map(form_of, self._list_values("annotations", "name"))):
            return False
        if entry.needs:
            return all(map(self._has, entry.needs))
        return not entry.reads or any(map(self._has, entry.reads))

    def _has(self, table: str) -> bool:
        return bool(self._trace.tables[table].num_rows)

    def _list_values(self, table: str, column: str) -> set[str]:
        if not self._has(table):
            return set()
        return {str(value) for value in codes_of(self._trace.tables[table][column])[1].to_pylist()}
