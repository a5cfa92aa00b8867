"""What a recording tells of the job that a plan may be of: its GPUs and how many a node has."""

from collections import Counter

from htk.dashboard.plan_fields import FIELDS, errors_of
from htk.physics.detected import device_of
from htk.traces.trace.trace import Trace


def fields_of_run(trace: Trace) -> dict[str, str]:
    """Return the fields of a plan that the recording fills, those at their defaults left out."""
    rows = trace.everything.tables["ranks"].to_pylist()  # a row for each file
    ranks = {row["rank"]: row for row in rows if row["rank"] is not None}
    if not ranks:
        return {}
    first = ranks[min(ranks)]
    recorded: dict[str, str] = {}
    device = device_of(first["device_name"], first["device_properties"])
    if device.gpu is not None:
        recorded["gpu"] = device.gpu.name
    size = max(max((row["world_size"] or 0 for row in rows), default=0), len(ranks))
    recorded["gpus"] = str(size)
    hosts = Counter(row["host"] for row in ranks.values() if row["host"])
    if hosts and sum(hosts.values()) == size:
        recorded["node"] = str(max(hosts.values()))
    unusual = {name: text for name, text in recorded.items() if text != FIELDS[name].default}
    return {} if errors_of(unusual) else unusual
