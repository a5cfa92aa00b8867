"""What a predicted trace was made of: the recording's files and the edits, in a note beside it.

Events that were moved do not show all of the edited job: how often a step accumulates, what a
kernel works on. Edits of a prediction are therefore made of its recording, with those before them.
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from htk.answers.export.rewrite import sources_of
from htk.base.errors import TraceError, UsageError
from htk.traces.trace.opening import open_trace
from htk.traces.trace.trace import Trace
from htk.whatif.composed_edits import Edit

NOTE = ".htk-whatif.json"


@dataclass(frozen=True)
class Prediction:
    """A predicted trace: the files it was made of, with what they were like, and the edits."""

    files: tuple[tuple[str, str | None], ...]
    edits: tuple[Edit, ...]

    def __str__(self) -> str:
        words = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in self.edits)
        return f"predicted from {', '.join(name for name, _ in self.files)} with {words}"

    def open_recording(self) -> Trace:
        """Return the recording; raise UsageError where it is not there as it was."""
        names = [name for name, _ in self.files]
        try:
            now = {name: source.identity for name, source in sources_of(names).items()}
        except TraceError as error:
            raise UsageError(f"{self}, which a what-if needs: {error}") from error
        if now != dict(self.files):
            raise UsageError(f"{self}, which has changed since: write the prediction anew")
        return open_trace(names)


def note_prediction(trace: Trace, edits: tuple[Edit, ...], folder: Path) -> None:
    """Write down what the predicted trace in a folder was made of."""
    sources = sources_of([part.file for part in trace.files])
    files = tuple((str(s.path or name), s.identity) for name, s in sources.items())
    (folder / NOTE).write_bytes(msgspec.json.encode(Prediction(files, edits)))


def read_prediction(trace: Trace) -> Prediction | None:
    """Return what a trace was predicted from; None: it is a recording."""
    note = Path(trace.files[0].file).parent / NOTE
    try:
        return msgspec.json.decode(note.read_bytes(), type=Prediction)
    except (OSError, msgspec.ValidationError, msgspec.DecodeError):
        return None
