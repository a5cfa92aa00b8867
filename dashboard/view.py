"""What a page shows, read from its address: a copied link opens the same view."""

from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, urlencode

from htk.analyses import ANALYSES, find
from htk.analysis import Option
from htk.errors import UsageError
from htk.trace import Trace
from htk.units import duration, numbers_of

FILTERS = ("ranks", "steps", "from", "to", "annotation")
_OPTION = "o."  # options of an analysis, apart from the filters


@dataclass(frozen=True)
class View:
    """A page, the filters that hold on all pages, and the options of this one."""

    page: str = ""
    filters: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, pathname: str | None, search: str | None) -> "View":
        found = {k: v[0] for k, v in parse_qs((search or "").lstrip("?")).items()}
        filters = {k: v for k, v in found.items() if k in FILTERS and v}
        options = {
            k.removeprefix(_OPTION): v for k, v in found.items() if k.startswith(_OPTION) and v
        }
        return cls((pathname or "/").strip("/"), filters, options)

    def search(self) -> str:
        """The query of the address."""
        pairs = {**self.filters, **{_OPTION + k: v for k, v in self.options.items()}}
        return "?" + urlencode(pairs) if pairs else ""

    def link(self, page: str) -> str:
        """The address of another page under the same filters."""
        return "/" + page + replace(self, options={}).search()

    def without(self, name: str) -> "View":
        return replace(self, filters={k: v for k, v in self.filters.items() if k != name})

    def with_option(self, name: str, value: Any) -> "View":
        """One option of the page's analysis set, or left out where it is the default."""
        text = "" if value is None else str(value)
        options = {k: v for k, v in self.options.items() if k != name}
        if self.page in ANALYSES and text != shown(find(self.page).options[name].default):
            options[name] = text
        return replace(self, options={k: v for k, v in options.items() if v})

    def narrowed(self, trace: Trace) -> Trace:
        """The trace, as the filters narrow it."""
        get = self.filters.get
        ranks, steps, start, end = get("ranks"), get("steps"), get("from"), get("to")
        return trace.sel(
            ranks=numbers_of(ranks) if ranks else None,
            steps=numbers_of(steps) if steps else None,
            from_ns=duration(start) if start else None,
            to_ns=duration(end) if end else None,
            annotation=get("annotation"),
        )

    def values(self, options: dict[str, Option]) -> dict[str, Any]:
        """The options that the address gives, in their types."""
        return {
            name: _typed(option, self.options[name])
            for name, option in options.items()
            if name in self.options
        }


def shown(value: Any) -> str:
    """A value of an option, as its control shows it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def _typed(option: Option, text: str) -> Any:
    kinds = str(option.type)
    try:
        if option.type is bool:
            return text == "true"
        if option.type is int or "int" in kinds:
            return int(text)
        if option.type is float or "float" in kinds:
            return float(text)
    except ValueError:
        raise UsageError(f"{option.name}: {text!r} is no number") from None
    return tuple(text.split(",")) if "tuple" in kinds else text
