"""The sizes in the events of an edited step: of launches, messages, copies and allocations, and
which GPU its header names."""

import json
import math
import re
from dataclasses import dataclass, field

from htk.base.columns.arrow import read_numbers
from htk.base.columns.types import Mask
from htk.base.schema.profile import ALLOCATION
from htk.physics.hardware import Gpu
from htk.whatif.edited_memory import Allocation
from htk.whatif.edited_shapes import sent_elements
from htk.whatif.edits.batch import mark_growing
from htk.whatif.fsdp_units import of_weights
from htk.whatif.shapes import copies_samples, read_inputs
from htk.whatif.step_model import StepModel

_GRID = re.compile(rb'("grid"\s*:\s*)\[([\d,\s]+)\]')
_WAVES = re.compile(rb'("(?:blocks|warps) per SM"\s*:\s*)([\d.eE+-]+)')
_SENT = re.compile(rb'("(?:In|Out) msg nelems"\s*:\s*)(\d+)')
_COPIED = re.compile(rb'("bytes"\s*:\s*)(\d+)')
_HELD = re.compile(rb'("(Bytes|Total Allocated|Total Reserved)"\s*:\s*)-?\d+')
_HELD_IN = (b"Bytes", b"Total Allocated", b"Total Reserved")  # an allocation, in its order
_MEMORY = f'"{ALLOCATION}"'.encode()


@dataclass
class EditedSizes:
    """Sizes by the number of an event, of those that an edit changes."""

    tokens: int = 0  # of a micro-batch on a rank, as recorded
    ratio: float = 1.0  # of them, as edited, over these
    launched: frozenset[int] = frozenset()  # kernels whose blocks grow with the tokens
    copied: frozenset[int] = frozenset()  # copies that do
    sent: frozenset[int] = frozenset()  # elements of messages that grow with the tokens
    allocations: dict[int, Allocation] | None = field(default_factory=dict)  # None: not known
    gpu: Gpu | None = None  # another one than recorded

    @classmethod
    def from_models(cls, model: StepModel, edited: StepModel) -> "EditedSizes":
        """Return the sizes in the files of all ranks; allocations are those of each file."""
        ratio = edited.token_scale
        sizes = cls(read_inputs(model).tokens or 0, ratio)
        sizes.gpu = edited.device if edited.gpu else None
        if ratio == 1:
            return sizes
        sizes.launched = frozenset(_list_events(model, mark_growing(model) & ~of_weights(model)))
        sizes.copied = frozenset(_list_events(model, copies_samples(model)))
        sizes.sent = sent_elements(model)
        return sizes

    def rewrite(self, event: int, text: bytes) -> bytes | None:
        """Return an event with its sizes as edited; None: what it tells is not known any more."""
        if _MEMORY in text:
            return self._edit_allocation(event, text)
        if event in self.launched:
            text = _GRID.sub(lambda m: m[1] + self._scale_grid(m[2]), text, count=1)
            text = _WAVES.sub(lambda m: b"%b%.6f" % (m[1], float(m[2]) * self.ratio), text)
        if event in self.copied:
            text = _COPIED.sub(self._lengthen_match, text, count=1)
        return _SENT.sub(self._longer_message, text) if self.sent else text

    def entry(self, key: str, value: bytes) -> bytes:
        """Return a member of a file's header, with the edited GPU in place of the recorded one."""
        if key != "deviceProperties" or self.gpu is None:
            return value
        now = {"name": self.gpu.device_name, "totalGlobalMem": round(self.gpu.memory_bytes)}
        return json.dumps([device | now for device in json.loads(value)]).encode()

    def _edit_allocation(self, event: int, text: bytes) -> bytes | None:
        if self.allocations is None:
            return None
        now = self.allocations.get(event)
        if now is None:
            return text
        bytes_by_name = dict(zip(_HELD_IN, now, strict=True))
        return _HELD.sub(lambda m: b"%b%d" % (m[1], bytes_by_name[m[2]]), text)

    def _lengthen_match(self, match: re.Match[bytes]) -> bytes:
        return b"%b%d" % (match[1], round(int(match[2]) * self.ratio))

    def _longer_message(self, match: re.Match[bytes]) -> bytes:
        return self._lengthen_match(match) if int(match[2]) in self.sent else match[0]

    def _scale_grid(self, text: bytes) -> bytes:
        """Return a grid of so many times the blocks, along the side that tokens are cut on."""
        sides = [int(side) for side in text.split(b",")]
        cut = (k for k, side in enumerate(sides) if side > 1 and self.tokens % side == 0)
        along = next(cut, 0)
        sides[along] = math.ceil(sides[along] * self.ratio)
        return json.dumps(sides).encode()


def _list_events(model: StepModel, chosen: Mask) -> list[int]:
    """Return the numbers of the events of some activities."""
    events = read_numbers(model.facts.tables["kernels"]["event"])[model.facts.rows[chosen]]
    return [int(event) for event in events.tolist()]
