"""Scrubbed traces: nothing of whose they are, everything of where the time went."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import htk
from htk.answers.export import scrub_files
from htk.answers.export.rewrite import sources_of
from htk.answers.export.scrub import Replacements
from htk.answers.export.scrub_check import Leak, check_removed_texts
from htk.base.errors import TraceError, UsageError
from htk.base.names.kinds import kind_of
from htk.faces.cli.commands.scrub import command
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.conftest import ROOT
from tests.kineto_file import kernel, launch, of_rank, op, span, step, write

SECRET = "zephyr"


def _scrub(*args: str) -> None:
    outcome = CliRunner().invoke(command, [*args], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output


def _secret_trace(path: Path, rank: int) -> Path:
    stack = f"/home/{SECRET}/train.py(7): {SECRET}\n/home/{SECRET}/run.py(1): main"
    arguments: dict[str, Any] = {
        "Input Dims": [[12288, 77], [1]],
        "Input Strides": [[77, 1], [1]],
        "Concrete Inputs": ["", SECRET],
        "Input type": ["c10::BFloat16", f"{SECRET}::Type"],
        "Call stack": stack,
        "Module Hierarchy": f"{SECRET}(Net).layer",
        f"{SECRET} key": 1,
        "extra": {"deep": [{"a": f"x {SECRET}"}, 2]},
        "text in text": json.dumps({"who": SECRET}),
    }
    function = {
        "ph": "X",
        "cat": "python_function",
        "pid": 100,
        "tid": 1,
        "ts": 0.5,
        "dur": 9,
        "args": {"Python id": 1, "Python parent id": None},
    }
    label = {"name": "process_name", "ph": "M", "pid": 1, "ts": 0, "args": {"name": SECRET}}
    events = (
        step(3, 0, 10),
        op(f"{SECRET}::op", 1, 3, **arguments),
        op("aten::addmm", 1.125, 2),
        op("autograd::engine::evaluate_function: AddmmBackward0", 4, 1),
        op(f"autograd::engine::evaluate_function: {SECRET}Backward", 5, 1),
        launch(1, 2),
        kernel(f"ampere_sgemm_{SECRET}", 3.001, 3, 1),
        kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)", 4, 4, stream=20),
        span(f"## {SECRET} ##", 1, 2),
        span(f"Optimizer.step#{SECRET}.step", 1, 2),
        span("Optimizer.step#AdamW.step", 1, 2),
        {**function, "name": f"/home/{SECRET}/train.py(7): go"},
        {**function, "name": f"nn.Module: {SECRET}_0"},
        {**label, "args": {"name": SECRET}},
        {**label, "cat": f"{SECRET} things", "ph": "i", "s": "g"},
    )
    header: dict[str, Any] = {**of_rank(rank, 2), "traceName": f"/{SECRET}/a", "host": SECRET}
    header["distributedInfo"]["pg_config"] = [{"pg_name": SECRET, "ranks": [0, 1]}]
    return write(path, *events, **header)


def _text(folder: Path) -> str:
    return "".join(gzip.decompress(f.read_bytes()).decode() for f in sorted(folder.iterdir()))


@pytest.fixture
def scrubbed(tmp_path: Path) -> Path:
    for rank in (0, 1):
        _secret_trace(tmp_path / f"in/{SECRET}_rank{rank}.json", rank)
    _scrub(str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--no-cache")
    return tmp_path / "out"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()


def test_nothing_secret_is_left(scrubbed: Path) -> None:
    text = _text(scrubbed)
    assert SECRET not in text.lower() and "/home" not in text and "train.py" not in text
    assert "12288" not in text and "77" not in text and '"Input Dims": []' in text
    assert not any(SECRET in file.name for file in scrubbed.iterdir())


def test_hta_finds_the_ranks(scrubbed: Path) -> None:
    pytest.importorskip("hta", reason="HTA is an extra")
    from hta.trace_analysis import TraceAnalysis

    theirs = TraceAnalysis(trace_dir=str(scrubbed), include_last_profiler_step=True)
    assert sorted(theirs.t.get_ranks()) == [0, 1]


def test_both_engines_write_the_same(
    scrubbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTK_ENGINE", "pure")
    traces = [str(_secret_trace(tmp_path / f"again{rank}.json", rank)) for rank in (0, 1)]
    _scrub(*traces, "-o", str(tmp_path / "pure"))
    assert _text(tmp_path / "pure") == _text(scrubbed)


def test_what_is_public_stays(scrubbed: Path) -> None:
    text = _text(scrubbed)
    for kept in ("aten::addmm", "AddmmBackward0", "ncclDevKernel_AllReduce", "ProfilerStep#3"):
        assert kept in text
    assert "Optimizer.step#AdamW.step" in text and "c10::BFloat16" in text


def test_ranks_share_names_and_times_stay(scrubbed: Path) -> None:
    first, second = (
        json.loads(gzip.decompress(f.read_bytes()))["traceEvents"]
        for f in sorted(scrubbed.iterdir())
    )
    assert [e["name"] for e in first] == [e["name"] for e in second]
    assert '"ts": 3.001' in _text(scrubbed)


def test_the_sample_scrubbed_answers_the_same(tmp_path: Path) -> None:
    _scrub("sample", "-o", str(tmp_path / "out"))
    whole, copy = htk.open("sample"), htk.open(tmp_path / "out")
    for name in ("time_breakdown", "kernel_kinds", "comm_wait", "step_times", "idle_breakdown"):
        assert copy.ask(name).to_pylist() == whole.ask(name).to_pylist(), name
    kinds = ["family", "count", "total_ns"]
    a, b = (t.kernel_families().to_arrow().select(kinds).to_pylist() for t in (whole, copy))
    assert a == b


PLANTED = {
    # as a text behind a key of its own, in the arguments of an operator
    "hostname": "10.120.30.41",
    "address6": "fd12:3456:789a::1",
    "uuid": "GPU-5d3fa8c2-0f7b-4c1e-9b1c-1f0c5a7d9e21",
    "date": "2024-05-01",
    "moment": "2024-05-01T10:11:12.123Z",
    "serial": "0324519023456",
    "mac": "0c:42:a1:5e:77:d0",
    "release": "17.120.33",
    "float": "3.14159265e+17",
    "hexadecimal": "0xdeadbeefcafe",
    "one": "q",
    "two": "zq",
    "person": "Zoë Quist-Åberg",
    "escaped": 'tab\there \\ and "quotes" é',
    "mail": "z.quist@acme.example",
    "url": "https://acme.example/job/7?token=abcdef",
    "path": "/home/zquist/secret/train.py",
    "windows": "C:\\Users\\zquist\\train.py",
    "list as text": '["acme-a1", "acme-a2"]',
    "object as text": '{"acme-b1": "acme-b2"}',
    "Collective name": "send_to_acme_corp",
    "dtype": "Float8_acme",
    "Process Group Name": "gather_acme_results",
    "Process Group Description": "mesh_acmesecret",
    "Process Group Ranks": "reduce_acme",
    "Backend": "nccl_acme",
    "kind": "allreduce acme",
    "stream_id": "stream acme",
    "grid": "10.1.2.3",
    "External id": "10.20.30.40",
    "Trace name": "acme-trace-name",
    "kernel_file": "/tmp/torchinductor_zquist/cacmehash.py",
    "kernel_hash": "cacmehash7x3kq",
    "Call stack": "acme/a.py(7): fa;acme/b.py(9): fb",
    "Module Hierarchy": "AcmeNet(Net).layer",
}
PLANTED_NAMES = [  # of events
    "cudaAcmeSecretProject", "hipAcmeSecretProject", "cuAcmeSecret", "aten::acme_secret_op",
    "c10d::acme_secret", "nccl:acme_secret", "nccl:send acme 0->1", "FSDP::acme_secret",
    "ncclKernel_AcmeAnything", "ncclDevKernel_AllReduce_Sum_acme", "ProfilerStep#acme",
    "prims::acme", "fsdp::acme", "AcmeBackward0", "nn.Module: AcmeLayer_0", "pg_acme_secret",
    "autograd::engine::evaluate_function: AcmeBackward1", "Optimizer.step#AcmeAdam.step",
    "## acme forward ##", "Torch-Compiled Region: acme/0", "Memcpy HtoD (Acme -> Device)",
    "FullyShardedDataParallel.acme_forward", "FSDP::all_gather (acme_layer.0)",
    "enumerate(DataLoader)#_AcmeDataLoaderIter.__next__", "all_reduce_acme", "reduce_acme_corp",
]  # fmt: skip
PLANTED_EVENT_KEYS = {"acme event key": "acme-event-value", "tenant": {"acme-deep": ["acme-list"]}}
PLANTED_NUMBERS = {
    "acme serial": 48151623421,
    "badge": {"deep": [2718281828, {"x": 1}, 31415926535]},
}
PLANTED_HEADER = {
    "trace_id": "A1B2C3D4ACME", "traceName": "/home/zquist/acme.json", "host_name": "acme-host-7",
    "username": "zquist", "nccl_version": "acme-2.21", "displayTimeUnit": "acme-unit",
    "with_stack": "acme-stack", "schemaVersion": "acme-schema", "acme header key": "acme-member",
    "INFO": ["INFO:2024-05-01 10:11:12 acme"], "cuda_runtime_version": "acme-runtime",
    "otherData": {"acme-other": "acme-other-value"},
}  # fmt: skip


def _planted(path: Path) -> Path:
    device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-acme-77", "numSms": 132}
    devices = [device, {"id": 1, "name": "Acme H100 prototype", "serial": 161803398874}]
    groups = [{"pg_name": "acme-group", "pg_desc": "mesh_acme_dp", "ranks": [0, 1]}]
    header = {**of_rank(0, 2), **PLANTED_HEADER, "deviceProperties": devices}
    header["distributedInfo"] |= {"pg_config": groups, "pg_text": json.dumps(groups)}
    metadata = {"ph": "M", "name": "process_name", "pid": 1, "ts": 0}
    events = [
        {**op("aten::addmm", 1, 3, **{**PLANTED, **PLANTED_NUMBERS}), **PLANTED_EVENT_KEYS},
        *(op(name, 5 + n, 1) for n, name in enumerate(PLANTED_NAMES)),
        {**op("aten::mm", 50, 1), "cat": "acme-category", "id": "acme-id", "bp": "acme-bp"},
        {**metadata, "args": {"name": "acme-process", "labels": "GPU acme"}},
        {"ph": "acme-phase", "name": "thread_name", "pid": "acme-pid", "tid": "acme-tid", "ts": 1},
        launch(1, 2), launch(2, 3),
        kernel("void acme_kernels::AcmeFused<float>(AcmeParams)", 100, 3, 1),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 110, 4, 2, 20),
    ]  # fmt: skip
    return write(path, *events, **header)


def _every(value: Any) -> list[Any]:
    """Every key, text and number of a document."""
    if isinstance(value, dict):
        return [item for k, v in value.items() for item in (k, *_every(v))]
    return [i for v in value for i in _every(v)] if isinstance(value, list) else [value]


def _originals() -> list[Any]:
    nested = [PLANTED, PLANTED_EVENT_KEYS, PLANTED_NUMBERS, PLANTED_HEADER]
    public = {"hostname", "host_name", "username", "x", 1, "float", "grid", "name"}
    known = {"Call stack", "Module Hierarchy", "Collective name", "dtype", "Backend", "kind",
             "Process Group Name", "Process Group Description", "Process Group Ranks", "stream_id",
             "External id", "Trace name", "kernel_file", "kernel_hash", "trace_id", "traceName",
             "nccl_version", "displayTimeUnit", "with_stack", "schemaVersion", "date",
             "cuda_runtime_version"}  # fmt: skip
    return [
        *(item for item in _every([*nested, PLANTED_NAMES]) if item not in public | known),
        *("acme-a1", "acme-b1", "acme/a.py(7): fa", "GPU-acme-77", "Acme H100 prototype"),
        *("acme-group", "mesh_acme_dp", "acme-process", "GPU acme", "acme-category", "acme-id"),
        *("acme-bp", "acme-phase", "acme-pid", "acme-tid", "AcmeFused", "acme_kernels"),
        161803398874,
    ]


def test_no_planted_original_survives(tmp_path: Path) -> None:
    path = _planted(tmp_path / "in/a.json")
    _scrub(str(path), "-o", str(tmp_path / "out"), "--no-cache")
    (file,) = (tmp_path / "out").iterdir()
    text = gzip.decompress(file.read_bytes()).decode()
    items = _every(json.loads(text))
    originals = _originals()
    assert len(originals) > 100
    assert [o for o in originals if o in items] == []
    texts = [item for item in items if isinstance(item, str)]
    parts = [o for o in originals if isinstance(o, str) and len(o) >= 4]
    assert [(p, t) for p in parts for t in texts if p in t and p not in ("GPU-", "date")] == []
    assert "acme" not in text.lower() and "zquist" not in text
    for stays in ("aten::addmm", "NVIDIA H100 80GB HBM3", '"numSms": 132', "process_name"):
        assert stays.replace(" ", "") in text.replace(" ", ""), stays


def test_what_is_equal_stays_equal(tmp_path: Path) -> None:
    names = ["acme::a", "acme::b", "acme::a", "acme::c", "acme::b"]
    events = [op(name, n, 1, who=name) for n, name in enumerate(names)]
    _scrub(str(write(tmp_path / "in/a.json", *events, **of_rank(0))), "-o", str(tmp_path / "out"))
    (file,) = (tmp_path / "out").iterdir()
    written = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert [e["name"] for e in written] == ["op_1", "op_2", "op_1", "op_3", "op_2"]
    assert [list(e["args"].values()) for e in written] == [[e["name"]] for e in written]
    assert len({key for e in written for key in e["args"]}) == 1


def test_a_file_of_several_cycles_and_processes_is_written_once(tmp_path: Path) -> None:
    steps = [step(number, 100 * k, 10) for k, number in enumerate((1, 2, 1, 2, 1, 2))]
    ops = [op(f"{SECRET}::{k}", 100 * k + 1, 2) for k in range(6)]
    elsewhere = [{**event, "pid": 4711} for event in (*steps, *ops)]
    write(tmp_path / "in/rank-0.json", *steps, *ops, *elsewhere, **of_rank(0, 4))
    write(tmp_path / "in/rank-3.json", *steps, *ops, **of_rank(3, 4))
    assert len(open_trace(tmp_path / "in", OpenOptions(cache=False)).files) > 2
    _scrub(str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--no-cache")
    counts = {
        file.name: len(json.loads(gzip.decompress(file.read_bytes()))["traceEvents"])
        for file in (tmp_path / "out").iterdir()
    }
    assert counts == {"rank0.pt.trace.json.gz": 24, "rank3.pt.trace.json.gz": 12}


def test_keep_says_what_it_keeps(tmp_path: Path) -> None:
    path = _planted(tmp_path / "in/a.json")
    arguments = [str(path), "-o", str(tmp_path / "out"), "--keep", "aten::acme.*|acme-host-7"]
    outcome = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    assert "--keep keeps 2 texts: acme-host-7, aten::acme_secret_op" in outcome.output
    text = _text(tmp_path / "out")
    assert "aten::acme_secret_op" in text and text.lower().count("acme") == 2
    with pytest.raises(UsageError, match="regular expression"):
        again = [str(path), "-o", str(tmp_path / "again"), "--keep", "("]
        CliRunner().invoke(command, again, catch_exceptions=False, standalone_mode=False)


def test_a_leak_is_found_and_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _planted(tmp_path / "in/a.json")

    def leaking(self: Replacements, text: str) -> str:
        self.removed |= {text} - {""}
        return text if text == "acme-host-7" else "x_1"

    monkeypatch.setattr(Replacements, "name", leaking)
    with pytest.raises(Leak, match="'acme-host-7' was replaced and is still"):
        scrub_files.scrub_files(
            htk.open(path, cache=False), sources_of(str(path)), tmp_path / "out"
        )
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("written", "removed", "leaks"),
    [
        ({"a": "zq"}, "zq", True),
        ({"zq": 1}, "zq", True),
        ({"a": ["b", {"c": "zq"}]}, "zq", True),
        ({"a": "xzqx"}, "zq", False),  # shorter than eight: as a whole alone
        ({"a": "x1234567x"}, "1234567", False),
        ({"a": "xabcdefghx"}, "abcdefgh", True),
        ({"a": "über abcdefgé"}, "abcdefgé", True),
        ({"a": '\t"abcdefgh'}, '"abcdefgh', True),
        ({"a": "aten::mm"}, "aten::mm", False),  # a part of what everybody may read
        ({"stream": "123456789"}, "123456789", False),  # a number where numbers stand
        ({"a": "123456789"}, "123456789", True),
        ({"a": "op_12"}, "op_12", False),  # what replacements look like
    ],
)
def test_the_check_finds_wholes_and_parts(
    tmp_path: Path, written: Any, removed: str, leaks: bool
) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"traceEvents": [written] * 3}, indent=1, ensure_ascii=False))
    if leaks:
        with pytest.raises(Leak):
            check_removed_texts([file], [removed, "never there at all"])
    else:
        check_removed_texts([file], [removed, "never there at all"])


def test_scrubbed_twice(tmp_path: Path) -> None:
    path = _planted(tmp_path / "in/a.json")
    _scrub(str(path), "-o", str(tmp_path / "out"), "--no-cache")
    _scrub(str(tmp_path / "out"), "-o", str(tmp_path / "again"), "--no-cache")


def test_damage_hides_nothing(tmp_path: Path) -> None:
    """A quote that is lost turns text and punctuation round."""
    text = _planted(tmp_path / "in/a.json").read_text()
    whole = text.index('"aten::mm"')
    for n, damaged in enumerate(
        (
            text[:whole] + text[whole + 1 :],
            text[: whole + 9] + text[whole + 10 :],
            text[: len(text) // 2],
            text.replace('"ph": "X"', '"ph": "X", \x00acme', 1),
        )
    ):
        path = tmp_path / f"in/damaged{n}.json"
        path.write_text(damaged)
        _scrub(str(path), "-o", str(tmp_path / f"out{n}"), "--no-cache")
        assert "acme" not in _text(tmp_path / f"out{n}").lower()


def test_files_of_other_recorders_beside_a_trace_are_not_written(tmp_path: Path) -> None:
    _planted(tmp_path / "in/a.json")
    dump = tmp_path / "in/nccl_trace_rank_0.json"
    source = next((ROOT / "sample_traces/flight_recorder/json_v2.10").iterdir())
    dump.write_bytes(source.read_bytes())
    _scrub(str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--no-cache")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["rank0.pt.trace.json.gz"]


def test_what_has_no_timeline_is_refused_in_a_line(tmp_path: Path) -> None:
    dumps = str(ROOT / "sample_traces/flight_recorder/json_v2.10")
    outcome = CliRunner().invoke(command, [dumps, "-o", str(tmp_path / "out")])
    assert isinstance(outcome.exception, TraceError)
    assert "flight_recorder has no events on a timeline" in str(outcome.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name",
    [
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        "__amd_rocclr_fillBufferAligned.kd",
        "__amd_rocclr_copyBuffer.kd",
        "ampere_sgemm_32x128_tn",
        "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128> >(flash::Flash_fwd_params)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::mine>(int)",
        "void at::native::reduce_kernel<512, 1, float>(float)",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>(float)",
        "triton_poi_fused_add_mul_3",
        "something_of_mine",
    ],
)
def test_a_kernels_new_name_tells_its_family(name: str) -> None:
    new = Replacements(kernels=[name]).name(name)
    was, now = kind_of(name, "kernel"), kind_of(new, "kernel")
    assert new != name
    assert (now.kind, now.family, now.tensor_core) == (was.kind, was.family, was.tensor_core)
