"""The heading of a page: its answer in a sentence with the number, and a second fact below it."""

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from dash import dcc, html

from htk.answers.output.one_sentence import REST_OF_NAMES
from htk.base.columns.arrow import read_numbers
from htk.base.core.humanize import format_bytes, format_duration, pluralize_count, shorten_text
from htk.base.errors import HtkError
from htk.base.mappings import Fields
from htk.dashboard import hang_panels
from htk.dashboard.example_ranges import find_longest_gaps
from htk.dashboard.markup import PagePart
from htk.dashboard.page import Visit
from htk.verdicts.causes.stragglers import find_most_waited_for
from htk.verdicts.overview.doctor import LATE_LAUNCHES
from htk.verdicts.overview.summary import IDLE_WORDS

_Sentences = tuple[str, str]  # the heading, and what stands below it
_MOSTLY_PCT = 50  # of GPU time
_OF_A_NAME = 60  # characters
_FAMILIES = {("memory", "copy"): "copies", ("memory", "set"): "memory sets"}
_NO_GPU = "No GPU work was recorded"
MOST_NAMES = 100_000  # of kernels that a filter leaves
GAPS = 12  # the longest, as the page of idle time lists them
_WITH_UNIT = re.compile(r"(\d) (?=(?:%|[nµm]?s|[KMGT]iB|GB/s)(?:\W|$))")
PART = "headline"  # of a page that has one


def draw_heading(page: str, question: str) -> Any:
    """Return the place of a page's heading: its question, until the answer is there."""
    return PagePart(page, PART, html.H1(question))


def not_named(visit: Visit) -> list[Any]:
    """Return which filter a page of all the time is not under, and where it is."""
    name = visit.view.filters.get("name")
    if not name:
        return []
    link = dcc.Link("Kernels", href=visit.view.link("kernels"))
    words = f"The name filter ({name}) does not apply here, where all of the time is told: see "
    return [html.P([words, link, "."], className="hint", role="status")]


def fill_heading(
    question: str, find: Callable[[Visit], _Sentences | None]
) -> Callable[[Visit], Any]:
    """Return the part that fills the heading; the question stays where nothing answers it."""

    def draw_heading_part(visit: Visit) -> Any:
        try:
            sentences = find(visit)
        except HtkError:
            sentences = None
        first, second = (_keep_units_together(words) for words in sentences or (question, ""))
        lead = [html.P(f"{second}.", className="lead")] if second else []
        return html.Div([html.H1(f"{first}." if sentences else first), *lead])

    return draw_heading_part


def _keep_units_together(words: str) -> str:
    """Return words whose numbers keep to one line with their units."""
    return _WITH_UNIT.sub("\\1\N{NO-BREAK SPACE}", words)


def of_timeline(visit: Visit) -> _Sentences | None:
    """Return how long GPUs had work, and how much of that they were busy."""
    if hang_panels.has_flight_dumps(visit):
        return of_hang(visit)
    if not visit.trace.tables["kernels"].num_rows:
        return _of_host(visit)
    times = visit.ask("time_breakdown").table
    total = int(read_numbers(times["total_ns"], 0).sum())
    busy = int(read_numbers(times["busy_ns"], 0).sum())
    if not total:
        return None
    ranks = times["rank"].unique().to_pylist()
    whose = f"GPU of rank {ranks[0]} is"
    if times.num_rows > 1:  # a row for each GPU
        owner = f"{len(ranks)} ranks" if len(ranks) > 1 else f"rank {ranks[0]}"
        whose = f"GPUs of {owner} are"
    mean = format_duration(total / times.num_rows)
    window = f"the {mean} from the first to the last GPU work"
    return f"The {whose} busy {100 * busy / total:.1f} % of {window}", _late_start(visit)


_HOST_WORK = {"cpu_ops": "operator", "annotations": "range"}


def _of_host(visit: Visit) -> _Sentences | None:
    """Return what the host did, and that nothing is known of a GPU."""
    recorded = {
        words: table
        for name, words in _HOST_WORK.items()
        if (table := visit.trace.tables[name]).num_rows
    }
    if not recorded:
        return None
    begin = min(pc.min(table["start_ns"]).as_py() for table in recorded.values())
    end = max(pc.max(table["end_ns"]).as_py() for table in recorded.values())
    counts = [pluralize_count(table.num_rows, words) for words, table in recorded.items()]
    return f"The host ran {' and '.join(counts)} in {format_duration(end - begin)}", _NO_GPU


def _late_start(visit: Visit) -> str:
    """Return what a GPU that starts nothing for long makes doubtful; nothing where none does so."""
    late = [row for row in visit.footing if row["item"].startswith(LATE_LAUNCHES)]
    return _capitalise_first(f"{late[0]['finding']}; {late[0]['advice']}") if late else ""


def of_kernels(visit: Visit) -> _Sentences | None:
    """Return the families that take most of the kernels' time, and the costliest kernel."""
    if wanted := visit.view.filters.get("name"):
        return _of_names(visit, "kernel_top", "kernel_time_pct", f"kernels whose name has {wanted}")
    families = [r for r in visit.ask("kernel_families").to_pylist() if r["kernel_time_pct"]]
    if not families:
        return None
    families.sort(key=lambda r: -r["kernel_time_pct"])
    shares = [
        f"{_FAMILIES.get((r['kind'], r['family']), r['family'] + ' kernels')} "
        f"{'take ' if not k else ''}{r['kernel_time_pct']:.1f} %"
        for k, r in enumerate(families[:2])
    ]
    first = f"{_capitalise_first(shares[0])} of the time of GPU activities"
    first += "".join(f", {share}" for share in shares[1:])
    top = [r for r in visit.ask("kernel_top", n=20).to_pylist() if r["name"] != REST_OF_NAMES]
    if not top:
        return first, ""
    row = max(top, key=lambda r: r["total_ns"])
    calls = pluralize_count(row["count"], "call")
    return first, (
        f"Costliest: {shorten_text(row['name'], _OF_A_NAME)}, {row['kernel_time_pct']:.1f} % "
        f"in {calls} of {format_duration(row['duration_ns_mean'])}"
    )


def _of_names(visit: Visit, name: str, share: str, what: str) -> _Sentences | None:
    """Return how much the rows take that a filter of names leaves."""
    rows = [r for r in visit.ask(name, n=MOST_NAMES).to_pylist() if r["name"] != REST_OF_NAMES]
    if not rows:
        return f"There are no {what}", ""
    calls = pluralize_count(sum(r["count"] for r in rows), "call")
    total = f"{sum(r[share] or 0 for r in rows):.1f} %"
    return f"{_capitalise_first(what)} take {total} of the time of GPU activities, in {calls}", ""


def of_operators(visit: Visit) -> _Sentences | None:
    """Return the operators that take most GPU time by themselves; without it, most CPU time."""
    rows = visit.ask("op_breakdown", n=100).to_pylist()
    outside = [r for r in rows if str(r["op"]).startswith("(") and r["device_time_pct"]]
    rows = [r for r in rows if not str(r["op"]).startswith("(") and r["op"] != REST_OF_NAMES]
    on_gpu = sorted(
        (r for r in rows if r["device_time_pct"]), key=lambda row: -row["device_time_pct"]
    )
    if not on_gpu:
        return _of_operators_on_the_host(rows)
    names = [f"{shorten_text(r['op'], 40)} {r['device_time_pct']:.1f} %" for r in on_gpu[:4]]
    outside_pct = sum(r["device_time_pct"] for r in outside)
    if outside_pct > _MOSTLY_PCT:
        largest = max(outside, key=lambda r: r["device_time_pct"])["op"].strip("()")
        first = f"{outside_pct:.1f} % of GPU time is of no operator; the largest part: {largest}"
        return first, f"Then {', '.join(names)}"
    row = on_gpu[0]
    calls = pluralize_count(row["count"], "call")
    share = f"{row['device_time_pct']:.1f} % of GPU time by itself"
    first = f"{shorten_text(row['op'], _OF_A_NAME)} takes {share}, in {calls}"
    return first, f"Then {', '.join(names[1:])}" if names[1:] else ""


def _of_operators_on_the_host(rows: list[Fields]) -> _Sentences | None:
    """Return the operators that take most CPU time."""
    taking = sorted((r for r in rows if r["cpu_self_ns"]), key=lambda row: -row["cpu_self_ns"])
    if not taking:
        return None
    row = taking[0]
    calls = pluralize_count(row["count"], "call")
    time = format_duration(row["cpu_self_ns"])
    first = f"{shorten_text(row['op'], _OF_A_NAME)} takes most CPU time: {time}, in {calls}"
    names = [
        f"{shorten_text(r['op'], 40)} {format_duration(r['cpu_self_ns'])}" for r in taking[1:4]
    ]
    return first, f"Then {', '.join(names)}" if names else ""


def of_communication(visit: Visit) -> _Sentences | None:
    """Return what a hang came from, else how much communication is exposed, and who is waited
    for."""
    if hang_panels.has_flight_dumps(visit):
        return of_hang(visit)
    if not visit.trace.tables["kernels"].num_rows:
        return _of_calls(visit)
    times = visit.ask("time_breakdown").table
    total = int(read_numbers(times["total_ns"], 0).sum())
    comm = int(read_numbers(times["comm_ns"], 0).sum())
    exposed = int(read_numbers(times["exposed_comm_ns"], 0).sum())
    if not total or not comm:
        return None
    first = f"Exposed communication takes {100 * exposed / total:.1f} % of the GPUs' time"
    waits = visit.ask("comm_wait").table
    wait = int(read_numbers(waits["exposed_wait_ns"], 0).sum())
    unknown = int(read_numbers(waits["exposed_undetermined_ns"], 0).sum())
    parts = ((wait, "waiting for other ranks"), (unknown, "undetermined: wait or transfer"))
    part, words = max(parts)
    if part and exposed:
        first += f", {100 * min(part / exposed, 1):.0f} % of it {words}"
    if not read_numbers(waits["matched"], 0).any():
        return first, ""  # of one rank: no other waits for it here
    worst = find_most_waited_for(visit.ask("stragglers").to_pylist())
    if worst is None:
        return first, ""
    behind = f", late in {worst['late_in']}" if worst["late_in"] else ""
    of = pluralize_count(worst["collectives"], "collective")
    return first, (
        f"Rank {worst['rank']} is waited for most, in {worst['times_blamed']:,} of {of}{behind}"
    )


def _of_calls(visit: Visit) -> _Sentences | None:
    """Return how many collectives the host called, of how many bytes."""
    rows = visit.ask("comm_summary", by="type").to_pylist()
    if not rows:
        return None
    top = max(rows, key=lambda row: row["comm_ns"] or 0)
    calls = pluralize_count(sum(row["count"] for row in rows), "collective call")
    sizes = [row["in_bytes"] for row in rows if row["in_bytes"]]
    handed = f" of {format_bytes(sum(sizes))} in all" if sizes else ""
    longest = f"; most time in {top['type']}" if len(rows) > 1 else f", each of {top['type']}"
    unknown = f"{_NO_GPU}, so what computing waits for them is not known"
    return f"The host made {calls}{handed}{longest}", unknown


def of_hang(visit: Visit) -> _Sentences | None:
    """Return what the records of a hang say, in one sentence."""
    verdict = str(visit.ask("hang").coverage.get("verdict") or "").strip().rstrip(".")
    first, _, rest = verdict.partition("; ")
    return (_capitalise_first(first), _capitalise_first(rest)) if first else None


def of_memory(visit: Visit) -> _Sentences | None:
    """Return the highest use of memory, and what holds most of it then."""
    rows = visit.ask("memory_peaks").to_pylist()
    if not rows:
        return None
    top = max(rows, key=lambda r: (r["peak_bytes"], r["held_bytes"] or 0))
    when = format_duration(top["peak_ns"] - visit.trace.origin_ns)
    where = "" if top["device_kind"] == "gpu" else " on the host"
    peaks: dict[int, int] = {}
    for row in rows:  # one for each holder
        peaks[row["rank"]] = max(peaks.get(row["rank"], 0), row["peak_bytes"])
    alike = len(peaks) > 1 and len({format_bytes(peak) for peak in peaks.values()}) == 1
    who = f"Each of {len(peaks)} ranks" if alike else f"Rank {top['rank']}"
    first = f"{who} uses {format_bytes(top['peak_bytes'])}{where} at most"
    whose = f"Rank {top['rank']}'s" if alike else "The"
    second = f"{whose} peak: {when} into the recording"
    if not top["held_bytes"]:
        return first, second
    holder = str(top["holder"]).strip("()")
    held = f"{format_bytes(top['held_bytes'])}, {top['held_pct']:.0f} %"
    return first, f"{second}. Its largest holder: {shorten_text(holder, _OF_A_NAME)}, {held}"


def of_idle(visit: Visit) -> _Sentences | None:
    """Return how long GPUs are idle, for what most, and the longest gap."""
    times = visit.ask("time_breakdown").table
    total = int(read_numbers(times["total_ns"], 0).sum())
    idle = int(read_numbers(times["idle_ns"], 0).sum())
    if not total:
        return None
    first = f"GPUs are idle {100 * idle / total:.1f} % of the time"
    causes = visit.ask("idle_breakdown").table
    if idle and causes.num_rows:
        cause, ns = _find_largest(causes, "cause", "idle_ns")
        words = IDLE_WORDS.get(cause, cause).removeprefix("idle: ")
        first += f"; the largest part: {words}, {100 * ns / total:.1f} %"
    longest = visit.kept("gaps", lambda: find_longest_gaps(visit, GAPS))[:1]
    late = _late_start(visit)
    if not longest or late:
        return first, late
    gap = longest[0]
    length = format_duration(gap.to_ns - gap.from_ns)
    begun = format_duration(gap.from_ns)
    return first, f"The longest gap: {length} on rank {gap.rank}, {begun} into the recording"


def longest_wait(visit: Visit) -> str:
    """Return which rank waits longest, in what, as a heading; nothing where nobody waits."""
    table = visit.ask("collective_times").table
    if not int(read_numbers(table["wait_ns"], 0).sum()):
        return ""
    rank, total = _find_largest(table, "rank", "wait_ns")
    own = table.filter(pc.equal(table["rank"], int(rank)))
    kind, ns = _find_largest(own, "type", "wait_ns")
    longest = format_duration(total)
    return f"Rank {rank} waits longest, {longest}: {format_duration(ns)} of it in {kind}"


def _find_largest(table: pa.Table, by: str, column: str) -> tuple[str, int]:
    """Return the value of one column whose rows add up to most in another, and that sum."""
    plain = pa.table({by: table[by].cast(pa.string()), column: table[column]})
    sums = plain.group_by(by, use_threads=False).aggregate([(column, "sum")])
    rows = sums.sort_by([(f"{column}_sum", "descending")]).to_pylist()
    return str(rows[0][by]), int(rows[0][f"{column}_sum"] or 0)


def _capitalise_first(text: str) -> str:
    return text[:1].upper() + text[1:]
