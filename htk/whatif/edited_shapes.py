"""Shapes of operators' inputs as they are with other samples, or with sequences of another length.

A size tells what it counts by its place: the batch comes first and the length behind it, or both
are one dimension, the tokens. Where a size of the model is as large as one of these, the recording
does not tell them apart, and shapes are not told.
"""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from htk.base.columns.arrow import read_numbers
from htk.base.columns.types import Ints, take_or
from htk.physics.training_job import TrainingJob
from htk.quantities.graph.nodes import collective_rows
from htk.whatif.operator_shapes import list_matrices, operator_shapes, product_sizes
from htk.whatif.parallel import carries_activations
from htk.whatif.shapes import read_inputs
from htk.whatif.step_model import StepModel

_DIMS = re.compile(rb'("Input Dims"\s*:\s*)(\[[\[\]\d,\s]*\])')
_STRIDES = re.compile(rb'("Input Strides"\s*:\s*)(\[[\[\]\d,\s]*\])')
_CONCRETE = re.compile(rb'"Concrete Inputs"\s*:\s*\[(?:[^"\]]|"[^"]*")*\]')
_NAME = re.compile(rb'"name"\s*:\s*"([^"]*)"')
_IS_OF_PARAMETERS = re.compile(r"_foreach|_fused_|^fsdp::|chunk_cat|split_with_sizes_copy").search
_SIZES = re.compile(rb'"(\[\d[\d,\s]*\])"')
_MATRIX, _OF_EXPERTS = 2, 3  # dimensions
_LOOKED_UP = "aten::embedding"


@dataclass(frozen=True)
class EditedShapes:
    """Samples of a micro-batch and tokens of a sequence on a rank, as recorded and edited."""

    batch: int
    length: int
    new_batch: int
    new_length: int
    parts: int = 1  # ranks that share the tokens of norms
    widths: frozenset[int] = frozenset()  # of the model, which are no tokens
    sent: frozenset[int] = frozenset()  # elements of collectives of activations

    @property
    def ratio(self) -> float:
        """Tokens over those recorded."""
        return self.new_batch * self.new_length / (self.batch * self.length)

    def rewrite(self, text: bytes) -> bytes:
        """Return an event with the shapes and strides of its inputs as edited."""
        match = None if self is SAME_SHAPES else _DIMS.search(text)
        named = _NAME.search(text)
        if match is None or (named is not None and _IS_OF_PARAMETERS(named[1].decode())):
            return text
        dims = _DIMS.sub(rb"\g<1>" + self._edit_dims(match[2]), text, count=1)
        strided = _STRIDES.search(dims)
        if strided is not None:
            strides = self._restride_text(match[2], strided[2])
            dims = dims[: strided.start(2)] + strides + dims[strided.end(2) :]
        return _CONCRETE.sub(lambda listed: self._edit_values(listed[0], text), dims, count=1)

    def shape(self, shape: list[int]) -> list[int]:
        """Return the edited shape of a tensor."""
        if len(shape) == 1 and shape[0] in self.sent:
            return [round(shape[0] * self.ratio)]
        if len(shape) > 1 and shape[0] % self.batch == 0 and self.length in shape[1:]:
            later = (self.new_length if n == self.length else n for n in shape[1:])
            return [shape[0] // self.batch * self.new_batch, *later]  # of each head, perhaps
        of_tokens = [self._counts_tokens(n, several=len(shape) == _MATRIX) for n in shape]
        if any(of_tokens):
            sizes = zip(shape, of_tokens, strict=True)
            return [round(n * self.ratio) if grows else n for n, grows in sizes]
        if len(shape) > 1 and shape[0] == self.batch > 1:
            return [self.new_batch, *shape[1:]]
        return shape

    def _counts_tokens(self, size: int, *, several: bool) -> bool:
        """Return whether a size is of tokens: some of them, all, or each `several` times, as
        experts take them."""
        tokens = self.batch * self.length
        is_multiple = several and size > 0 and size % tokens == 0
        return (size in (tokens, tokens // self.parts) or is_multiple) and size not in self.widths

    @lru_cache(maxsize=4096)  # noqa: B019 - one object for each prediction
    def _edit_dims(self, text: bytes) -> bytes:
        return json.dumps(self._edit_nested(json.loads(text))).encode()

    def _edit_nested(self, dims: list[object]) -> list[object]:
        if dims and all(isinstance(n, int) for n in dims):
            return list(self.shape([n for n in dims if isinstance(n, int)]))
        return [self._edit_nested(each) if isinstance(each, list) else each for each in dims]

    @lru_cache(maxsize=4096)  # noqa: B019
    def _restride_text(self, dims: bytes, strides: bytes) -> bytes:
        return json.dumps(self._edit_strides(json.loads(dims), json.loads(strides))).encode()

    def _edit_strides(self, dims: list[object], strides: list[object]) -> list[object]:
        if len(dims) != len(strides):
            return strides
        if dims and all(isinstance(n, int) for n in (*dims, *strides)):
            sizes = [n for n in dims if isinstance(n, int)]
            steps = [n for n in strides if isinstance(n, int)]
            return list(_scaled_strides(sizes, self.shape(sizes), steps))
        return [
            self._edit_strides(size, step)
            if isinstance(size, list) and isinstance(step, list)
            else step
            for size, step in zip(dims, strides, strict=True)
        ]

    def _edit_values(self, text: bytes, event: bytes) -> bytes:
        """Return what an operator was told in numbers: sizes, and to attention the length."""

        def rewrite_sizes(listed: re.Match[bytes]) -> bytes:
            return b'"' + json.dumps(self.shape(json.loads(listed[1]))).encode() + b'"'

        text = _SIZES.sub(rewrite_sizes, text)
        if b"attention" in event:
            text = text.replace(f'"{self.length}"'.encode(), f'"{self.new_length}"'.encode())
        return text


SAME_SHAPES = EditedShapes(1, 1, 1, 1)


def hide_shapes(text: bytes) -> bytes:
    """Return an event that does not tell the shapes of its inputs."""
    return _STRIDES.sub(rb"\g<1>[]", _DIMS.sub(rb"\g<1>[]", text))


def edited_shapes(job: TrainingJob, model: StepModel, edited: StepModel) -> EditedShapes | None:
    """Return how an edited step's shapes differ from those recorded; None: it cannot be told.

    `job`: the recorded one.
    """
    batch, tokens = read_inputs(model)
    if not batch or not tokens or tokens % batch:
        return None
    longer = edited.length_scale
    length = tokens // batch
    counts = (batch * edited.token_scale / longer, length * longer)
    if not all(math.isclose(count, round(count), rel_tol=1e-6) for count in counts):
        return None
    parts = 1
    if job.sequence_parallel and job.tensor:
        parts = job.tensor
    widths = _find_widths(model)
    is_longer = not math.isclose(longer, 1.0)
    if {tokens, tokens // parts} & widths or (is_longer and length in widths):
        return None
    if batch in _find_leading_sizes(model):
        return None
    samples, later = (round(count) for count in counts)
    return EditedShapes(
        batch, length, samples, later, parts, frozenset(widths), sent_elements(model)
    )


def sent_elements(model: StepModel) -> frozenset[int]:
    """Return the sizes of collectives of activations that are those of no other collective."""
    elements = _collective_elements(model)
    sent = carries_activations(model)
    return frozenset(elements[sent].ravel().tolist()) - set(elements[~sent].ravel().tolist())


def _collective_elements(model: StepModel) -> Ints:
    """Return how many elements go into each activity and come out; 0: it is no collective."""
    comm = model.facts.tables["collectives"]
    rows = collective_rows(model.facts.tables, model.facts.rows)
    columns = (read_numbers(comm[name], 0) for name in ("in_elements", "out_elements"))
    return np.stack([take_or(column, rows, 0) for column in columns], axis=1)


def _find_widths(model: StepModel) -> set[int]:
    """Return the sizes of the model that products of the forward pass, and the table of tokens,
    show beside their rows."""
    facts = model.facts
    widths = {n for shape in _list_tables(model) for n in shape}
    forward = zip(facts.dims.codes.tolist(), facts.backward.tolist(), strict=True)
    for code in {code for code, is_backward in forward if not is_backward}:
        dims = facts.dims.distinct[code] or "[]"
        sizes = product_sizes(dims)
        widths |= set(sizes[1:]) if sizes is not None else set()
        shapes = operator_shapes(dims)[:2]
        if [len(shape) for shape in shapes] == [_MATRIX, _OF_EXPERTS]:
            widths |= set(shapes[1])
    return widths


def _find_leading_sizes(model: StepModel) -> set[int]:
    """Return the first sizes of tables and of what the optimizer works on: they are no batch."""
    facts = model.facts
    of_optimizer = {
        facts.dims.codes[i] for i in facts.family.isin("optimizer").nonzero()[0].tolist()
    }
    shapes = (operator_shapes(facts.dims.distinct[code]) for code in of_optimizer)
    weights = (shape for several in shapes for shape in several if len(shape) > 1)
    return _first_of([*weights, *_list_tables(model)])


def _first_of(shapes: Iterable[tuple[int, ...]]) -> set[int]:
    return {shape[0] for shape in shapes}


def _list_tables(model: StepModel) -> list[tuple[int, ...]]:
    pairs = model.facts.op.pairs_with(model.facts.dims)
    return [shapes[0] for op, dims in pairs if op == _LOOKED_UP and (shapes := list_matrices(dims))]


def _scaled_strides(sizes: list[int], edited: list[int], strides: list[int]) -> list[int]:
    """Return strides, each of which goes over what lies closer in memory."""
    scaled = []
    for stride in strides:
        closer = [k for k, other in enumerate(strides) if other < stride]
        old = math.prod(sizes[k] for k in closer)
        new = math.prod(edited[k] for k in closer)
        scaled.append(stride * new // max(old, 1))
    return scaled
