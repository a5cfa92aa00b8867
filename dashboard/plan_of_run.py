"""The job that a plan begins with, read from a recording: model, GPUs, and how many a node has."""

from collections import Counter

import pyarrow.compute as pc

from htk.dashboard.page import Visit
from htk.dashboard.plan_fields import FIELDS, errors_of
from htk.physics.decoder import Decoder
from htk.physics.detected import device_of
from htk.physics.presets import PRESETS
from htk.traces.trace.trace import Trace
from htk.whatif.operator_shapes import product_sizes

_PARTS = (1, 2, 4, 8)  # of a layer, of which a rank may hold one


def find_first_fields(visit: Visit) -> dict[str, str]:
    """Return the fields that a plan begins with: those of the run, where there is one."""
    defaults = {name: field.default for name, field in FIELDS.items()}
    trace = visit.runs.trace(visit.view.run)
    if trace is None:
        return defaults
    recorded = visit.runs.kept(
        visit.view.run, trace.selection, "plan", lambda: fields_of_run(trace)
    )
    return {**defaults, **recorded}


def read_plan_fields(visit: Visit) -> dict[str, str]:
    """Return all fields of a plan: those of the address, the others as it begins."""
    return {**find_first_fields(visit), **visit.view.options}


def fields_of_run(trace: Trace) -> dict[str, str]:
    """Return the fields of a plan that the recording fills, those at their defaults left out."""
    rows = trace.everything.tables["ranks"].to_pylist()  # a row for each file
    ranks = {row["rank"]: row for row in rows if row["rank"] is not None}
    if not ranks:
        return {}
    first = ranks[min(ranks)]
    recorded: dict[str, str] = {}
    if model := _model_of(trace):
        recorded["model"] = model
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


def _model_of(trace: Trace) -> str:
    """Return the model whose feed-forward and output layers ran; nothing where none or several
    have theirs of these sizes."""
    dims = pc.unique(trace.everything.tables["cpu_ops"]["input_dims"]).to_pylist()
    sizes = [size for each in dims if each and (size := product_sizes(each)) is not None]
    pairs = {frozenset(pair) for m, n, k in sizes for pair in ((m, n), (n, k), (k, m))}
    fitting = [name for name, model in PRESETS.items() if _has_products(model, pairs)]
    return fitting[0] if len(fitting) == 1 else ""


def _has_products(model: Decoder, pairs: set[frozenset[int]]) -> bool:
    """Return whether products of a model's widths are among the pairs of sizes, whole or in
    parts."""
    return any(
        frozenset((model.hidden, model.ffn // parts)) in pairs
        and frozenset((model.hidden, model.vocab // parts)) in pairs
        for parts in _PARTS
    )
