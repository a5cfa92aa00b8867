"""Which files are of one job: two jobs in one folder are two recordings.

A rank runs once in a job at a time, a job has one world size, and a group is one on all its ranks.
A rank of a server is one process from the capture of its graphs to its last iteration. Files that
contradict this are of several jobs. What they say tells which file is whose: the
scheduler's job, folders, what names begin with, hosts, process ids, world sizes.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pyarrow as pa

from htk.base.columns.arrow import match_texts, read_booleans
from htk.base.core.humanize import pluralize_count
from htk.base.errors import TraceError, UsageError
from htk.base.names.server_ranges import is_server_mark
from htk.traces.trace.cycles import POLLED, is_copy, overlap_in_time, start_of
from htk.traces.trace.file import FileRecording
from htk.traces.trace.ranks import RankedFile

_ONE_WORLD = ("kineto",)  # elsewhere it may be the size of a communicator
_RANK_WORD = re.compile(r"(?i)(?:global[-_ ]?)?(?<![a-z])rank[-_ =]?\d")
_BY_TORCH = re.compile(r"^(?P<host>.+)_(?P<pid>\d+)\.\d{10,}\.pt\.trace\.json")
_RUN_IDS = ("slurm_job_id", "slurm_array_task_id", "torchrun_id")
_JOB_NAMES = ("PT_PROFILER_JOB_NAME",)  # of Kineto's versions
_MIXED = (
    "{} are of one rank and one time, and nothing in the files tells whose the others are; "
    "give the files of one job alone"
)
_SHOWN = 8  # jobs that an error names


_Labels = list[str | None]  # of each file: what it says; None: nothing


def choose_job(files: list[RankedFile], wanted: str | None) -> list[RankedFile]:
    """Return the files of the wanted job; without one, those of the only job there is."""
    jobs = jobs_of(files)
    if wanted is None:
        if len(jobs) > 1:
            first = next(iter(jobs))
            raise TraceError(f"files of {_list_jobs(jobs)}; choose one with --job {first}")
        return files
    if len(jobs) < 2:
        raise UsageError(f"--job {wanted}: the files are of one job; leave --job out")
    alike = [wanted] if wanted in jobs else [name for name in jobs if wanted in name]
    if len(alike) != 1:
        raise UsageError(f"--job {wanted}: there are files of {_list_jobs(jobs)}")
    return jobs[alike[0]]


def _name_first(files: list[RankedFile]) -> str:
    more = ", …" if len(files) > 1 else ""
    return f"{files[0].recording.source.file_name}{more}"


def _list_jobs(jobs: dict[str, list[RankedFile]]) -> str:
    """Return how many jobs there are, and what each is called and has."""
    listed = [
        f"{name} ({pluralize_count(len(files), 'file')}: {_name_first(files)})"
        for name, files in list(jobs.items())[:_SHOWN]
    ]
    more = ", …" if len(jobs) > _SHOWN else ""
    return f"{len(jobs)} jobs: {', '.join(listed)}{more}"


def jobs_of(files: list[RankedFile]) -> dict[str, list[RankedFile]]:
    """Return the files of each job by its name; all under one name where they may be of one job.

    Files of other formats, of which nothing says whose they are, are every job's. Two processes of
    the only rank are kept, and said; of several ranks the wrong ones would be put together.
    """
    formats = _contradicting_formats(files)
    own = [k for k, file in enumerate(files) if file.recording.parser in (formats or _ONE_WORLD)]
    divisions = []
    for labels_of in _LABELS if formats else _OF_STRANGERS:
        for labels in labels_of(files):
            parts = _by_label(files, own, labels)
            if len(parts) < 2:
                continue
            if formats:
                tells_apart = not any(map(_contradicting_formats, parts))
            else:
                tells_apart = _are_strangers(parts, is_scheduled=labels_of is _scheduled_as)
            if tells_apart:
                divisions.append(labels)
    if formats and not divisions and len({files[k].rank for k in own}) > 1:
        raise TraceError(_MIXED.format(_name_clash([files[k] for k in own])))
    if not divisions:
        return {"": files}
    labels = min(divisions, key=lambda labels: len({labels[k] for k in own}))
    names = sorted({str(labels[k]) for k in own})
    labelled = list(zip(files, labels, strict=True))
    return {
        name: [file for file, label in labelled if label == name or label not in names]
        for name in names
    }


def _by_label(files: list[RankedFile], own: list[int], labels: _Labels) -> list[list[RankedFile]]:
    """Return the files of each label; none where some have no label."""
    of_label: dict[str | None, list[RankedFile]] = defaultdict(list)
    for k in own:
        of_label[labels[k]].append(files[k])
    return [] if None in of_label else list(of_label.values())


def _are_strangers(parts: list[list[RankedFile]], *, is_scheduled: bool) -> bool:
    """Return whether parts that share no rank are of several jobs: their scheduler says so, or each
    group with ranks of several parts is unknown to some of those ranks."""
    ranks = [{file.rank for file in part} for part in parts]
    recorded = set[int | None]().union(*ranks)
    if len(recorded) < sum(map(len, ranks)):
        return False
    if is_scheduled:
        return True
    holders: dict[frozenset[int], set[int | None]] = defaultdict(set)
    for file in (file for part in parts for file in part):
        for members in _groups_of(file.recording):
            holders[members].add(file.rank)
    across = [m for m in holders if sum(not own.isdisjoint(m) for own in ranks) > 1]
    return bool(across) and not any(members & recorded == holders[members] for members in across)


def _groups_of(recording: FileRecording) -> set[frozenset[int]]:
    """Return the ranks of each process group that a file lists; nothing in it is trusted."""
    listed = json.loads(str(recording.entry.parsed.facts.get("groups") or "[]"))
    ranks = [group.get("ranks") for group in listed if isinstance(group, dict)]
    return {
        frozenset(rank for rank in members if isinstance(rank, int))
        for members in ranks
        if isinstance(members, list)
    }


def _contradicting_formats(files: Sequence[RankedFile]) -> set[str]:
    """Return the formats whose files cannot all be of one job."""
    of_rank: dict[tuple[str, int], list[FileRecording]] = defaultdict(list)
    worlds: dict[str, set[object]] = defaultdict(set)
    for recording, rank, _ in files:
        if rank is not None and recording.parser not in POLLED:
            of_rank[recording.parser, rank].append(recording)
        if recording.parser in _ONE_WORLD:
            worlds[recording.parser].add(recording.entry.parsed.facts.get("world_size"))
    several_worlds = {name for name, sizes in worlds.items() if len(sizes - {None}) > 1}
    return several_worlds | {name for (name, _), own in of_rank.items() if any(_list_clashing(own))}


def _name_clash(files: list[RankedFile]) -> str:
    """Return the names of two files that cannot be of one job."""
    of_rank: dict[int | None, list[FileRecording]] = defaultdict(list)
    for file in files:
        of_rank[file.rank].append(file.recording)
    earlier, later = next(pair for own in of_rank.values() for pair in _list_clashing(own))
    return f"{earlier.source.name} and {later.source.name}"


def _list_clashing(
    recordings: list[FileRecording],
) -> Iterator[tuple[FileRecording, FileRecording]]:
    """Yield the files of a rank that were recorded at the same time and are no copies, and those of
    two processes that serve."""
    for earlier, later in pairwise(sorted(recordings, key=start_of)):
        if earlier.source is later.source:
            continue
        at_once = overlap_in_time(earlier, later) and not is_copy(earlier, later)
        if at_once or _serve_apart(earlier, later):
            yield earlier, later


def _serve_apart(recording: FileRecording, other: FileRecording) -> bool:
    serving = _serving_processes(recording), _serving_processes(other)
    return all(serving) and serving[0].isdisjoint(serving[1])


def _serving_processes(recording: FileRecording) -> set[str]:
    """Return the processes that mark iterations or captures of a server as theirs."""
    marks = recording.entry.tables.get("annotations")
    if marks is None:
        return set()
    serving = match_texts(marks["name"], is_server_mark) & ~read_booleans(marks["on_gpu"])
    return set(marks["process"].filter(pa.array(serving)).unique().to_pylist()) - {None}


def _scheduled_as(files: list[RankedFile]) -> list[_Labels]:
    """Return what schedulers, and who profiles a job, call the run that each file is of."""
    runs = []
    for fact, names in (("environment", _RUN_IDS), ("versions", _JOB_NAMES)):
        texts = [file.recording.entry.parsed.facts.get(fact) for file in files]
        listed = [json.loads(str(text)) if text else {} for text in texts]
        runs += [[of_file.get(name) for of_file in listed] for name in names]
    return runs


def _label_by_request(files: list[RankedFile]) -> list[_Labels]:
    """Return the request for a trace that each file answers."""
    requests = [file.recording.entry.parsed.facts.get("trace_id") for file in files]
    labels = [None if request is None else str(request) for request in requests]
    return _unless_of_each(files, labels)


def _unless_of_each(files: list[RankedFile], labels: _Labels) -> list[_Labels]:
    """Return the labels, if any: such as tell each file of several ranks from each other name no
    job, as time stamps do, and the ids that profilers draw anew for each process."""
    tells_files = len(set(labels)) == len(files) and len({file.rank for file in files}) > 1
    return [] if tells_files else [labels]


def _label_by_folder(files: list[RankedFile]) -> list[_Labels]:
    """Return the folder of each file at each depth; None: it lies less deep."""
    parents = [f.recording.source.name.replace("!", "/").split("/")[:-1] for f in files]
    depth = max(map(len, parents), default=0)
    return [[p[k] if k < len(p) else None for p in parents] for k in range(depth)]


def _label_by_beginning(files: list[RankedFile]) -> list[_Labels]:
    """Return what each name has before its rank, or its letters where it states none."""
    labels: _Labels = []
    for file in files:
        name = file.recording.source.file_name
        word = _RANK_WORD.search(name)
        beginning = re.sub(r"\d+", "", name.split(".")[0]) if word is None else name[: word.start()]
        labels.append(beginning.strip("-_. ") or "unnamed")
    return _unless_of_each(files, labels)


def _label_by_host(files: list[RankedFile]) -> list[_Labels]:
    """Return the host of each file, as it says or as torch calls its files."""
    return [[_host_of(file.recording) for file in files]]


def _host_of(recording: FileRecording) -> str | None:
    by_torch = _BY_TORCH.match(recording.source.file_name)
    host = recording.entry.parsed.facts.get("host")
    return str(host) if host else by_torch["host"] if by_torch else None


def _process_ids(files: list[RankedFile]) -> list[_Labels]:
    """Return which run of process ids of a host each file's is in: one job's are started together,
    so that the next job begins where a rank comes again as another process."""
    labels: _Labels = [None] * len(files)
    pids = []
    for k, file in enumerate(files):
        if process := _process_of(file.recording):
            pids.append((*process, k))
    if len({host for host, _, _ in pids}) != 1:
        return []
    run = ""
    of_rank = dict[int | None, int]()
    for _, pid, k in sorted(pids):
        if not run or of_rank.get(files[k].rank, pid) != pid:
            run = f"pid-{pid}"
            of_rank.clear()
        of_rank[files[k].rank] = pid
        labels[k] = run
    return [labels]


def _process_of(recording: FileRecording) -> tuple[str, int] | None:
    """Return the host and the id of the process that serves, or that torch calls the file by."""
    serving = _serving_processes(recording)
    if len(serving) == 1 and (pid := serving.pop()).isdecimal():
        return "", int(pid)
    by_torch = _BY_TORCH.match(recording.source.file_name)
    return (by_torch["host"], int(by_torch["pid"])) if by_torch else None


def _label_by_world(files: list[RankedFile]) -> list[_Labels]:
    """Return the world size that each file states; those that state none go together."""
    sizes = [f.recording.entry.parsed.facts.get("world_size") for f in files]
    return [[f"world-{size or 'unknown'}" for size in sizes]]


# The first that tells jobs apart counts, and among all the one that makes the fewest of them.
_OF_STRANGERS: tuple[Callable[[list[RankedFile]], list[_Labels]], ...] = (
    _scheduled_as, _label_by_folder, _label_by_beginning, _label_by_request,
)  # fmt: skip
_LABELS = (*_OF_STRANGERS, _label_by_host, _process_ids, _label_by_world)
