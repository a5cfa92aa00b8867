"""Counters of NVLink and network adapters beside the collectives of the same time."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, codes_of, decode_texts, read_keys, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Floats, Ints, Mask
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Line
from htk.base.errors import MissingTable
from htk.base.schema import FLOAT64, INT32, INT64, STRING, TEXT, table
from htk.quantities.measures.collective_calls import (
    CollectiveCalls,
    clock_facts,
    size_facts,
    with_nccl_facts,
)
from htk.quantities.measures.counted_links import CountedIntervals, counted_intervals, moved_within
from htk.quantities.measures.node_traffic import node_traffic

_SENT = "sent"
_NETWORKS = ("infiniband", "ethernet")

RETURNS = table(
    host=(TEXT, "Host, as the exporter names it."),
    link=(TEXT, "nvlink, pcie, infiniband or ethernet."),
    direction=(TEXT, "sent or received."),
    port=(TEXT, "Adapter and port, or the GPU's device, by port."),
    rank=(INT32, "Rank on that GPU, by port."),
    ports=(INT64, "Ports or GPUs that are added up."),
    start_ns=(INT64, "Start of the interval between two samples."),
    end_ns=(INT64, "End of the interval."),
    recorded_pct=(FLOAT64, "Share of the interval that the trace covers."),
    counted_bytes=(INT64, "Bytes that the counters saw."),
    counted_gbps=(FLOAT64, "The same over the interval."),
    collective_bytes=(
        INT64,
        "Bytes that collectives sent over such links meanwhile.",
    ),
    collective_gbps=(FLOAT64, "The same over the interval."),
    collectives_pct=(FLOAT64, "Bytes of collectives, of those counted."),
)


_CHART = Line(
    "end_ns", ("counted_gbps", "collective_gbps"), owner=("host", "link", "direction", "port")
)


@analysis(returns=RETURNS, chart=_CHART)
def link_counters(
    link_samples: pa.Table,
    collectives: pa.Table,
    collective_matches: pa.Table,
    aligned_matches: pa.Table,
    ranks: pa.Table,
    collective_facts: pa.Table,
    rank_windows: pa.Table,
    *,
    by: Annotated[
        Literal["host", "port"],
        "What a row stands for: all links of one kind on a host, or each link.",
    ] = "host",
    align: Annotated[bool, "Align the clocks of all ranks."] = True,
) -> pa.Table:
    """Do the counters of NVLink and network adapters see what collectives should send?

    Exporters' samples beside the trace: what the links carried between two samples, and the bytes
    of collectives in that time by size: within a node for NVLink, between nodes for networks. A GPU
    is that of the rank in its place on the host. Only intervals that the trace overlaps are shown.
    """
    if not link_samples.num_rows:
        raise MissingTable(
            "no counters of links were recorded: put what dcgm-exporter or node_exporter serve "
            "(curl host:9400/metrics, with times) beside the trace, or a dump of Prometheus"
        )
    matches = aligned_matches if align else collective_matches
    named = with_nccl_facts(collectives, collective_facts)
    calls = CollectiveCalls.of_one_source(named, matches, ranks)
    intervals = counted_intervals(link_samples)
    rows = _Rows.from_samples(link_samples, intervals, by)
    begin, finish = _find_recorded_window(rank_windows)
    overlap = np.minimum(rows.end_ns, finish) - np.maximum(rows.start_ns, begin)
    rows = rows.only(overlap > 0) if finish > begin else rows
    answer = _build_answer(rows, calls, by, begin, finish)
    facts = {
        "samples": link_samples.num_rows,
        "samples_without_time": intervals.untimed,
        "counter_resets": intervals.resets,
        "intervals_of_unequal_ports": rows.unequal,
        "gpu_of_a_rank": "its place among the ranks of its host",
        **size_facts(calls, required=False),
        **calls.hosts.facts(),
        **clock_facts(align),
    }
    return with_coverage(answer, **facts)


@dataclass(frozen=True)
class _Rows:
    """Intervals of links, added up over ports or each."""

    host: Ints
    link: Ints
    direction: Ints
    port: Ints
    device: Ints
    ports: Ints
    start_ns: Ints
    end_ns: Ints
    counted: Floats
    names: dict[str, list[str]]
    unequal: int

    @classmethod
    def from_samples(cls, samples: pa.Table, intervals: CountedIntervals, by: str) -> "_Rows":
        codes = {}
        names = {}
        for name in ("host", "link", "direction", "port"):
            column, listed = codes_of(samples[name])
            codes[name] = column.astype(np.int64)[intervals.sample]
            names[name] = listed.to_pylist()
        device = read_keys(samples["device"])[intervals.sample]
        key = [codes["host"], codes["link"], codes["direction"]]
        each = np.column_stack([*key, codes["port"], device])
        ports = Groups.by_keys(each)
        own = each[:, 3:] if by == "port" else np.full((len(each), 2), NONE)
        groups = Groups.by_keys([*key, own, intervals.start_ns, intervals.end_ns])
        present = groups.distinct(ports.group_ids)
        expected = Groups.by_keys(key).distinct(ports.group_ids)
        of_row = Groups.by_keys(key).group_ids[groups.first_row]
        complete = (present == expected[of_row]) | (by == "port")
        counted = np.zeros(len(groups))
        np.add.at(counted, groups.group_ids, intervals.counted_bytes)
        columns = groups.keys.T if len(groups) else np.empty((7, 0), np.int64)
        host, link, direction, port, gpu, start, end = columns
        rows = cls(
            host, link, direction, port, gpu, present, start, end, counted, names,
            int((~complete).sum()),
        )  # fmt: skip
        return rows.only(complete)

    def only(self, chosen: Mask) -> "_Rows":
        return replace(
            self,
            host=self.host[chosen],
            link=self.link[chosen],
            direction=self.direction[chosen],
            port=self.port[chosen],
            device=self.device[chosen],
            ports=self.ports[chosen],
            start_ns=self.start_ns[chosen],
            end_ns=self.end_ns[chosen],
            counted=self.counted[chosen],
        )

    def __len__(self) -> int:
        return len(self.host)


def _find_recorded_window(windows: pa.Table) -> tuple[int, int]:
    if not windows.num_rows:
        return 0, 0
    return int(read_numbers(windows["start_ns"]).min()), int(read_numbers(windows["end_ns"]).max())


def _build_answer(
    rows: _Rows, calls: CollectiveCalls, by: str, begin: int, finish: int
) -> pa.Table:
    length = (rows.end_ns - rows.start_ns).astype(np.float64)
    overlap = np.minimum(rows.end_ns, finish) - np.maximum(rows.start_ns, begin)
    rank = _ranks_of(rows, calls)
    moved = _sum_moved_bytes(rows, calls, rank, by)
    has = ~np.isnan(moved)
    share = np.divide(100 * moved, rows.counted, out=np.zeros(len(rows)), where=rows.counted > 0)
    columns = {
        "host": decode_texts(rows.host, pa.array(rows.names["host"], STRING)),
        "link": decode_texts(rows.link, pa.array(rows.names["link"], STRING)),
        "direction": decode_texts(rows.direction, pa.array(rows.names["direction"], STRING)),
        "port": decode_texts(rows.port, pa.array(rows.names["port"], STRING)),
        "rank": build_numbers(rank, INT32, rank != NONE),
        "ports": build_numbers(rows.ports, INT64),
        "start_ns": build_numbers(rows.start_ns, INT64),
        "end_ns": build_numbers(rows.end_ns, INT64),
        "recorded_pct": build_numbers(100 * np.maximum(overlap, 0) / length, FLOAT64),
        "counted_bytes": build_numbers(np.rint(rows.counted).astype(np.int64), INT64),
        "counted_gbps": build_numbers(rows.counted / length, FLOAT64),
        "collective_bytes": build_numbers(
            np.rint(np.nan_to_num(moved)).astype(np.int64), INT64, has
        ),
        "collective_gbps": build_numbers(np.nan_to_num(moved) / length, FLOAT64, has),
        "collectives_pct": build_numbers(np.nan_to_num(share), FLOAT64, has & (rows.counted > 0)),
    }
    answer = pa.table(columns, schema=RETURNS)
    order = order_by(rows.host, rows.link, rows.direction, rows.start_ns, rows.port, rows.device)
    return answer.take(pa.array(order))


def _ranks_of(rows: _Rows, calls: CollectiveCalls) -> Ints:
    """Return the rank on each row's GPU (NONE: it is none of one GPU, or not known)."""
    index = calls.hosts.index_within
    rank_at = {(_shorten_host(host), index[r]): r for r, host in calls.hosts.of_rank.items()}
    names = [_shorten_host(name) for name in rows.names["host"]]
    ranks = []
    for host, gpu in zip(rows.host.tolist(), rows.device.tolist(), strict=True):  # some hundreds
        ranks.append(rank_at.get((names[host], gpu), NONE) if host >= 0 else NONE)
    return np.array(ranks, np.int64)


def _sum_moved_bytes(rows: _Rows, calls: CollectiveCalls, rank: Ints, by: str) -> Floats:
    """Return the bytes that collectives sent over each row's links in its time (NaN: not known)."""
    within, across = node_traffic(calls)
    timed = calls.rows.timed
    end = calls.rows.end + calls.correction
    start = end - np.where(
        calls.waits.has_wait, calls.waits.transfer, calls.rows.end - calls.rows.start
    )
    links = rows.names["link"]
    directions = rows.names["direction"]
    moved = np.full(len(rows), np.nan)
    hosts = {r: _shorten_host(host) for r, host in calls.hosts.of_rank.items()}
    kinds = Groups.by_keys([rows.host, rows.link, rows.direction, rank])
    for k, (host, link, direction, own) in enumerate(kinds.keys.tolist()):  # a few
        name = links[link] if link >= 0 else ""
        if host < 0 or directions[direction] != _SENT or (by == "port" and own == NONE):
            continue
        host_name = _shorten_host(rows.names["host"][host])
        members = [own] if own != NONE else [r for r, h in hosts.items() if h == host_name]
        sent = within if name == "nvlink" else across if name in _NETWORKS else None
        chosen = np.isin(calls.rows.rank, members) & timed
        if sent is None or not chosen.any() or (sent[chosen] < 0).any():
            continue
        if name == "ethernet" and "infiniband" in links:
            continue  # what carries collectives is the other one
        use = np.flatnonzero(chosen & (sent > 0))
        of_kind = kinds.group_ids == k
        moved[of_kind] = _measure_between(start[use], end[use], sent[use], rows, of_kind)
    return moved


def _measure_between(start: Ints, end: Ints, sent: Ints, rows: _Rows, chosen: Mask) -> Floats:
    edges = np.concatenate([rows.start_ns[chosen], rows.end_ns[chosen]])
    low, high = np.split(moved_within(start, end, sent.astype(np.float64), edges), 2)
    return np.asarray(high - low)


def _shorten_host(host: str) -> str:
    return host.partition(".")[0].lower()
