"""Units of FSDP: on two units worked out by hand, and in a simulated job."""

from pathlib import Path

import pytest

from htk.analyses.run.fsdp_units import fsdp_units
from htk.answers.ask import ask_trace
from htk.base.errors import MissingTable
from htk.traces.trace.opening import open_trace
from tests.tables import answer_of, make

SIMULATED = Path(__file__).resolve().parents[3] / "sample_traces/simulated/llama2-7b"
# type, start, end of each collective; gathers of the forward have copy-outs at 25 and 60.
COMM = [("all_gather", 0, 10), ("all_gather", 20, 50), ("reduce_scatter", 70, 100)]
COPIES = [(25, 27), (60, 64)]


def two_units() -> dict:
    """Compute runs from 30 to 40 and from 70 to 90."""
    ops = [
        {"name": "record_param_comms", "thread": "1", "start_ns": 0, "end_ns": 1},
        {"name": "fsdp::split_with_sizes_copy", "thread": "1", "start_ns": 2, "end_ns": 3},
        {
            "name": "autograd::engine::evaluate_function: X",
            "thread": "2",
            "start_ns": 0,
            "end_ns": 9,
        },
    ]
    threads = [{"thread_index": 0}, {"thread_index": 0}, {"thread_index": 1}]
    ranges = [
        {"name": "FSDP::all_gather (layers.3)", "start_ns": 0, "end_ns": 5},
        {"name": "nccl:_all_gather_base", "start_ns": 1, "end_ns": 2},
    ]
    spans = [(s, e) for _, s, e in COMM] + COPIES
    links = [
        {"op_row": 0, "step": 1, "annotation_row": 1},
        {"op_row": 0, "step": 1},
        {"op_row": 2, "step": 1},
        {"op_row": 1, "step": 1},
        {"op_row": 1, "step": 1},
    ]
    common = {"source": "kineto", "group_size": 4, "group_ranks": "[0,1,2,3]"}
    made = []
    for k, (kind, start, end) in enumerate(COMM):
        sizes = (10, 40) if kind == "all_gather" else (40, 10)
        moved = {"type": kind, "in_bytes": sizes[0], "out_bytes": sizes[1]}
        made.append({**common, **moved, "event": k, "start_ns": start, "end_ns": end})
    computing = [{"kind": "compute", "start_ns": s, "end_ns": e} for s, e in ((30, 40), (70, 90))]
    return {
        "collectives": make("collectives", made),
        "kernels": make(
            "kernels", [{"event": k, "start_ns": s, "end_ns": e} for k, (s, e) in enumerate(spans)]
        ),
        "kernel_links": make("kernel_links", links),
        "cpu_ops": make("cpu_ops", ops),
        "op_links": make("op_links", threads),
        "annotations": make("annotations", ranges),
        "activities": make("activities", computing),
    }


def test_two_units() -> None:
    first, second, reduced = answer_of(fsdp_units, **two_units())
    assert (first["unit"], first["phase"], first["order"]) == ("layers.3", "forward", 0)
    assert (first["shard_bytes"], first["unit_bytes"], first["group_size"]) == (10, 40, 4)
    columns = ("exposed_ns_mean", "lead_ns_mean", "copy_out_ns_mean", "prefetch_depth_mean")
    assert [first[c] for c in columns] == [10, 15, 2, 1]
    assert [second[c] for c in columns] == [20, 10, 4, 0]
    assert (reduced["type"], reduced["phase"]) == ("reduce_scatter", "backward")
    assert (reduced["duration_ns_mean"], reduced["tail_exposed_ns_mean"]) == (30, 10)


def test_gathers_without_copy_outs_have_no_lead() -> None:
    tables = two_units()
    tables["cpu_ops"] = tables["cpu_ops"].set_column(
        tables["cpu_ops"].schema.get_field_index("name"),
        "name",
        make("cpu_ops", [{"name": "x"}, {"name": "y"}, {"name": "z"}])["name"],
    )
    first, *_ = answer_of(fsdp_units, **tables)
    assert (first["lead_ns_mean"], first["prefetch_depth_mean"]) == (None, None)


def test_no_sharding_is_said() -> None:
    with pytest.raises(MissingTable, match="no FSDP"):
        answer_of(fsdp_units)


def test_units_of_a_simulated_job() -> None:
    """Eight layers and the root; the last layer is gathered for the backward pass as well."""
    rows = ask_trace(open_trace(str(SIMULATED)), "fsdp_units").table.to_pylist()
    count: dict[tuple[str, str], int] = {}
    for row in rows:
        count[row["type"], row["phase"]] = count.get((row["type"], row["phase"]), 0) + 1
        assert row["count"] == 32  # eight ranks, four steps
        assert row["unit_bytes"] == 8 * row["shard_bytes"]
    assert count == {
        ("all_gather", "forward"): 9,
        ("all_gather", "backward"): 8,
        ("reduce_scatter", "backward"): 9,
    }
