"""A recording under way: what `htk.capture` gives to the training loop."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Recording:
    """What is being recorded. `step()` belongs at the end of each iteration."""

    folder: Path
    rank: int
    recorded: bool  # False: this rank is not among those chosen
    needed: int  # steps until the first file is written
    hints: tuple[str, ...] = ()
    paths: list[Path] = field(default_factory=list)
    steps: int = 0
    _profiler: Any = None

    def step(self) -> None:
        """Tell that an iteration is over."""
        self.steps += 1
        if self._profiler is not None:
            self._profiler.step()
