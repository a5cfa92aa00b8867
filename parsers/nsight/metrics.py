"""Samples that `nsys profile --gpu-metrics-devices=all` takes of a process's GPUs."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    build_texts,
    constant_text,
    mark_valid,
    read_numbers,
)
from htk.base.columns.groups import row_of
from htk.base.columns.types import NONE, Ints
from htk.base.schema import FLOAT64, INT64, STRING
from htk.parsers.common.span_tables import build_process_table
from htk.parsers.common.sqlite_file import Database

_GPU_BITS = 0xFF  # of a type: the GPU's number on the machine


def read_metrics(database: Database, base_ns: int) -> pa.Table:
    """Return the samples of all GPUs as counters, each with its GPU."""
    keys = {"typeId": INT64, "metricId": INT64}
    samples = database.read("GPU_METRICS", {**keys, "timestamp": INT64, "value": FLOAT64})
    named = database.read("TARGET_INFO_GPU_METRICS", {**keys, "metricName": STRING})
    pairs = [
        np.column_stack([read_numbers(t[key], NONE) for key in keys]) for t in (named, samples)
    ]
    row = row_of(*pairs)
    usable = mark_valid(samples["timestamp"]) & mark_valid(samples["value"]) & (row != NONE)
    samples = samples.filter(pa.array(usable))
    names = [*map(str, named["metricName"].fill_null("").to_pylist())]
    gpu = pairs[1][usable, 0] & _GPU_BITS
    counters = build_process_table(
        "counters",
        {
            "name": build_texts(names).take(build_numbers(row[usable], INT64))
            if names
            else build_texts([]),
            "process": build_texts([f"GPU {k}" for k in range(_GPU_BITS + 1)]).take(
                build_numbers(gpu, INT64)
            ),
            "series": constant_text("", len(gpu)),
            "time_ns": build_numbers(read_numbers(samples["timestamp"]) + base_ns, INT64),
            "value": build_numbers(read_numbers(samples["value"]), FLOAT64),
        },
        len(gpu),
    )
    return counters.append_column("gpu", build_numbers(gpu, INT64))


def of_devices(counters: pa.Table, devices: Ints) -> pa.Table:
    """Return the counters of some GPUs, as the vocabulary has them."""
    is_own = np.isin(read_numbers(counters["gpu"]), devices)
    return counters.filter(pa.array(is_own)).drop_columns("gpu")
