"""NCCL Inspector's Prometheus files: bandwidth and time by communicator, collective and size.

Written with NCCL_INSPECTOR_PROM_DUMP as nccl_inspector_metrics_<GPU uuid>.prom and rewritten every
interval: `metric{labels} value`, without HELP, TYPE or times. Since 2.30 a sample is the mean of a
size bucket (geometric for bandwidth, arithmetic for time) and becomes a row of `bench_points`; in
2.29 it is the last collective, and becomes a row of `collectives`.
"""

import re
from collections.abc import Mapping

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.mappings import Fields
from htk.base.names.collectives import collective_type
from htk.parsers.common.exposition import parse_sample
from htk.parsers.common.line_formats import READ, SKIPPED, LogPart, parse_records
from htk.parsers.common.log_lines import LogLine
from htk.parsers.common.log_records import Issues, text_or_none, whole_number
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
    return parse_records(source, options, NAME, _Reader, "no sample of NCCL Inspector in it")


class _Reader:
    def __init__(self, _file: str, _issues: Issues) -> None:
        self._samples: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}

    def read(self, line: LogLine) -> str | None:
        if line.text.startswith("#"):
            return SKIPPED
        read = parse_sample(line.text)
        match = _METRIC.fullmatch(read.name) if read else None
        if read is None or match is None:
            return None
        if read.value is None:
            return SKIPPED
        labels = tuple(sorted(read.labels.items()))
        self._samples.setdefault(labels, {})[_COLUMNS[match["what"]]] = read.value
        return READ

    def finish(self) -> LogPart:
        labelled = [(dict(labels), values) for labels, values in self._samples.items()]
        tables = {
            "collectives": [_build_call(x, values) for x, values in labelled if "coll_sn" in x],
            "bench_points": [
                _build_point(x, values) for x, values in labelled if "coll_sn" not in x
            ],
        }
        first = labelled[0][0]
        host = text_or_none(first.get("hostname", first.get("node")))
        return LogPart(tables, {"host": host, "events": len(labelled)})


def _parse_bytes(text: str) -> int | None:
    """64-65MB is the bucket from 64 MiB; 64.00MB a size."""
    match = _SIZE.match(text)
    return round(float(match[1]) * _UNITS[match[2]]) if match else None


def _find_kind(labels: Mapping[str, str]) -> str:
    return collective_type(labels.get("collective") or labels.get("p2p_operation") or "")


def _build_point(labels: Mapping[str, str], values: Mapping[str, float]) -> Fields:
    algorithm, _, protocol = labels.get("algo_proto", "").rpartition("_")
    return {
        "source": NAME,
        "type": _find_kind(labels),
        "group_size": whole_number(labels.get("nranks")),
        "nodes": whole_number(labels.get("n_nodes")),
        "size_bytes": _parse_bytes(labels.get("message_size", "")),
        "algorithm": algorithm or None,
        "protocol": protocol or None,
        **values,
    }


def _build_call(labels: Mapping[str, str], values: Mapping[str, float]) -> Fields:
    kind = _find_kind(labels)
    size = _parse_bytes(labels.get("message_size", ""))
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
