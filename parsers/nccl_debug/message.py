"""One message of one process, as a line of the log holds it."""

from dataclasses import dataclass

NAME = "nccl_debug"


@dataclass(frozen=True)
class Message:
    """A message with the process and thread that wrote it; no host where a build leaves it out."""

    host: str | None
    pid: str
    tid: str
    device: int | None
    level: str
    text: str
    offset: int
    time_ns: int | None  # that NCCL wrote
    line_ns: int | None  # else that of what it was written behind

    @property
    def process(self) -> tuple[str, str]:
        return self.host or "", self.pid
