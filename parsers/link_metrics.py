"""Counters of NVLink, PCIe and network adapters, scraped from Prometheus exporters.

dcgm-exporter: `DCGM_FI_PROF_NVLINK_TX_BYTES`, `…_RX_BYTES` and those of PCIe, which are rates in
bytes a second whatever type the exporter's list gives them. node_exporter:
`node_infiniband_port_data_transmitted_bytes_total`, `node_network_transmit_bytes_total` and what is
received, which are totals. As text that was scraped (once, or again and again into one file) or
dumped from Prometheus, or as the JSON in which Prometheus answers `query_range`; other metrics in
the file are counted and left out.
"""

import re
from collections import Counter

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.core.stated_counts import SAMPLES
from htk.base.io.sources import read_head
from htk.base.mappings import Fields
from htk.parsers.common.exposition import Sample, parse_sample, read_answer
from htk.parsers.common.line_formats import READ, SKIPPED, LogPart, parse_records
from htk.parsers.common.log_lines import LogLine, read_lines
from htk.parsers.common.log_records import Issues, whole_number

NAME = "link_metrics"

_SNIFF = re.compile(
    rb'^(?:\{[^\n]{0,999}__name__=")?'
    rb"(?:DCGM_FI_(?:PROF|DEV)_\w{1,99}|node_(?:infiniband|network)_\w{1,99})[{\x22 ]",
    re.MULTILINE,
)
_ANSWER = re.compile(
    rb'\s*\{\s*"status"\s*:\s*"success"\s*,\s*"data"\s*:\s*\{\s*"resultType"\s*:'
    rb'\s*"(?:matrix|vector)"'
)
SENT = "sent"
RECEIVED = "received"
_RATES = {
    "DCGM_FI_PROF_NVLINK_TX_BYTES": ("nvlink", SENT),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": ("nvlink", RECEIVED),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("pcie", SENT),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("pcie", RECEIVED),
}
_TOTALS = {
    "node_infiniband_port_data_transmitted_bytes_total": ("infiniband", SENT),
    "node_infiniband_port_data_received_bytes_total": ("infiniband", RECEIVED),
    "node_network_transmit_bytes_total": ("ethernet", SENT),
    "node_network_receive_bytes_total": ("ethernet", RECEIVED),
}
# On in dcgm-exporter's default list, and no bytes of one direction.
_UNREAD = {
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "DCGM_FI_PROF_NVLINK_TX_BYTES and …_RX_BYTES",
    "DCGM_FI_DEV_PCIE_TX_THROUGHPUT": "DCGM_FI_PROF_PCIE_TX_BYTES",
    "DCGM_FI_DEV_PCIE_RX_THROUGHPUT": "DCGM_FI_PROF_PCIE_RX_BYTES",
}
_VIRTUAL = re.compile(r"lo|docker\w*|veth\w*|cali\w*|cni\w*|br-\w*|virbr\w*|flannel\S*|tun\S*")
_HOSTS = ("Hostname", "hostname", "nodename", "node", "instance", "host")


def sniff(head: Head) -> bool:
    return _SNIFF.search(head.data) is not None or _ANSWER.match(head.data) is not None


def parse(source: Source, options: ParseOptions) -> Parsed:
    missing = (
        "no counter of NVLink, PCIe or network adapters among its samples "
        "(DCGM_FI_PROF_NVLINK_TX_BYTES, node_infiniband_port_data_transmitted_bytes_total, …); of "
        "dcgm-exporter's own lists, dcp-metrics-included.csv has them and default-counters.csv not"
    )
    is_answer = _ANSWER.match(read_head(source).data) is not None
    lines = read_answer if is_answer else read_lines
    return parse_records(source, options, NAME, _Reader, missing, lines)


class _Reader:
    def __init__(self, _file: str, issues: Issues) -> None:
        self._issues = issues
        self._rows: list[Fields] = []
        self._samples = 0
        self._unread: Counter[str] = Counter()

    def read(self, line: LogLine) -> str | None:
        if line.text.startswith("#"):
            return SKIPPED
        read = parse_sample(line.text)
        if read is None:
            return None
        self._samples += 1
        row = _build_counter_row(read)
        if row is None:
            self._unread[read.name] += read.name in _UNREAD
            return SKIPPED  # another metric
        if len(self._rows) == SAMPLES.most:
            note = f"only the first {SAMPLES.most:,} are read"
            self._issues.add("too_many_samples", note, line.offset)
            return SKIPPED
        self._rows.append(row)
        return READ

    def finish(self) -> LogPart:
        for name, count in self._unread.items():
            if count:
                note = f"{name} tells no bytes of one direction: switch on {_UNREAD[name]}"
                self._issues.add("unread_counter", note, count=count)
        hosts = {row["host"] for row in self._rows if row["host"]}
        host = hosts.pop() if len(hosts) == 1 else None
        return LogPart({"link_samples": self._rows}, {"host": host, "events": self._samples})


def _build_counter_row(read: Sample) -> Fields | None:
    is_rate = read.name in _RATES
    link, direction = (_RATES if is_rate else _TOTALS).get(read.name, (None, None))
    port = _read_port(read)
    if link is None or (link == "ethernet" and _VIRTUAL.fullmatch(port or "lo")):
        return None
    return {
        "source": NAME,
        "host": _read_host(read),
        "device": whole_number(read.labels.get("gpu")) if is_rate else None,
        "port": port,
        "link": link,
        "direction": direction,
        "metric": read.name,
        "time_ns": read.time_ns,
        "bytes_per_s": read.value if is_rate and (read.value or 0) >= 0 else None,
        "total_bytes": None if is_rate else _read_total(read.value),
    }


def _read_total(value: float | None) -> int | None:
    return int(value) if value is not None and 0 <= value < 2**62 else None


def _read_port(read: Sample) -> str | None:
    labels = read.labels
    if read.name in _RATES:
        return labels.get("device") or labels.get("UUID") or None
    port = labels.get("port")
    return f"{labels.get('device', '')}/{port}" if port else labels.get("device") or None


def _read_host(read: Sample) -> str | None:
    """Return the host's name; that of an exporter's address without its port."""
    for label in _HOSTS:
        if text := read.labels.get(label):
            return text.rpartition(":")[0] or text if label == "instance" else text
    return None
