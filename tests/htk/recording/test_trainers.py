"""Callbacks of trainers, in the trainers themselves."""

import os
from pathlib import Path
from typing import Any

import pytest

import htk

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        os, "environ", os.environ | {"CUDA_VISIBLE_DEVICES": "", "WANDB_MODE": "disabled"}
    )


def steps_of(path: Path) -> list[int]:
    """The numbers of the profiler steps in a file."""
    column = htk.open(path).tables["annotations"]["step"].drop_null()
    return sorted(set(column.to_pylist()))


def rows(count: int) -> Any:
    return [{"x": torch.ones(4), "labels": torch.zeros(1)} for _ in range(count)]


@pytest.mark.parametrize("fails", [False, True])
def test_lightning_records_optimizer_steps(tmp_path: Path, fails: bool) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from htk.recording.lightning import LightningCapture

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            if fails and index == 13:
                raise ZeroDivisionError
            return self.layer(batch["x"]).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    callback = LightningCapture(tmp_path / "traces", at_steps=[4], active=2, environment=False)
    trainer = lightning.Trainer(
        callbacks=[callback],
        accumulate_grad_batches=2,
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=tmp_path,
    )
    loader = torch.utils.data.DataLoader(rows(20), batch_size=1)
    if fails:
        with pytest.raises(ZeroDivisionError):
            trainer.fit(Model(), loader)
    else:
        trainer.fit(Model(), loader)
    assert callback.recording.steps == (6 if fails else 10), "two batches a step"
    (path,) = callback.recording.paths
    assert steps_of(path) == [4, 5]
    operators = htk.open(path).op_breakdown(n=0).to_pylist()
    backward = [r["count"] for r in operators if r["op"].endswith(": AddmmBackward0")]
    assert sum(backward) == 4


def test_transformers_records_optimizer_steps(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from htk.recording.huggingface import TransformersCapture

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any) -> Any:
            return {"loss": (self.layer(x) - labels).sum()}

    callback = TransformersCapture(tmp_path / "traces", at_steps=[3], active=2, environment=False)
    trainer = transformers.Trainer(
        Model(),
        transformers.TrainingArguments(
            output_dir=str(tmp_path),
            max_steps=6,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=2,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            remove_unused_columns=False,
        ),
        train_dataset=rows(20),
        callbacks=[callback],
    )
    trainer.train()
    assert callback.recording.steps == 6
    (path,) = callback.recording.paths
    assert steps_of(path) == [3, 4]
