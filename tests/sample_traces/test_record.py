"""How GPU traces are recorded, played through where there is no GPU: tensors stay on the CPU."""

import json
import runpy
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

SCRIPT = Path(__file__).parents[2] / "sample_traces/record.py"
MEASURED = {"gpu", "driver", "torch", "cuda", "shape", "micro_batch"}


class Replayed:
    """A CUDA graph that runs what was captured, which here is what ran last."""

    replays = 0
    capturable = False

    def replay(self) -> None:
        Replayed.replays += 1
        torch.ones(8) @ torch.ones(8)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The script's names, with a model that takes no time and a GPU that is none."""
    from torch.overrides import TorchFunctionMode

    class OnCpu(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
            given = dict(kwargs or {})
            if given.get("device") == "cuda":
                given["device"] = "cpu"
            return function(*args, **given)

    adam = torch.optim.AdamW

    def optimizer(parameters: Any, lr: float, capturable: bool) -> Any:
        Replayed.capturable = capturable  # which a CPU refuses to be
        return adam(parameters, lr=lr)

    monkeypatch.setattr(torch.optim, "AdamW", optimizer)
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda self: self)
    for name, value in {
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "get_device_name": lambda: "A GPU",
        "Stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
        "current_stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
        "stream": lambda one: nullcontext(),
        "CUDAGraph": Replayed,
        "graph": lambda one: nullcontext(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    found = runpy.run_path(str(SCRIPT))
    used = found["micro_batches"].__globals__
    used["LARGE"] = found["Shape"](layers=1, hidden=16, heads=2, sequence=8, vocabulary=32)
    used["TIMED_STEPS"], used["MICRO_BATCHES"] = 3, (1, 2, 4)
    with OnCpu():
        yield found


def note(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "measured.json").read_text())
    assert found.keys() >= MEASURED
    return found


def steps(folder: Path) -> set[str]:
    from htk.traces.trace.opening import OpenOptions, open_trace

    trace = open_trace(folder / "rank0.pt.trace.json.gz", OpenOptions(cache=False))
    assert trace.tables["cpu_ops"].num_rows
    names = trace.tables["annotations"]["name"].to_pylist()
    return {n for n in names if n.startswith("ProfilerStep#")}


@pytest.mark.filterwarnings("ignore")
def test_each_micro_batch_has_a_trace_and_the_time_without_profiler(
    script: Any, tmp_path: Path
) -> None:
    """What does not fit says so, and the next is recorded."""
    used = script["micro_batches"].__globals__
    fitting = used["_on_gpu"]

    def limited(shape: Any, batch: int, folder: Path) -> None:
        if batch == 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        fitting(shape, batch, folder)

    used["_on_gpu"] = limited
    script["micro_batches"](tmp_path)
    for batch in (1, 4):
        told = note(tmp_path / f"micro_batch_{batch}")
        assert told["micro_batch"] == batch and len(told["measured_step_ms_all"]) == 3
        assert sorted(told["measured_step_ms_all"])[1] == told["measured_step_ms"] > 0
        assert len(steps(tmp_path / f"micro_batch_{batch}")) == 3
    assert note(tmp_path / "micro_batch_2")["out_of_memory"] is True
    assert not (tmp_path / "micro_batch_2/rank0.pt.trace.json.gz").exists()


@pytest.mark.filterwarnings("ignore")
def test_unfused_norms_and_graphs(script: Any, tmp_path: Path) -> None:
    script["eager_norm"](tmp_path / "eager_norm")
    assert note(tmp_path / "eager_norm")["shape"]["fused_norm"] is False
    assert len(steps(tmp_path / "eager_norm")) == 3
    assert not Replayed.capturable
    script["cuda_graph"](tmp_path / "cuda_graph")
    assert Replayed.capturable
    assert note(tmp_path / "cuda_graph")["micro_batch"] == 1
    assert Replayed.replays == 5 + 3 + 6, "to warm up, timed, and profiled with its own warm-up"


def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["record.py", "--gpu"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert "no CUDA GPU here" in capsys.readouterr().err
