"""Which rank a process is: NCCL's log names processes, and ranks by communicator."""

from collections import defaultdict

import pyarrow as pa

Process = tuple[str, str]


class Processes:
    """The processes that made communicators, and the ranks that they have in them."""

    def __init__(self, comm_inits: pa.Table) -> None:
        self.of_member: dict[tuple[str, int], Process] = {}
        self._members: dict[str, dict[Process, int]] = defaultdict(dict)
        self.sizes: dict[str, int] = {}
        self.ended: dict[tuple[str, int], str] = {}  # by destroy or abort
        for row in comm_inits.to_pylist():  # a few for each communicator
            comm = name_communicator(row["comm_hash"], row["group"])
            if comm is None or row["comm_rank"] is None or row["process"] is None:
                continue
            if row["phase"] in ("destroy", "abort"):
                self.ended[comm, row["comm_rank"]] = row["phase"]
            process = row["host"] or "", row["process"]
            self.of_member[comm, row["comm_rank"]] = process
            self._members[comm][process] = row["comm_rank"]
            self.sizes[comm] = row["group_size"] or 0
        self.ranks = self._global_ranks()

    def _global_ranks(self) -> dict[Process, int]:
        """Return the rank of each process in the job, if one communicator holds all of them."""
        everyone = {process for members in self._members.values() for process in members}
        most = max(self.sizes.values(), default=0)
        for comm, members in self._members.items():
            if self.sizes[comm] == most and members.keys() == everyone and len(everyone) > 1:
                return dict(members)
        return {}

    def have_ended(self, comm: str) -> bool:
        """Return whether every member that the log tells of has torn a communicator down."""
        members = {member for member in self.of_member if member[0] == comm}
        return bool(members) and members <= self.ended.keys()

    def rank_of(self, host: str | None, process: str | None) -> int | None:
        """Return the rank of a process in the job; without a host if only one has its number."""
        if process is None:
            return None
        rank = self.ranks.get((host or "", process))
        alike = [rank for (_, pid), rank in self.ranks.items() if pid == process]
        return rank if rank is not None or host else alike[0] if len(alike) == 1 else None


def name_communicator(comm_hash: int | None, group: str | None) -> str | None:
    """Name a communicator: by its hash, or by the split that it comes from."""
    return f"{comm_hash:#x}" if comm_hash is not None else group
