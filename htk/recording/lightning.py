"""Recording in Lightning: `Trainer(callbacks=[LightningCapture("traces/", at_steps=[100])])`."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback

from htk.recording.capture import capture


class LightningCapture(Callback):
    """Record optimizer steps of `Trainer.fit`; options are those of `htk.capture`."""

    def __init__(self, folder: str | Path, **options: Any) -> None:
        self._folder = folder
        self._options = options
        self._opened = ExitStack()
        self._step = 0
        self.recording: Any = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._step = trainer.global_step
        self.recording = self._opened.enter_context(capture(self._folder, **self._options))

    def on_train_batch_end(self, trainer: Any, *_args: Any, **_kwargs: Any) -> None:
        if trainer.global_step != self._step:  # the last batch of those that are accumulated
            self._step = trainer.global_step
            self.recording.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._opened.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._opened.close()
