"""Tasks that tests give to worker processes, in a module that is imported fast."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from htk.base.errors import UsageError


def doubled(value: int) -> int:
    if value < 0:
        raise UsageError(f"{value} is below zero")
    return 2 * value


@dataclass(frozen=True)
class Deadly:
    """Ends its process at one item, the first times that it is asked."""

    folder: Path
    item: int
    times: int

    def __call__(self, item: int) -> tuple[int, int]:
        tries = len(list(self.folder.glob(f"{item}-*")))
        (self.folder / f"{item}-{tries}").touch()
        if item == self.item and tries < self.times:
            os.kill(os.getpid(), signal.SIGKILL)
        return item, os.getpid()


@dataclass(frozen=True)
class Meeting:
    """Waits until each of two items has begun: for ever, were one done after the other."""

    folder: Path

    def __call__(self, item: int) -> tuple[int, int]:
        (self.folder / f"{item}").touch()
        patience = time.monotonic() + 300
        while not (self.folder / f"{1 - item}").exists():
            if time.monotonic() > patience:
                raise UsageError("the other item never began")
            time.sleep(0.01)
        return item, os.getpid()
