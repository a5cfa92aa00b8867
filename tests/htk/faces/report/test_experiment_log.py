"""Figures and report in real trackers: W&B offline, MLflow and TensorBoard on disk."""

import os
from pathlib import Path
from typing import Any

import pytest

import htk
from htk.base.errors import UsageError


@pytest.fixture(scope="module")
def trace() -> Any:
    return htk.open("sample")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())


def test_figures_are_those_of_the_summary(trace: Any) -> None:
    class Tracker:
        def log_metrics(self, values: dict[str, float], step: int | None) -> None:
            assert step == 7

    values = trace.log_to(Tracker(), step=7, report=False)
    rows = trace.summary().to_pylist()
    shares = {r["name"]: r["share_pct"] for r in rows if r["part"] == "time"}
    logged = {k: v for k, v in values.items() if k.startswith("htk/time_pct/")}
    assert sorted(logged.values()) == sorted(shares.values())
    assert logged["htk/time_pct/compute"] == shares["compute"]
    steps = [r["duration_ns"] for r in trace.step_times().to_pylist() if r["complete"]]
    assert min(steps) <= 1e6 * values["htk/step_ms"] <= max(steps)
    assert (values["htk/ranks"], values["htk/steps"]) == (2.0, len(steps) / 2)


def test_mlflow(trace: Any, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    mlflow.set_tracking_uri(tmp_path.as_uri())
    mlflow.set_experiment("profiles")
    with mlflow.start_run() as run:
        values = trace.log_to(mlflow, step=3)
    stored = mlflow.tracking.MlflowClient().get_run(run.info.run_id)
    assert stored.data.metrics == pytest.approx(values)
    (report,) = tmp_path.rglob("htk_report.html")
    assert "<html" in report.read_text("utf-8")[:200]


def test_tensorboard(trace: Any, tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer = tensorboard.SummaryWriter(str(tmp_path))
    values = trace.log_to(writer, step=11)
    writer.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    stored = {tag: events.Scalars(tag)[0] for tag in events.Tags()["scalars"]}
    assert {tag: e.value for tag, e in stored.items()} == pytest.approx(values, rel=1e-6)
    assert {e.step for e in stored.values()} == {11}
    assert "htk/summary/text_summary" in events.Tags()["tensors"]


def test_wandb(trace: Any, tmp_path: Path) -> None:
    """What W&B's own run is given; its file is written by another process, some time later."""
    wandb = pytest.importorskip("wandb")
    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    logged = []
    with wandb.init(dir=tmp_path, project="htk") as run:
        real = run.log

        def noted(values: dict[str, Any], **options: Any) -> None:
            logged.append((values, options))
            real(values, **options)

        run.log = noted
        values = trace.log_to(run, step=5)
    ((given, options),) = logged
    assert options == {"step": 5}
    assert {name: given[name] for name in values} == values
    assert given.keys() - values.keys() == {"htk/report"}
    assert isinstance(given["htk/report"], wandb.Html)
    (report,) = {path.resolve() for path in tmp_path.rglob("*.html")}
    assert "<html" in report.read_text("utf-8")[:200]


def test_what_is_no_tracker_is_said(trace: Any) -> None:
    with pytest.raises(UsageError, match="list is not a tracker that is known"):
        trace.log_to([])
