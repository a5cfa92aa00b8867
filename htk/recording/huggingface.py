"""Recording in transformers: `Trainer(..., callbacks=[TransformersCapture("traces/")])`."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from htk.recording.capture import capture


class TransformersCapture(TrainerCallback):
    """Record optimizer steps of `Trainer.train`; options are those of `htk.capture`.

    Where training ends with an exception, what was being recorded is lost: the trainer tells its
    callbacks nothing.
    """

    def __init__(self, folder: str | Path, **options: Any) -> None:
        self._folder = folder
        self._options = options
        self._opened = ExitStack()
        self.recording: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:
        self.recording = self._opened.enter_context(capture(self._folder, **self._options))

    def on_step_end(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:
        self.recording.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:
        self._opened.close()
