"""Any value in any field of any format: the file is read or fails in one line, others answer."""

import gzip
import io
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from htk.base.core.parser import ParseOptions, Source
from htk.base.errors import TraceError
from htk.parsers import list_parsers
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import kernel, launch, of_rank, op, step, write
from tests.parsers.hostile_values import WRONG, outcome, variants
from tests.thinned import thinned

SAMPLES = Path(__file__).parents[2] / "sample_traces"
PARSERS = {parser.NAME: parser for parser in list_parsers()}
TEXTS = {
    "ascend": ["trace_view.json"],
    "execution_trace": ["rank0_et.json.gz"],
    "inspector": ["verbose/node-a-pid1001.log", "v2.28_no_comm_name/node-a-pid77.log"],
    "inspector_prometheus": [
        f"{folder}/nccl_inspector_metrics_GPU-3a1f0000-1111-2222-3333-444455556666.prom"
        for folder in ("prometheus", "prometheus_v2.29")
    ],
    "job_layout": ["layout.yaml"],
    "job_log": ["slurm-4711.out.gz"],
    "kernel_stacks": ["kernel_information.json"],
    "link_metrics": ["dcgm.prom", "node_exporter.openmetrics", "tsdb_dump.txt"],
    "memory_timeline": ["rank0.raw.json.gz", "rank1.json"],
    "nccl_debug": ["two_ranks_interleaved.log", "rccl_coll.log", "tuning_v2.23.log"],
    "nccl_tests": ["all_reduce_perf.txt", "all_reduce_perf_v3.json", "with_nccl_log.txt"],
    "operation_rows": ["data_parallel_cut.jsonl", "long_last_stage.csv"],
    "operation_timeline": ["slow_worker.json"],
    "profiler_plugin": ["dump_1493613951195738943_0.json", "ce_1493613951195738943_0.json"],
    "proton": ["sums/proton.hatchet"],
    "python_stacks": ["faulthandler_rank0.txt", "rank2.txt", "traceback.log"],
    "ras": ["status.json", "text_mismatch.txt", "text_incomplete.txt"],
    "rccl_replay": ["replayer_log.1275.node-m.json"],
    "rocprof_json": ["two_steps.json"],
    "watchdog": ["rank_missing.log", "ray_subgroup_size.log", "torch_1.13.log"],
}
FILES = [(name, file) for name, files in TEXTS.items() for file in files]
BINARY = sorted(
    path
    for name in (
        "ascend_db",
        "rocpd",
        "rocprof_perfetto",
        "nsight",
        "xplane",
        "operation_rows",
        "memory_snapshot",
    )
    for path in (SAMPLES / name).rglob("*")
    if path.is_file() and path.suffix not in (".csv", ".jsonl", ".py", ".md")
)
TOKEN = re.compile(rb'"(?:[^"\\\n]|\\.)*"|-?\d[\w.+-]*|[A-Za-z_][\w.]*')
ODD_TOKENS = [b"null", b"true", b"-1", b"0", b"9" * 19, b"9" * 5000, b"1e999", b"-1.5", b"nan", b""]
ODD_TOKENS += [b'""', b'"x"', b'"\\u0000"', b"[]", b"{}", b"[[1]]", b'{"x":{"y":[]}}', b"\xff"]
ODD_TOKENS += [
    b'"' + b"9" * 5000 + b'"',
    b"[" * 400 + b"]" * 400,
    b"\x00",
    b"x" * 70_000,
    b"\xd9\xa3",
]
MUTANTS = 25  # of a file, of each kind


def sample(name: str, file: str) -> bytes:
    data = (SAMPLES / name / file).read_bytes()
    return gzip.decompress(data) if file.endswith(".gz") else data


Mutant = Callable[[], bytes]  # written when it is chosen: most are not, and many are large


def wrong_fields(data: bytes) -> Iterator[Mutant]:
    """JSON, or lines of it, with each wrong value in the place of each of its parts."""
    lines = data.splitlines()
    try:
        whole = json.loads(data)
    except ValueError:
        for k, line in enumerate(lines[:3]):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            for wrong in WRONG:
                for variant in variants(record, wrong):
                    yield partial(as_lines, lines[:k], variant, lines[k + 1 : 6])
        return
    for wrong in WRONG:
        for variant in variants(whole, wrong):
            yield partial(as_lines, [], variant, [])


def as_lines(before: list[bytes], record: Any, behind: list[bytes]) -> bytes:
    """Return a record among lines."""
    return b"\n".join([*before, json.dumps(record).encode(), *behind])


def odd_tokens(data: bytes) -> Iterator[Mutant]:
    """A text with an odd token in the place of each of its own."""
    tokens = list(TOKEN.finditer(data))
    for token in tokens:
        for odd in ODD_TOKENS:
            yield partial(b"".join, [data[: token.start()], odd, data[token.end() :]])


def some(mutants: Iterator[Mutant], dice: Random) -> list[bytes]:
    """Return some of the mutants, each as likely as any other."""
    kept: list[Mutant] = []
    for k, mutant in enumerate(mutants):
        if len(kept) < MUTANTS:
            kept.append(mutant)
        elif (place := dice.randrange(k + 1)) < MUTANTS:
            kept[place] = mutant
    return [mutant() for mutant in kept]


@pytest.mark.parametrize(("name", "file"), thinned(FILES))
def test_any_value_in_any_field_of_a_text(name: str, file: str) -> None:
    data = sample(name, file)
    assert outcome(PARSERS[name], data) == "read"
    dice = Random(f"{name}/{file}")
    excerpt = data[-12_000:] if name == "job_log" else data[:12_000]
    mutants = some(wrong_fields(data), dice) + some(odd_tokens(excerpt), dice)
    ends = {outcome(PARSERS[name], mutant) for mutant in mutants}
    assert "read" in ends


def of_every_kind() -> dict[str, Any]:
    """A recording of one of each kind of event, with all that a header may hold."""
    call = {"device": 0, "stream": 9, "correlation": 2, "Collective name": "allreduce"}
    call |= {"Process Group Name": "0", "dtype": "Float", "In msg nelems": 4, "Group size": 2}
    call |= {"Process Group Ranks": "[0, 1]", "Seq": 1, "grid": [1, 1, 1], "External id": 5}
    memory = {"Total Reserved": 1, "Total Allocated": 2, "Bytes": 2, "Addr": 5, "Device Id": 0}
    common = {"pid": 100, "tid": 1, "ts": 5}
    events = {
        "call": kernel("ncclDevKernel_AllReduce", 10, 20) | {"args": call},
        "op": op("aten::mm", 2, 20, **{"External id": 5, "Input Dims": [[2, 2]]}),
        "launch": launch(2, 4),
        "step": step(1, 1, 50),
        "flow": {"ph": "s", "id": 2, "cat": "ac2g", "name": "ac2g", **common},
        "memory": {"ph": "i", "name": "[memory]", "args": memory, **common},
        "meta": {"ph": "M", "name": "process_name", "args": {"name": "python"}, **common},
        "counter": {"ph": "C", "name": "GPU 0", "args": {"x": 1}, **common},
    }
    group = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1], "pg_size": 2}
    gpu = {"id": 0, "name": "NVIDIA A100", "totalGlobalMem": 5, "numSms": 108, "computeMajor": 8}
    header = of_rank(0, 2, 10)
    header["distributedInfo"] |= {"pg_count": 1, "pg_config": [group], "nccl_version": "2.21"}
    return header | {"deviceProperties": [gpu], "with_stack": 1, "hostname": "h", "events": events}


@pytest.mark.parametrize("engine", ["compiled", "pure"])
def test_any_value_in_any_field_of_a_kineto_trace(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTK_ENGINE", engine)
    dice = Random(engine)
    mutants = [v for wrong in WRONG for v in variants(of_every_kind(), wrong)]
    for mutant in dice.sample(mutants, 120):
        events = mutant.pop("events", None) if isinstance(mutant, dict) else None
        if isinstance(events, dict):
            mutant["traceEvents"] = list(events.values())
        assert outcome(PARSERS["kineto"], json.dumps(mutant).encode()) in ("read", "failed")


def test_files_of_every_format_fail_alone(tmp_path: Path) -> None:
    """One file of each format that has a wrong value somewhere, and good ones beside them."""
    write(tmp_path / "rank0.json", kernel("gemm", 1, 2), **of_rank(0))
    for name, files in TEXTS.items():
        if name in ("job_layout", "operation_rows", "operation_timeline"):
            continue  # of a whole job: not beside files of ranks
        data = sample(name, files[0])
        mutants = some(odd_tokens(data[:6000]), Random(name)) + some(
            wrong_fields(data), Random(name)
        )
        for k, mutant in enumerate(mutants[::10]):
            (tmp_path / f"{name}_{k}_rank{k + 1}.json").write_bytes(mutant)
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    assert trace.tables["kernels"]["name"].to_pylist()[0] == "gemm"
    assert all("please report" not in why and "\n" not in why for _, why in trace.failed)


@pytest.mark.parametrize("path", BINARY, ids=lambda p: p.name)
def test_any_bytes_in_any_place_of_a_binary_file(path: Path, tmp_path: Path) -> None:
    parser = PARSERS[path.relative_to(SAMPLES).parts[0]]
    data, dice = path.read_bytes(), Random(path.name)
    for _ in range(12):
        odd = bytearray(data)
        for _ in range(dice.choice([1, 1, 4, 30])):
            at = dice.randrange(len(odd))
            odd[at : at + dice.choice([0, 1, 8])] = dice.randbytes(dice.choice([1, 1, 8]))
        copy = tmp_path / path.name
        copy.write_bytes(odd)
        try:
            source = Source(copy.name, partial(io.BytesIO, bytes(odd)), len(odd), path=copy)
            for table in parser.parse(source, ParseOptions()).tables.values():
                table.validate(full=True)
        except TraceError as error:
            assert "\n" not in str(error)
