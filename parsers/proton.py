"""Triton's Proton: `proton.hatchet`, and the Chrome trace that `proton.finalize` writes on request.

Both are told again as Kineto's JSON, which its parser reads. A hatchet holds sums alone, of each
kernel under its scopes and Python calls: its kernels are laid one after the other, each as long as
the mean, so that idle time and order mean nothing, which is an issue of the file. Scopes become the
annotation of a kernel. Not read: metrics of scopes, cycles within kernels, samples of the program
counter, msgpack.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.mappings import Fields
from htk.parsers.common.log_records import Issues, list_of, read_json, text_or_none, whole_number
from htk.parsers.kineto.retold import parse_retold, to_stamp

NAME = "proton"

_TREE = rb'\[\s*\{\s*"(?:children"\s*:\s*\[\s*\{\s*"(?:children|frame)|frame"\s*:\s*\{\s*"name)"'
_TIMELINE = (
    rb'\{\s*"displayTimeUnit"\s*:\s*"us"\s*,\s*"traceEvents"\s*:\s*\[\s*\{\s*"args"\s*:\s*\{'
    rb'\s*"(?:call_stack"|name"\s*:\s*"Trace"\s*\})'
)
_SNIFF = re.compile(rb"\s*(?:" + _TREE + rb"|" + _TIMELINE + rb")")
_FRAME = re.compile(r"(?P<file>[^\n]{1,4096}):(?P<line>\d{1,9})@(?P<function>[^\n@]{1,1024})")
_ROOT = "ROOT"
_GRAPH_LANE, _GPU_LANE, _PER_DEVICE = 100_000, 200_000, 1_000_000
_MOST_CALLS = 2_000_000  # laid out one by one; more are one long activity for each kernel


def sniff(head: Head) -> bool:
    return bool(_SNIFF.match(head.data))


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    try:
        content = json.loads(read_json(source, issues, options.progress))
    except (ValueError, RecursionError) as error:
        raise MalformedTrace(f"{source.name}: truncated or damaged Proton file: {error}") from None
    if isinstance(content, list):
        events = _lay_out([*_list_leaves(content)], issues)
    else:
        events = [*_of_timeline(content)]
    if not events:
        raise MalformedTrace(f"{source.name}: a Proton file without kernels or scopes")
    return parse_retold(msgspec.json.encode({"traceEvents": events}), source, options, issues)


def _list_leaves(tree: Sequence[object]) -> Iterator[tuple[list[str], Fields]]:
    """Yield the path to each node of kernels, and its sums."""
    ways: list[tuple[list[str], Any]] = [([], node) for node in reversed(tree)]
    while ways:
        path, node = ways.pop()
        if not isinstance(node, dict) or not isinstance(node.get("frame"), dict):
            continue  # what follows the tree describes devices
        names = [*path, text_or_none(node["frame"].get("name")) or ""]
        metrics = node.get("metrics")
        if isinstance(metrics, dict) and "device_id" in metrics:
            yield names, metrics
        ways += [(names, child) for child in reversed(list_of(node.get("children")))]


def _lay_out(leaves: list[tuple[list[str], Fields]], issues: Issues) -> list[Fields]:
    """Return activities as long as the sums say, one after the other on each device."""
    keys = ("device_id", "count", "time (ns)")
    sums: list[tuple[list[str], int, int, int]] = []
    for names, metrics in leaves:
        device, count, total_ns = (max(whole_number(metrics.get(key)) or 0, 0) for key in keys)
        sums.append((names, device, count, total_ns))
    is_few = sum(count for _, _, count, _ in sums) <= _MOST_CALLS
    reached: dict[int, int] = defaultdict(int)
    events: list[Fields] = []
    for names, device, count, total_ns in sums:
        times = count if is_few else min(count, 1)
        for call in range(times):
            length = total_ns // times + (call < total_ns % times)
            where = {"device": device, "stream": 0}
            events.append(_build_kernel(names, where, to_stamp(reached[device]), to_stamp(length)))
            reached[device] += length
    text = "sums of kernels alone: laid one after the other, idle time and order mean nothing"
    issues.add("no_times", text, count=len(sums))
    return events


def _of_timeline(content: object) -> Iterator[Fields]:
    """Yield kernels and scopes of a Chrome trace."""
    for event in list_of(content.get("traceEvents") if isinstance(content, dict) else None):
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        arguments = event.get("args")
        stack = list_of(arguments.get("call_stack") if isinstance(arguments, dict) else None)
        lane = whole_number(event.get("tid")) or 0
        device, stream = divmod(max(lane - _GPU_LANE, 0), _PER_DEVICE)
        ts = event.get("ts")
        dur = event.get("dur")
        if event.get("cat") == "kernel":
            names = [*(str(name) for name in stack[:-1]), str(event.get("name") or "")]
            yield _build_kernel(names, {"device": device, "stream": stream}, ts, dur)
        elif lane < _GRAPH_LANE:
            where = {"pid": "host", "tid": lane, "ts": ts, "dur": dur}
            yield {"ph": "X", "cat": "user_annotation", "name": event.get("name"), **where}


def _build_kernel(names: list[str], where: Fields, ts: object, dur: object) -> Fields:
    """Return an activity as Kineto's JSON has it; its scopes are what it is called, its calls of
    Python its stack."""
    frames = [frame for name in names[:-1] if (frame := _FRAME.fullmatch(name))]
    scopes = [name for name in names[:-1] if name != _ROOT and not _FRAME.fullmatch(name)]
    lines = [f'File "{f["file"]}", line {f["line"]}, in {f["function"]}\n' for f in frames]
    arguments: Fields = {**where, "name": ".".join(scopes) or None}
    arguments["stack"] = ["".join(lines)] if lines else None
    drawn = {"pid": where["device"], "tid": where["stream"], "ts": ts, "dur": dur}
    return {"ph": "X", "cat": "kernel", "name": names[-1], **drawn, "args": arguments}
