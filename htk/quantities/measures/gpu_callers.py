"""The Python call and the nn.Module that launched each GPU activity."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, match_texts, read_numbers
from htk.base.columns.types import NONE, Ints, take_or


def python_of_kernels(
    kernel_links: pa.Table, launch_callers: pa.Table, op_callers: pa.Table
) -> Ints:
    """Return the innermost Python call round the launch of each activity, or NONE; where only its
    operator is known, the call round that."""
    launch = read_numbers(kernel_links["launch_row"], NONE)
    op = read_numbers(kernel_links["op_row"], NONE)
    of_launch = take_or(read_numbers(launch_callers["python_row"], NONE), launch)
    of_op = take_or(read_numbers(op_callers["python_row"], NONE), op)
    return np.asarray(np.where(launch != NONE, of_launch, of_op))


@dataclass(frozen=True)
class TextCodes:
    """A column of texts: a code for each row, NONE for null."""

    codes: Ints
    texts: list[str]

    @classmethod
    def from_column(cls, column: pa.ChunkedArray) -> "TextCodes":
        codes, dictionary = codes_of(column)
        return cls(codes.astype(np.int64), dictionary.to_pylist())

    @property
    def used(self) -> list[str]:
        """The texts that some row has."""
        return [self.texts[code] for code in np.unique(self.codes[self.codes != NONE]).tolist()]

    def or_else(self, other: "TextCodes") -> "TextCodes":
        """Return the texts of each row, where it has none the other's."""
        instead = np.where(other.codes == NONE, NONE, other.codes + len(self.texts))
        return TextCodes(
            np.where(self.codes == NONE, instead, self.codes), self.texts + other.texts
        )

    def among(self, names: Sequence[str]) -> Ints:
        """Return the place of each row's text among names; their number for null."""
        order = {name: k for k, name in enumerate(names)}
        places = [*(order.get(text, NONE) for text in self.texts), len(names)]
        return np.array(places, np.int64)[self.codes]


def modules_of_kernels(
    kernels: pa.Table, kernel_links: pa.Table, launch_callers: pa.Table, op_callers: pa.Table
) -> TextCodes:
    """Return the path of nn.Modules in which each activity was launched: of the Python calls open
    then, else of its operator. A hierarchy that is recorded with operators names modules in its
    own way, and goes before. What the program called a node of a graph when it captured it goes
    before both: a replay is launched in one place."""
    launch = read_numbers(kernel_links["launch_row"], NONE)
    op = read_numbers(kernel_links["op_row"], NONE)
    launching = TextCodes.from_column(launch_callers["module"])
    calling = TextCodes.from_column(op_callers["module"])
    is_recorded = take_or(match_texts(op_callers["module_by"], "hierarchy".__eq__), op, False)
    of_launch = np.where(is_recorded, NONE, take_or(launching.codes, launch))
    of_op = TextCodes(take_or(calling.codes, op), calling.texts)
    round_launch = TextCodes(of_launch, launching.texts).or_else(of_op)
    return TextCodes.from_column(kernels["graph_annotation"]).or_else(round_launch)
