"""The answer to a what-if as people read it: a table, then what it rests on, in words."""

import json
from collections.abc import Callable
from textwrap import wrap
from typing import Any

from htk.answers.output.render import print_table, write_result
from htk.answers.output.result import Result
from htk.base.columns.arrow import build_texts
from htk.base.core.humanize import format_bytes, format_duration, pluralize_count
from htk.base.mappings import Facts, Fields

_BAR = 24
_WIDTH = 100  # characters of a line
_LABEL = 36  # of the edits
_BETWEEN = 2  # columns
# What a short table shows, as far as there is room.
_FIRST = (
    *("step time", "90 % interval", "mark"),
    *("per M tokens", "run cost", "run hours", "goodput %"),  # where they are asked for
    *("change %", "per sample %", "P(OOM) %"),
    *("MFU %", "exposed comm", "idle", "peak memory", "tokens/s"),
)
_OF_SERVERS = ("step time", "90 % interval", "mark", "time/token", "tokens/s")
_OF_ADVICE = ("step time", "90 % interval", "change %", "per sample %", "gain/sigma", "if wrong %")
_LEAST_SIGMA = 0.05  # percent
_REMEDIES = {
    "no_skew on": "all ranks arrive at collectives together",
    "overlap perfect": "all communication hidden",
    "remove_syncs on": "no blocking calls in the step",
    "no_data_wait on": "no waiting for data",
    "balanced_experts on": "experts equally loaded",
    "graphs on": "no launch overhead (CUDA graphs)",
    "host 2x": "a host twice as fast",
    "fix_rank all": "every rank as fast as the median",
    "overlap realistic": "communication hidden where independent compute is",
    "serving requests=2x": "twice the requests at once",
    "serving requests=4x": "four times the requests at once",
    "serving weights=fp8": "weights in FP8",
    "serving weights=int4": "weights of 4 bits",
    "serving kv=fp8": "KV cache in FP8",
    "serving weights=fp8,kv=fp8,requests=2x": "weights and KV cache in FP8, twice the requests",
    "serving draft=3,acceptance=0.7": "three drafted tokens, 70 % of them accepted",
    "serving apart=decode": "prompts on other GPUs",
    "serving apart=prefill": "decoding on other GPUs",
    "serving prefill=2x": "twice the tokens of prompts at once",
    "serving dp=2": "requests shared by two groups of GPUs",
}


def in_words(edit: str) -> str:
    """Return what an edit means where it stands for a remedy, else the edit as it is written."""
    return _REMEDIES.get(edit, edit)


def read_savings(row: Fields) -> tuple[float, float, float]:
    """Return what an edit saves for the same samples, or tokens, in ns, and the low and high end of
    its 90 % interval."""
    measured = row["measured_step_time_ns"]
    samples = 1.0  # over the recorded
    if row["time_per_sample_change_pct"] is not None:
        samples = (100 + row["change_pct"]) / (100 + row["time_per_sample_change_pct"])
    ends = ("step_time_ns", "step_time_ns_hi90", "step_time_ns_lo90")
    gain, least, most = (measured - row[end] / samples for end in ends)
    return gain, least, most


def show_whatif(
    result: Result, form: str, output: str | None, *, limit: int = 200, wide: bool = False
) -> None:
    """Send an answer where it was asked to go; `wide`: with all columns, else within 100."""
    write_result(
        result,
        form,
        output,
        limit=limit,
        printer=lambda file: _print_answers(result, limit, file, wide),
    )


def _print_answers(result: Result, limit: int, target: Any, wide: bool) -> None:
    rows = result.to_pylist()
    refused = all(
        r["verdict"] == result.coverage["verdict"] and not r["step_time_ns"] for r in rows
    )
    target.write(_fold_lines(_describe_recorded(result.coverage, rows), wide))
    if rows and refused:
        return
    if result.coverage.get("rows"):
        target.write(f"\n{result.coverage['rows']}:\n")
    target.write("\n")
    print_table(_make_readable(result, rows, wide), limit=limit, file=target)
    lines = [line for row in rows[:1] if len(rows) == 1 for line in _list_details(row)]
    lines += (
        _list_verdicts(rows, result.coverage["verdict"])
        + _list_held(rows)
        + _list_assumptions(rows)
    )
    if lines:
        target.write("\n" + _fold_lines(lines, wide))


def _fold_lines(lines: list[str], wide: bool) -> str:
    """Return the lines, folded where they are too long for most terminals."""
    if not wide:
        lines = [
            part for line in lines for part in wrap(line, _WIDTH, subsequent_indent="    ") or [""]
        ]
    return "\n".join(lines) + "\n"


def _describe_time(facts: Facts, step_ns: int, ranks: int) -> str:
    """Say how long the unedited step takes, and by which clock."""
    time = format_duration(step_ns)
    if facts.get("recorded_alone"):
        return f" takes {time} if it repeats"
    if ranks > 1:  # shorter than a rank's step where ranks begin apart, as a first one has
        return f" took {time} from the last rank's start to the last rank's end"
    return f" took {time}"


def _describe_recorded(facts: Facts, rows: list[Fields]) -> list[str]:
    ranks = len(facts.get("ranks") or [])
    step = "the recording" if facts.get("step") is None else f"step {facts['step']}"
    took = _describe_time(facts, rows[0]["measured_step_time_ns"], ranks) if rows else ""
    held = facts.get("held_out_error_pct")
    lines = [
        f"{step}{took} ({pluralize_count(ranks, 'rank')} recorded)",
        f"replay of the unedited step: {facts['verdict']}",
        f"  step {format_error(facts['step_error_pct'])} off, exposed communication "
        f"{format_error(facts['exposed_error_points'], 'points')}, "
        f"starts {format_error(facts['start_error_pct'])}, "
        f"another step {'not recorded' if held is None else f'{format_error(held)} off'}, "
        f"{facts['observed_path_pct']:.0f} % of the critical path recorded",
    ]
    if stand := facts.get("representatives"):
        lines.insert(1, f"worked with {stand}")
    fits = facts.get("largest_batch_that_fits")
    site = facts.get("site")
    lines += [f"largest batch that fits: {fits}"] if fits else []
    return lines + ([f"site: {site}"] if site else [])


def format_error(value: float, unit: str = "%") -> str:
    """Return how far off something is, for people."""
    if not value:
        return f"0 {unit}"
    return f"< 0.1 {unit}" if value < 0.1 else f"{value:.1f} {unit}"


def _make_readable(result: Result, rows: list[Fields], wide: bool) -> Result:
    """Return the result in readable units and signs, with the columns that there is room for."""
    import pyarrow as pa

    cells = _build_cells(rows)
    if not wide:
        advice = str(result.coverage.get("rows") or "").startswith("what can be changed")
        first = _OF_SERVERS if "time/token" in cells else _OF_ADVICE if advice else ()
        cells = _select_columns(cells, (*first, *_FIRST))
    return Result(result.analysis, pa.table({h: build_texts(c) for h, c in cells.items()}), {})


def _build_cells(rows: list[Fields]) -> dict[str, list[str]]:
    """Return what each column shows, without those that are empty."""
    columns = {"what if": [r["whatif"] for r in rows]}
    for heading, cell in _COLUMNS.items():
        cells = [None if r["step_time_ns"] is None else cell(r) for r in rows]
        room = max([len(c) for c in cells if c] + [len(heading)])
        if any(cells):
            columns[heading] = [(c or "–").rjust(room) for c in cells]
    marks = [r["mark"] or ("refused" if r["step_time_ns"] is None else None) for r in rows]
    if any(marks):
        columns["mark"] = [m or "" for m in marks]
    return columns


def _select_columns(columns: dict[str, list[str]], first: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the columns that matter most, as many as there is room for, in their order."""
    columns = columns | {"what if": [_cut_middle(text, _LABEL) for text in columns["what if"]]}
    if columns.get("per sample %") == columns.get("change %"):
        columns.pop("per sample %", None)
    if all(cell.strip() in ("0", "–") for cell in columns.get("P(OOM) %", [])):
        columns.pop("P(OOM) %", None)
    wanted = {"what if"}
    room = _WIDTH - _measure_width("what if", columns)
    for heading in first:
        if (
            heading in columns
            and heading not in wanted
            and _measure_width(heading, columns) <= room
        ):
            wanted.add(heading)
            room -= _measure_width(heading, columns)
    return {heading: cells for heading, cells in columns.items() if heading in wanted}


def _measure_width(heading: str, columns: dict[str, list[str]]) -> int:
    return max(len(text) for text in (heading, *columns[heading])) + _BETWEEN


def _cut_middle(text: str, most: int) -> str:
    """Return a text that is too long without its middle."""
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[: most - 1 - half]}…{text[-half:]}"


def _build_optional(name: str, how: Callable[[Any], str]) -> Callable[[Fields], str | None]:
    return lambda row: None if row[name] is None else how(row[name])


def _build_interval(percent: int) -> Callable[[Fields], str]:
    low = f"step_time_ns_lo{percent}"
    high = f"step_time_ns_hi{percent}"
    return lambda row: f"{format_duration(row[low])} … {format_duration(row[high])}"


def _format_signed(value: float) -> str:
    return f"{value:+,.0f}" if abs(value) >= 1000 else f"{_round_to_tenths(value):+.1f}"


def _round_to_tenths(value: float) -> float:
    return round(value, 1) + 0.0  # no minus before a zero


_COLUMNS: dict[str, Callable[[Fields], str | None]] = {
    "step time": _build_optional("step_time_ns", format_duration),
    "90 % interval": _build_interval(90),
    "change %": _build_optional("change_pct", _format_signed),
    "per sample %": _build_optional("time_per_sample_change_pct", _format_signed),
    "time/token": _build_optional("tpot_ns", format_duration),
    "tokens/s": _build_optional("tokens_per_s", lambda v: f"{v:,.0f}"),
    "MFU %": _build_optional("mfu_pct", lambda v: f"{v:.1f}"),
    "exposed comm": _build_optional("exposed_comm_ns", format_duration),
    "idle": _build_optional("idle_ns", format_duration),
    "peak memory": _build_optional("peak_memory_bytes", format_bytes),
    "P(OOM) %": _build_optional("p_oom", lambda v: f"{100 * v:.0f}"),
    "per M tokens": _build_optional("cost_per_million_tokens", lambda v: f"{v:.3g}"),
    "J/token": _build_optional("energy_j_per_token", lambda v: f"{v:.3g}"),
    "run cost": _build_optional("cost_per_run", lambda v: f"{v:,.0f}"),
    "run hours": _build_optional("run_hours", lambda v: f"{v:,.0f}"),
    "goodput %": _build_optional("goodput_pct", lambda v: f"{v:.1f}"),
    "gain/sigma": _build_optional("gain_over_sigma", lambda v: f"{_round_to_tenths(v):.1f}"),
    "if wrong %": _build_optional("regret_pct", lambda v: f"+{v:.1f}"),
    "50 % interval": _build_interval(50),
    "linear says": _build_optional("naive_linear_ns", format_duration),
    "tokens/s/GPU": _build_optional("tokens_per_s_per_gpu", lambda v: f"{v:,.0f}"),
}


def _list_details(row: Fields) -> list[str]:
    """Return what only one answer has room for: its change by cause, its uncertainty by source."""
    if row["step_time_ns"] is None:
        return []
    change = row["step_time_ns"] - row["measured_step_time_ns"]
    lines = []
    causes = sorted(json.loads(row["waterfall"]).items(), key=lambda item: -abs(item[1]))
    if change and causes:
        lines.append(f"change of {_format_signed_time(change)} by cause:")
        most = max(abs(ns) for _, ns in causes)
        for cause, ns in causes:
            bar = "█" * max(round(_BAR * abs(ns) / most), 1)
            lines.append(f"  {cause:<14} {_format_signed_time(ns):>10}  {bar}")
    sigmas = json.loads(row["sigma_by_source"])
    sources = sorted(((v, s) for s, v in sigmas.items() if v >= _LEAST_SIGMA), reverse=True)
    parts = ", ".join(f"{source} {value:.2g}" for value, source in sources) or "none"
    lines.append(f"uncertainty, one standard deviation in % of the step: {parts}")
    lines.append(f"standing of the answer: {row['standing']}")
    if row["next_recording"]:
        lines.append(f"to narrow it most: {row['next_recording']}")
    return lines


def _format_signed_time(ns: int) -> str:
    return ("+" if ns > 0 else "-" if ns < 0 else "") + format_duration(abs(ns))


def _list_verdicts(rows: list[Fields], of_replay: str) -> list[str]:
    """Return verdicts beyond the replay's: refusals, changes that cannot be told from none."""
    by_verdict: dict[str, list[str]] = {}
    for row in rows:
        _, mark, rest = row["verdict"].partition("; the change is ")
        if mark:
            by_verdict.setdefault(f"the change is {rest}", []).append(row["whatif"])
        elif row["step_time_ns"] is None and row["verdict"] != of_replay:
            by_verdict.setdefault(row["verdict"], []).append(row["whatif"])
    return [f"{text}: {', '.join(names)}" for text, names in by_verdict.items()]


def _list_held(rows: list[Fields]) -> list[str]:
    """Return how often 90 % intervals held, each kind of edit once."""
    held = [part for row in rows for part in (row["intervals_held"] or "").split("; ") if part]
    parts = list(dict.fromkeys(held))
    return ["90 % intervals so far:", *(f"  {part}" for part in parts)] if parts else []


def _list_assumptions(rows: list[Fields]) -> list[str]:
    """Return each assumption once; of many answers those that all share."""
    assumptions = [r["assumptions"].split("; ") if r["assumptions"] else [] for r in rows]
    assumptions = [s for s in assumptions if s]
    if not assumptions:
        return []
    shared = [a for a in assumptions[0] if all(a in s for s in assumptions)]
    return ["assumes:", *(f"  {a}" for a in shared)] if shared else []
