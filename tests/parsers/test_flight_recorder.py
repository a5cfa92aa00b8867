"""Flight recorder dumps: both encodings, all ages, damaged and malicious ones."""

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.parsers import flight_recorder
from htk.traces.trace.opening import OpenOptions, open_trace

SAMPLES = Path(__file__).parents[2] / "sample_traces" / "flight_recorder"


def parsed(data: bytes, name: str = "dump") -> Parsed:
    return flight_recorder.parse(Source(name, lambda: io.BytesIO(data)), ParseOptions())


def sample(name: str) -> Parsed:
    return parsed((SAMPLES / name).read_bytes(), name)


def rows(found: Parsed, table: str = "collectives") -> list[dict[str, Any]]:
    return found.tables[table].to_pylist()


def entry(**changes: Any) -> dict[str, Any]:
    plain = {
        "record_id": 0,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 1,
        "p2p_seq_id": 0,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 5,
        "input_sizes": [[2, 3]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[2, 3]],
        "output_dtypes": ["BFloat16"],
        "state": "scheduled",
        "is_p2p": False,
    }
    return plain | changes


def test_every_whole_sample_is_sniffed() -> None:
    for path in sorted(p for p in SAMPLES.rglob("*") if p.is_file() and p.stat().st_size):
        assert flight_recorder.sniff(Head("a file", path.read_bytes())), path


def test_other_files_are_not() -> None:
    for data in (b"", b"\x80\x04hello", b'{"traceEvents": []}', b"NCCL version 2.29"):
        assert not flight_recorder.sniff(Head("a file", data))


def test_a_record() -> None:
    first, *_, last = rows(sample("hang_missing_rank_v2.10/comm_lib_trace_rank_0"))
    assert first["type"] == "broadcast" and first["duration_ns"] == 110_000
    assert (last["seq"], last["seq_kind"], last["state"]) == (3, "collective", "started")
    assert (last["group"], last["group_ranks"], last["group_size"]) == ("0", "[0,1,2,3]", 4)
    assert last["in_bytes"] == 4096 * 4096 * 4
    assert last["enqueue_ns"] == 1_785_000_000_006_000_000
    assert last["start_ns"] == 1_785_000_000_006_050_000 and last["end_ns"] is None
    assert last["frames"].split("\n")[1] == "train_step (/home/user/train.py:120)"


def test_counters_of_groups() -> None:
    found = {
        r["group"]: r
        for r in rows(sample("hang_missing_rank_v2.10/comm_lib_trace_rank_3"), "comm_groups")
    }
    assert (found["0"]["last_enqueued"], found["0"]["last_completed"]) == (2, 2)
    assert found["1"]["group_desc"] == "tp" and found["1"]["group_ranks"] == "[2,3]"


def test_both_schema_ages() -> None:
    (old,) = rows(sample("schema_v1.4/nccl_trace_rank_0"))
    assert (old["seq"], old["group"], old["group_ranks"], old["dtype"]) == (1, "0", "[0,1]", None)
    (newer,) = rows(sample("schema_v2.3/nccl_trace_rank_0"))
    assert newer["state"] == "completed" and newer["in_bytes"] == 128


def test_json_writes_zero_for_no_time() -> None:
    found = sample("json_v2.10/rank0.json")
    assert rows(found)[0]["start_ns"] is None
    assert rows(found, "comm_groups")[0]["last_enqueued"] == 1


def test_members_of_a_batch_take_the_state_of_its_end() -> None:
    send, recv, _ = rows(sample("p2p_coalesced_v2.10/comm_lib_trace_rank_1"))
    assert (send["type"], send["peer"], recv["type"], recv["peer"]) == ("send", 0, "recv", 0)
    assert send["state"] == "completed" and send["inferred_columns"] == "state"
    assert recv["coalesced"] == "nccl:coalesced"


def test_state_of_nccl_communicators() -> None:
    notes = rows(sample("with_nccl_comm_state/comm_lib_trace_rank_0"), "comm_notes")
    assert "0x7f3a11 commHash: 0x2fd1c0a5" in {n["text"] for n in notes}


def test_a_newer_minor_is_read_and_an_unknown_major_noted() -> None:
    dump = {"version": "2.31", "pg_config": {}, "entries": [entry()]}
    assert not rows(parsed(pickle.dumps(dump, 2)), "parse_issues")
    dump["version"] = "3.0"
    assert rows(parsed(pickle.dumps(dump, 2)), "parse_issues")[0]["kind"] == "unknown_version"


def test_a_cut_pickle_gives_its_whole_entries() -> None:
    whole = (SAMPLES / "hang_missing_rank_v2.10/comm_lib_trace_rank_0").read_bytes()
    found = parsed(whole[: int(len(whole) * 0.9)])
    assert [r["seq"] for r in rows(found)] == [1, 1, 2]
    assert rows(found)[0]["group_ranks"] == "[0,1,2,3]"
    assert rows(found, "parse_issues")[0]["kind"] == "truncated" and found.facts["truncated"]


def test_a_pickle_cut_in_its_first_entry_still_has_counters() -> None:
    found = sample("truncated/comm_lib_trace_rank_1")
    assert not rows(found)
    assert rows(found, "comm_groups")[0]["last_enqueued"] == 3


def test_cut_json() -> None:
    entries = [entry(record_id=k, process_group=["0", "default_pg"]) for k in range(3)]
    text = json.dumps({"version": "2.10", "entries": entries})
    found = parsed(text[:-60].encode())
    assert len(rows(found)) == 2
    assert rows(found, "parse_issues")[0]["kind"] == "truncated"


def test_an_empty_file_is_one_clear_line() -> None:
    with pytest.raises(MalformedTrace, match="truncated or damaged"):
        parsed(b"")


class _Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/htk_was_here",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_pickle_is_refused(protocol: int) -> None:
    data = pickle.dumps({"version": "2.10", "pg_config": _Evil(), "entries": []}, protocol)
    if protocol:
        assert flight_recorder.sniff(Head("a file", data))
    with pytest.raises(MalformedTrace, match="not run" if protocol else "damaged"):
        parsed(data)


def test_a_pickle_of_something_else() -> None:
    with pytest.raises(MalformedTrace, match="holds a int"):
        parsed(pickle.dumps(3, 2))


def test_no_input_makes_it_fail_otherwise() -> None:
    whole = (SAMPLES / "p2p_coalesced_v2.10/comm_lib_trace_rank_0").read_bytes()
    for cut in range(0, len(whole), 7):
        damaged = whole[:cut] + b"\xff" + whole[cut + 1 :]
        for data in (whole[:cut], damaged):
            try:
                assert isinstance(parsed(data).tables["collectives"], pa.Table)
            except MalformedTrace as error:
                assert "\n" not in str(error)


@pytest.mark.parametrize(
    "name", ["my_dumps_2", "rank.d/dump2", "comm_lib_trace_rank_2", "trace_2.json"]
)
def test_a_dump_is_of_the_rank_that_ends_its_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes((SAMPLES / "schema_v2.3/nccl_trace_rank_0").read_bytes())
    assert open_trace(path, OpenOptions(cache=False)).ranks == [2]
