"""A column of texts that is asked about by its distinct texts, of which there are few."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import codes_of
from htk.base.columns.groups import Groups, number_values
from htk.base.columns.types import Ints, Mask, take_or

_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True, eq=False)
class CodedTexts(Sequence[str | None]):
    """Texts of rows, None where there is none: a code for each row, and the text of each code."""

    codes: Ints
    distinct: tuple[str | None, ...]

    @classmethod
    def from_texts(cls, texts: Iterable[str | None]) -> "CodedTexts":
        """Return these texts."""
        code_of: dict[str | None, int] = {}
        codes = [code_of.setdefault(text, len(code_of)) for text in texts]
        return cls(np.array(codes, np.int64), tuple(code_of))

    @classmethod
    def taken(cls, column: pa.Array | pa.ChunkedArray, rows: Ints) -> "CodedTexts":
        """Return the texts of these rows of a column; of row -1 none."""
        codes, dictionary = codes_of(column)
        chosen = take_or(codes, rows).astype(np.int64)
        used, new = number_values(chosen)
        texts = [*dictionary.take(pa.array(used[used >= 0])).to_pylist()]
        return cls(new, tuple([None] * (len(used) - len(texts)) + texts))

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[str | None]:
        return map(self.distinct.__getitem__, self.codes.tolist())

    @overload
    def __getitem__(self, row: int) -> str | None: ...
    @overload
    def __getitem__(self, row: slice) -> list[str | None]: ...
    def __getitem__(self, row: int | slice) -> str | list[str | None] | None:
        if isinstance(row, slice):
            return [self.distinct[code] for code in self.codes[row].tolist()]
        return self.distinct[int(self.codes[row])]

    def isin(self, *texts: str) -> Mask:
        """Return which rows hold one of these texts."""
        return self.where(lambda text: text in texts)

    def where(self, wanted: Callable[[str], object]) -> Mask:
        """Return which rows hold a text that is wanted; asked once for each distinct text."""
        return self.mapped(lambda text: bool(text is not None and wanted(text)), np.bool_)

    def mapped(self, to: Callable[[str | None], object], kind: type[_Scalar]) -> NDArray[_Scalar]:
        """Return a value for each row; asked once for each distinct text."""
        return np.array([to(text) for text in self.distinct], kind)[self.codes]

    def rows(self, rows: Ints) -> "CodedTexts":
        """Return the texts of these rows."""
        return CodedTexts(self.codes[rows], self.distinct)

    def with_more(self, texts: Iterable[str | None]) -> "CodedTexts":
        """Return these texts and more rows behind them."""
        code_of = {text: code for code, text in enumerate(self.distinct)}
        more = [code_of.setdefault(text, len(code_of)) for text in texts]
        return CodedTexts(np.append(self.codes, np.array(more, np.int64)), tuple(code_of))

    def followed_by(self, others: "CodedTexts") -> "CodedTexts":
        """Return these texts and others behind them."""
        grown = self.with_more(others.distinct)
        codes = grown.codes[len(self) :][others.codes]
        return CodedTexts(np.append(self.codes, codes), grown.distinct)

    def without(self, rows: Mask) -> "CodedTexts":
        """Return the texts with none in these rows."""
        emptied = self.with_more([None])
        codes = np.where(rows, emptied.codes[-1], self.codes)
        return CodedTexts(codes, emptied.distinct)

    def pairs_with(self, other: "CodedTexts") -> list[tuple[str | None, str | None]]:
        """Return the distinct pairs of texts of both, in the order of their first rows."""
        pairs = Groups.by_keys([self.codes, other.codes])
        codes = pairs.keys[np.argsort(pairs.first_row)]
        return [(self.distinct[a], other.distinct[b]) for a, b in codes.tolist()]
