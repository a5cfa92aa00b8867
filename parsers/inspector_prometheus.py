"""NCCL Inspector's Prometheus files: bandwidth and time by communicator, collective and size.

Written with NCCL_INSPECTOR_PROM_DUMP as nccl_inspector_metrics_<GPU uuid>.prom and rewritten every
interval: `metric{labels} value`, without HELP, TYPE or times. Since 2.30 a sample is the mean of a
size bucket (geometric for bandwidth, arithmetic for time) and becomes a row of `bench_points`; in
2.29 it is the last collective, and becomes a row of `collectives`.
"""

import re
from collections.abc import Mapping
from typing import Any

from htk.core.parser import Head, Parsed, ParseOptions, Source
from htk.errors import MalformedTrace
from htk.names.collectives import collective_type
from htk.parsers.common.exposition import sample
from htk.parsers.common.log_records import Issues, read_lines, table_of, text_or_none, whole_number
from htk.parsers.common.nccl_calls import bytes_of_rank

NAME = "inspector_prometheus"

_METRIC = re.compile(
    r"nccl_(?:p2p_)?(?P<what>bus_bandwidth_gbs|algorithm_bandwidth_gbs"
    r"|(?:collective_)?exec_time_microseconds)"
)
_SNIFF = re.compile(rb"^nccl_(?:p2p_)?\w+(?:_gbs|_microseconds)\{", re.MULTILINE)
_SIZE = re.compile(r"^([\d.]+)(?:-[\d.]+)?\s*([KMGT]?)i?B$")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_COLUMNS = {
    "bus_bandwidth_gbs": "busbw_gbps",
    "algorithm_bandwidth_gbs": "algbw_gbps",
    "exec_time_microseconds": "time_us",
    "collective_exec_time_microseconds": "time_us",
}


def sniff(head: Head) -> bool:
    return _SNIFF.search(head.data) is not None


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    samples: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for offset, line in read_lines(source, issues, options.progress):
        if not line.strip() or line.startswith("#"):
            continue
        read = sample(line)
        match = _METRIC.fullmatch(read.name) if read else None
        if read is None or match is None:
            issues.add("broken_line", line[:80], offset)
            continue
        if read.value is not None:
            labels = tuple(sorted(read.labels.items()))
            samples.setdefault(labels, {})[_COLUMNS[match["what"]]] = read.value
    if not samples:
        raise MalformedTrace(f"{source.name}: no sample of NCCL Inspector in it")
    labelled = [(dict(labels), values) for labels, values in samples.items()]
    single = [_call(x, values) for x, values in labelled if "coll_sn" in x]
    points = [_point(x, values) for x, values in labelled if "coll_sn" not in x]
    tables = {
        "collectives": table_of("collectives", single, of_one_rank=False),
        "bench_points": table_of("bench_points", points, of_one_rank=False),
        "parse_issues": issues.table(),
    }
    first = labelled[0][0]
    facts: dict[str, object] = {
        "host": text_or_none(first.get("hostname", first.get("node"))),
        "events": len(samples),
    }
    return Parsed(tables, facts=facts)


def _bytes(text: str) -> int | None:
    """64-65MB is the bucket from 64 MiB; 64.00MB a size."""
    match = _SIZE.match(text)
    return round(float(match[1]) * _UNITS[match[2]]) if match else None


def _kind(labels: Mapping[str, str]) -> str:
    return collective_type(labels.get("collective") or labels.get("p2p_operation") or "")


def _point(labels: Mapping[str, str], values: Mapping[str, float]) -> dict[str, Any]:
    algorithm, _, protocol = labels.get("algo_proto", "").rpartition("_")
    return {
        "source": NAME,
        "type": _kind(labels),
        "group_size": whole_number(labels.get("nranks")),
        "nodes": whole_number(labels.get("n_nodes")),
        "size_bytes": _bytes(labels.get("message_size", "")),
        "algorithm": algorithm or None,
        "protocol": protocol or None,
        **values,
    }


def _call(labels: Mapping[str, str], values: Mapping[str, float]) -> dict[str, Any]:
    kind, size = _kind(labels), _bytes(labels.get("message_size", ""))
    ranks = whole_number(labels.get("nranks"))
    micros = values.get("time_us")
    identity = labels.get("comm_id", "")
    return {
        "source": NAME,
        "comm_hash": int(identity, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", identity) else None,
        "comm_rank": whole_number(labels.get("rank")),
        "group_size": ranks,
        "seq": whole_number(labels.get("coll_sn")),
        "seq_kind": "function",
        "type": kind,
        "raw_name": labels.get("collective"),
        "library": "nccl",
        **bytes_of_rank(kind, size, ranks),
        "duration_ns": None if micros is None else round(micros * 1000),
        "timing": "gpu",
    }
