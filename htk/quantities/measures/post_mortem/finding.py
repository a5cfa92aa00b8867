"""One finding of a post-mortem, in words and as a row."""

from dataclasses import dataclass

from htk.base.mappings import Fields
from htk.quantities.measures.call_history import CallSite, GroupId


@dataclass(frozen=True)
class Finding:
    """What was findings, of whom, and which source shows it."""

    what: str
    ranks: tuple[int, ...]
    site: CallSite | None
    type: str | None
    words: str
    frames: str | None = None
    decided: bool = True
    excluded: tuple[int, ...] = ()  # without which a restart may go well
    source: str | None = None
    group_desc: str | None = None
    has_open_group: bool = False  # it may have more ranks than are told of

    @property
    def group(self) -> GroupId | None:
        return self.site.group if self.site else None

    def row(self, ranks: str) -> Fields:
        """Return its row; `ranks` are those it is about, in words."""
        group = self.group
        members = ",".join(map(str, group.ranks)) if group and not self.has_open_group else ""
        return {
            "finding": self.what,
            "ranks": ranks,
            "group": group.name if group else None,
            "group_desc": self.group_desc,
            "group_ranks": f"[{members}]" if members else None,
            "seq": self.site.seq if self.site else None,
            "type": self.type,
            "source": self.source,
            "text": self.words,
            "frames": self.frames,
        }
