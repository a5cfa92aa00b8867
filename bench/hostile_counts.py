"""What does a number that a file states cost, when it is absurd?

    python -m bench.hostile_counts [--seed N] [--cases 200 | --all] [-v]

In a copy of a shipped sample, one integer (every kind of field: JSON keys, words of log lines, keys
of pickles, columns of SQLite and Parquet, fields of protobufs) becomes 0, -1, 2**20, 2**31,
2**63 - 1 or 10**300, in one place or all; with --all, each integer of each format becomes each.
A process of its own then opens the file and asks for the summary, the kernels, the hang and the
communication, with 500 MB and 10 seconds of CPU time more than an empty one. Whatever ends it, an
internal error included, is listed; exit code 1.
"""

import argparse
import gzip
import json
import os
import pickle
import random
import re
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import parquet as pq

from bench.protobuf import decode_message, encode_message

SAMPLES = Path(__file__).parents[1] / "sample_traces"
VALUES = (0, -1, 2**20, 2**31, 2**63 - 1, 10**300)  # the third is the most that is believed
MOST_BYTES = 500 << 20
MOST_SECONDS = 10
LARGEST = 200_000  # of a sample: a megabyte of text is the limit of the promise
_WHOLE = re.compile(rb"(?<![\w.+-])-?\d+(?![\w.])")
_LEFT_OUT = (".py", ".md")
_PROTOBUFS = (".pb", ".pftrace")


class Case(NamedTuple):
    """One number of one sample, and what it becomes."""

    file: Path
    field: str
    value: int
    everywhere: bool


class Outcome(NamedTuple):
    """How the reading of one case ended."""

    case: Case
    why: str  # empty: as it should


def list_samples() -> list[Path]:
    """Return the samples whose integers can be replaced."""
    files = (path for path in sorted(SAMPLES.rglob("*")) if path.is_file())
    readable = [f for f in files if f.suffix not in _LEFT_OUT and "damaged" not in f.parts]
    return [f for f in readable if 0 < f.stat().st_size <= LARGEST]


def draw_cases(seed: int, count: int) -> list[Case]:
    """Return as many cases, samples and kinds of field drawn alike."""
    dice = random.Random(seed)
    fields = {file: sorted(fields_of(file)) for file in list_samples()}
    files = [file for file, names in fields.items() if names]
    cases = []
    for _ in range(count):
        file = dice.choice(files)
        field = dice.choice(fields[file])
        cases.append(Case(file, field, dice.choice(VALUES), dice.random() < 0.5))
    return cases


def list_cases() -> Iterator[Case]:
    """Yield each value for each kind of field of each format, everywhere in the first sample."""
    seen = set()
    for file in list_samples():
        format_name = file.relative_to(SAMPLES).parts[0]
        for field in sorted(fields_of(file)):
            if (format_name, field) not in seen:
                yield from (Case(file, field, value, True) for value in VALUES)
            seen.add((format_name, field))


def fields_of(file: Path) -> set[str]:
    """Return the names of the integers in a sample."""
    if is_sqlite(file):
        return set(_sqlite_columns(file))
    if file.suffix == ".parquet":
        return {f.name for f in pq.read_schema(file) if pa.types.is_integer(f.type)}
    if file.suffix in _PROTOBUFS:
        return {path for path, _ in walk_integers(decode_message(file.read_bytes()))}
    if file.suffix == ".pickle":
        return {key for key, _ in walk_integers(pickle.loads(file.read_bytes()))}
    text = read_text(file)
    try:
        return {key for key, _ in walk_integers(json.loads(text))}
    except ValueError:
        return {f"word {k}" for k in range(min(60, len(_WHOLE.findall(text))))}


def walk_integers(value: Any, name: str = "") -> Iterator[tuple[str, Callable[[int], None]]]:
    """Yield the key of each integer, and what sets it."""
    places = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(places):
        field = str(key) if isinstance(key, str) else name
        if isinstance(item, int) and not isinstance(item, bool):
            yield field, lambda number, key=key: value.__setitem__(key, number)
        elif isinstance(item, list | dict):
            yield from walk_integers(item, field)


def read_text(file: Path) -> bytes:
    return gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()


def is_sqlite(file: Path) -> bool:
    return file.read_bytes()[:6] == b"SQLite"


def _sqlite_columns(file: Path) -> Iterator[str]:
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
        tables = database.execute("select name from sqlite_master where type = 'table'")
        for (table,) in tables.fetchall():
            for column in database.execute(f"pragma table_info('{table}')").fetchall():
                if "INT" in column[2].upper():
                    yield f"{table}.{column[1]}"


def write_case(case: Case, folder: Path) -> Path:
    """Write the sample with the number in it."""
    target = folder / case.file.name
    if is_sqlite(case.file):
        _write_sqlite(case, target)
    elif case.file.suffix == ".pickle":
        value = pickle.loads(case.file.read_bytes())
        _set_integers(value, case)
        target.write_bytes(pickle.dumps(value, protocol=2))
    elif case.file.suffix in _PROTOBUFS:
        fields = decode_message(case.file.read_bytes())
        _set_integers(fields, case)
        target.write_bytes(encode_message(fields))
    elif case.file.suffix == ".parquet":
        _write_parquet(case, target)
    else:
        text = _replaced_text(case)
        target.write_bytes(gzip.compress(text) if case.file.suffix == ".gz" else text)
    return target


def _set_integers(value: Any, case: Case) -> None:
    for field, set_number in walk_integers(value):
        if field == case.field:
            set_number(case.value)
            if not case.everywhere:
                return


def _replaced_text(case: Case) -> bytes:
    text = read_text(case.file)
    if not case.field.startswith("word "):
        value = json.loads(text)
        _set_integers(value, case)
        return json.dumps(value).encode()
    number = str(case.value).encode()
    match = list(_WHOLE.finditer(text))[int(case.field.split()[1])]
    if case.everywhere:
        return re.sub(rb"(?<![\w.+-])" + re.escape(match[0]) + rb"(?![\w.])", number, text)
    return text[: match.start()] + number + text[match.end() :]


def _write_sqlite(case: Case, target: Path) -> None:
    shutil.copy(case.file, target)
    table, column = case.field.split(".")
    number: int | str = case.value if abs(case.value) < 2**63 else str(case.value)
    where = "" if case.everywhere else f" where rowid = (select min(rowid) from '{table}')"
    with sqlite3.connect(target) as database:
        database.execute(f"update or ignore '{table}' set '{column}' = ?{where}", (number,))


def _write_parquet(case: Case, target: Path) -> None:
    table = pq.read_table(case.file)
    index = table.column_names.index(case.field)
    number = min(case.value, 2**63 - 1)
    column = table.column(index).cast(pa.int64()).to_pylist()
    rows = len(column) if case.everywhere else 1
    column = pa.array([number] * rows + column[rows:], pa.int64())
    pq.write_table(table.set_column(index, case.field, column), target)


def ask_questions(path: Path) -> None:
    """Open the file and ask what reads most tables. Raises what is no answer and no refusal."""
    from htk.answers.ask import ask_trace
    from htk.base.errors import HtkError
    from htk.traces.trace.opening import OpenOptions, open_trace
    from htk.verdicts.overview.doctor import check_recording
    from htk.verdicts.overview.summary import summarise_trace

    try:
        trace = open_trace(path, OpenOptions(cache=False))
    except HtkError as error:
        refuse_internal_error(error)
        return
    for failed, why in trace.failed:
        refuse_internal_error(f"{failed}: {why}")
    questions: list[Callable[[], Any]] = [
        lambda: check_recording(trace),
        lambda: summarise_trace(trace),
    ]
    for name in ("kernel_top", "hang", "comm_summary", "slow_links", "time_breakdown"):
        questions.append(lambda name=name: ask_trace(trace, name))
    for question in questions:
        try:
            question()
        except HtkError as error:
            refuse_internal_error(error)


def refuse_internal_error(report: object) -> None:
    if "internal error" in str(report):
        raise RuntimeError(str(report))


def run_case(case: Case) -> Outcome:
    """Return how a process with limits ends that reads the case."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_case(case, Path(folder))
        report = Path(folder) / "report"
        child = os.fork()
        if child == 0:
            _read_with_limits(path, report)
        _, status, usage = os.wait4(child, 0)
        return Outcome(case, _explain_end(status, usage, report))


def _read_with_limits(path: Path, report: Path) -> None:
    """Read the file in this process, which ends here; what went wrong is written to `report`."""
    code = 0
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        os.dup2(devnull, 2)
        used = resource.getrusage(resource.RUSAGE_SELF)
        spent = int(used.ru_utime + used.ru_stime) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (spent + MOST_SECONDS, spent + MOST_SECONDS))
        resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + 3 * MOST_BYTES,) * 2)
        signal.alarm(20 * MOST_SECONDS)
        ask_questions(path)
    except BaseException:
        report.write_text(traceback.format_exc()[-1500:])
        code = 1
    os._exit(code)


def _data_bytes() -> int:
    """Return the memory that this process has asked for, in bytes."""
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmData:")[1].split()[0]) << 10


def _explain_end(status: int, usage: resource.struct_rusage, report: Path) -> str:
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    if os.WEXITSTATUS(status):
        return report.read_text() if report.exists() else f"exit code {os.WEXITSTATUS(status)}"
    above = (usage.ru_maxrss << 10) - (_own_peak() << 10)
    return f"{above >> 20} MB" if above > MOST_BYTES else ""


def _own_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def import_everything() -> None:
    """Import what questions need once, so that each case's process need not."""
    ask_questions(SAMPLES / "kineto/rank0.pt.trace.json")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("-v", "--verbose", action="store_true", help="name every case")
    parser.add_argument("--all", action="store_true", help="every field and value")
    arguments = parser.parse_args()
    import_everything()
    cases = list(list_cases()) if arguments.all else draw_cases(arguments.seed, arguments.cases)
    bad = 0
    for case in cases:
        outcome = run_case(case)
        bad += bool(outcome.why)
        if outcome.why or arguments.verbose:
            where = f"{case.file.relative_to(SAMPLES)} {case.field} = {case.value:.3g}"
            print(where, "everywhere" if case.everywhere else "", outcome.why or "ok", flush=True)
    print(f"seed {arguments.seed}: {bad} of {len(cases)} cases cost too much, or end badly")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
