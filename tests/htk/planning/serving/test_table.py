"""Tables of described servers."""

import pytest

from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.serving.objectives import Objective
from htk.planning.serving.server import Server
from htk.planning.serving.steady import Load, SteadyServer
from htk.planning.serving.table import layouts_table, map_loads, map_table, parts_table

SERVER = Server(decoder("llama3-8b"), gpu("h100"), price=3.0)
LOADS = [Load(500, 100), Load(4000, 100)]


def test_a_map_has_a_row_for_each_length_and_number_of_requests() -> None:
    rows = map_table(map_loads(SERVER, LOADS, [1, 8]), None).to_pylist()
    assert [(r["prompt"], r["requests"]) for r in rows] == [
        (500, 1),
        (500, 8),
        (4000, 1),
        (4000, 8),
    ]
    for row in rows:
        state = SteadyServer(SERVER, Load(row["prompt"], 100)).answering(row["requests"])
        assert row["tpot_ns"] == round(state.tpot_ns)
        assert row["tpot_ns_lo90"] < row["tpot_ns"] < row["tpot_ns_hi90"]
        wide = row["ttft_ns_hi90"] / row["ttft_ns"]
        assert wide > row["tpot_ns_hi90"] / row["tpot_ns"]  # a first token is less sure
        assert row["kv_cache_bytes"] == row["requests"] * (row["prompt"] + 100) * 131_072
        assert row["cost_per_million_tokens"] == pytest.approx(
            3.0 / 3600 / row["tokens_per_s"] * 1e6
        )
        assert row["holds"] is None and row["fits"]


def test_without_numbers_rows_go_up_to_the_most_that_fit() -> None:
    rows = map_table(map_loads(SERVER, LOADS[:1], []), Objective(tpot_ns=20e6)).to_pylist()
    most = rows[-1]["most_requests"]
    assert [r["requests"] for r in rows] == [
        *(1 << bit for bit in range(20) if 1 << bit < most), most
    ]  # fmt: skip
    assert [r["holds"] for r in rows] == [r["tpot_ns"] <= 20e6 for r in rows]
    assert {r["holds"] for r in rows} == {True, False}


def test_more_than_fit_are_said_not_to() -> None:
    steady = SteadyServer(SERVER, LOADS[1])
    most = steady.most_requests
    rows = map_table(map_loads(SERVER, LOADS[1:], [most, most + 1]), Objective()).to_pylist()
    assert [(r["fits"], r["holds"]) for r in rows] == [(True, True), (False, False)]


def test_a_queue_without_end_has_no_time() -> None:
    server = Server(decoder("llama3-8b"), gpu("h100"), chunk=512)
    (row,) = map_table(map_loads(server, [Load(4096, 64)], [20]), None).to_pylist()
    assert row["ttft_ns_p90"] is None and row["answered"] == 8


def test_parts_add_up_to_the_iteration() -> None:
    cells = map_loads(SERVER, LOADS, [4])
    rows = parts_table(cells).to_pylist()
    for cell in cells:
        for phase in ("prefill", "decode"):
            own = [
                r for r in rows if (r["prompt"], r["phase"]) == (cell.steady.load.prompt, phase)
            ]  # fmt: skip
            assert sum(r["step_pct"] for r in own) == pytest.approx(100)
            if phase == "decode":
                total = sum(r["duration_ns"] for r in own)
                assert total == pytest.approx(cell.state.decode.total, abs=10)


def test_layouts_are_surer_at_less() -> None:
    rows = layouts_table(SERVER, LOADS[1], Objective(1e9, 20e6)).to_pylist()
    assert len(rows) > 2
    for row in rows:
        assert 0 <= row["requests_per_s_lo90"] < row["requests_per_s"]
        assert row["tokens_per_s_per_gpu"] == pytest.approx(100 * row["requests_per_s_per_gpu"])
        assert (row["kv_transfer_ns"] is not None) == ("prefill" in row["layout"])
