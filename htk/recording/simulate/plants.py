"""Things to find: what is wrong on purpose, where, and by how much."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.types import Ints
from htk.base.mappings import Fields
from htk.recording.simulate.config import Config
from htk.recording.simulate.groups import Group
from htk.recording.simulate.instructions import Activity

_FACTORS = {"straggler": 1.25, "slow_link": 2.5, "cpu_bound": 6.0, "regressed_kernel": 1.6}
_STALL_MS = 60.0
_STARVED_MS = 40.0
_RETRY_MS = 8.0
_RETRIES = 3  # in a step
_CLOCK_MS = 2.5  # a second host is ahead by so much
_UNLINKED = 40  # the launch, by number, that is not recorded


class Plants:
    """What was not given with a plant is drawn, or usual. Steps are counted from the first."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._options = config.planted
        self._drawn = int(np.random.default_rng([config.seed, 41]).integers(0, config.ranks))
        usual = "silu_functor" if config.decoder.gated else "gelu_functor"
        self.regressed = str(self._options.get("regressed_kernel", {}).get("name", usual))
        # Asked for at each launch of each step.
        self._link_factors: dict[tuple[str, ...], NDArray[np.float64]] = {}
        self._is_regressed = self.has("regressed_kernel")
        self._regressed_from = self._find_step("regressed_kernel")
        self._regressed_by = self._build_slowdowns("regressed_kernel")

    def has(self, name: str) -> bool:
        return name in self._options

    def gpu_factor(self, step: int) -> NDArray[np.float64]:
        if not self.has("straggler"):
            return np.ones(self.config.ranks)
        if self._read_value("straggler", "rotate", 0):
            turn = (self._rank("straggler") + step) % self.config.ranks
            return self._of_ranks("straggler", [turn])
        return self._of_ranks("straggler", self._list_stragglers())

    def host_factor(self, step: int) -> NDArray[np.float64]:
        if not self.has("cpu_bound") or step != self._find_step("cpu_bound"):
            return np.ones(self.config.ranks)
        return self._of_ranks("cpu_bound", [self._rank("cpu_bound")])

    def loading_ns(self, step: int) -> NDArray[np.int64]:
        """Return what loading takes longer than it would."""
        longer = np.zeros(self.config.ranks, np.int64)
        if self.has("data_stall") and step == self._find_step("data_stall"):
            longer[self._rank("data_stall")] += self._read_ns("data_stall", _STALL_MS)
        if self.has("starved_loader") and step >= self._find_step("starved_loader", 0):
            starved = self._everywhere_or_rank("starved_loader")
            longer[list(starved)] += self._read_ns("starved_loader", _STARVED_MS)
        return longer

    def retries(self, step: int) -> int:
        """Return how often in a step the allocator finds the GPU's memory full."""
        begins = self._find_step("full_allocator", 0)
        full = self.has("full_allocator") and step >= begins
        return int(self._read_value("full_allocator", "times", _RETRIES)) if full else 0

    def retry_ns(self) -> NDArray[np.int64]:
        """Return what a retry costs each rank, beside waiting for its GPU."""
        cost = np.zeros(self.config.ranks, np.int64)
        cost[list(self._everywhere_or_rank("full_allocator"))] = self._read_ns(
            "full_allocator", _RETRY_MS
        )
        return cost

    def link_factor(self, group: Group) -> NDArray[np.float64]:
        """Return how much longer each group of a kind takes, for the slow link that it uses."""
        if group.names not in self._link_factors:
            factor = np.ones(len(group.members))
            if self.has("slow_link"):
                factor[self._uses_slow_link(group)] = self._read_factor("slow_link")
            self._link_factors[group.names] = factor
        return self._link_factors[group.names]

    def message_factor(self, senders: Ints, receivers: Ints) -> NDArray[np.float64]:
        """Return how much longer messages between ranks take, for a slow link that they use."""
        factor = np.ones(len(senders))
        if self.has("slow_link"):
            factor[self._crosses_slow_link(senders, receivers)] = self._read_factor("slow_link")
        return factor

    def _crosses_slow_link(self, senders: Ints, receivers: Ints) -> NDArray[np.bool_]:
        options = self._options["slow_link"]
        if "stage" in options:
            link = {int(options["stage"]), int(options["stage"]) + 1}
            ends = zip(senders.tolist(), receivers.tolist(), strict=True)
            stages = [
                {low // self.config.stage_ranks, high // self.config.stage_ranks}
                for low, high in ends
            ]
            return np.array([pair == link for pair in stages], bool)
        if self.config.nodes == 1:
            return np.ones(len(senders), bool)
        uses = self._at_slow_place(senders) | self._at_slow_place(receivers)
        sending = senders // self.config.gpus_per_node
        receiving = receivers // self.config.gpus_per_node
        if "to" in options:
            pair = sorted((self._slow_node, int(options["to"])))
            uses &= (np.minimum(sending, receiving) == pair[0]) & (
                np.maximum(sending, receiving) == pair[1]
            )
        crosses: NDArray[np.bool_] = uses & (sending != receiving)
        return crosses

    def _at_slow_place(self, ranks: Ints) -> NDArray[np.bool_]:
        """Return which ranks are on the slow node, at the slow adapter where one is named."""
        node, gpu = np.divmod(ranks, self.config.gpus_per_node)
        options = self._options["slow_link"]
        at_adapter = gpu == int(options["nic"]) if "nic" in options else np.ones(ranks.shape, bool)
        there: NDArray[np.bool_] = (node == self._slow_node) & at_adapter
        return there

    def _uses_slow_link(self, group: Group) -> NDArray[np.bool_]:
        """Groups that leave the node, through the adapter or to the other node where one is named.

        A ring visits its nodes in order. With one node all of its groups are slow.
        """
        several = self.config.nodes > 1
        options = self._options["slow_link"]
        if "stage" in options or (several and group.nodes == 1):
            return np.zeros(len(group.members), bool)
        node = group.table // self.config.gpus_per_node
        uses = np.asarray(self._at_slow_place(group.table).any(axis=1))
        if "to" in options and several:
            pair = {self._slow_node, int(options["to"])}
            neighbours = [pair in _ring_links(row) for row in node.tolist()]
            uses &= np.array(neighbours, bool)
        return uses

    def kernel_factor(self, activity: Activity, step: int) -> NDArray[np.float64] | float:
        regressed = self._is_regressed and step >= self._regressed_from
        return self._regressed_by if regressed and self.regressed in activity.name else 1.0

    def offset_ns(self, rank: int) -> int:
        """Return how far a rank's clock is ahead."""
        spread = 1e3 * self.config.clock_offset_us
        own = np.random.default_rng([self.config.seed, 43, self._number_clock(rank)]).normal(
            0, spread
        )
        planted = self._read_ns("clock_offset", _CLOCK_MS) if self.has("clock_offset") else 0
        return round(own) + rank // self.config.gpus_per_node * planted

    def drift_ppm(self, rank: int) -> float:
        spread = self.config.clock_drift_ppm
        chance = np.random.default_rng([self.config.seed, 47, self._number_clock(rank)])
        return float(chance.normal(0, spread))

    def _number_clock(self, rank: int) -> int:
        """Ranks of one number share a clock."""
        return rank // self.config.gpus_per_node if self.config.clocks == "node" else rank

    def unlinked(self, rank: int) -> int:
        """Return the launch, by number, that is not recorded; -1: none."""
        here = self.has("unlinked_launch") and rank == self._unlinked_rank
        return int(self._read_value("unlinked_launch", "launch", _UNLINKED)) if here else -1

    def described(self, groups: dict[str, Group]) -> list[Fields]:
        """For the sidecar."""
        return [{"plant": name, **self._describe_plant(name, groups)} for name in self._options]

    def _describe_plant(self, name: str, groups: dict[str, Group]) -> Fields:
        step = self.config.first_step + self._find_step(name)
        if name == "straggler":
            return self._described_straggler()
        if name == "slow_link":
            return self._described_link(groups)
        if name in ("full_allocator", "starved_loader"):
            return self._described_shortage(name)
        if name == "data_stall":
            return {"rank": self._rank(name), "step": step, "ns": self._read_ns(name, _STALL_MS)}
        if name == "cpu_bound":
            return {"rank": self._rank(name), "step": step, "factor": self._read_factor(name)}
        if name == "clock_offset":
            return {"ns_by_host": self._read_ns(name, _CLOCK_MS)}
        if name == "regressed_kernel":
            facts = {"name": self.regressed, "from_step": step, "factor": self._read_factor(name)}
            return facts | self._named_rank(name)
        if name == "missing_rank":
            return {"rank": self.config.missing}
        rank = self._unlinked_rank
        return {"rank": rank, "launch": self.unlinked(rank)}

    def _described_straggler(self) -> Fields:
        factor = self._read_factor("straggler")
        if self._read_value("straggler", "rotate", 0):
            return {"first_rank": self._rank("straggler"), "rotates": True, "factor": factor}
        if self._options["straggler"].keys() & {"node", "stage"}:
            return {"ranks": self._list_stragglers(), "factor": factor}
        return {"rank": self._rank("straggler"), "factor": factor}

    def _described_link(self, groups: dict[str, Group]) -> Fields:
        slow = {
            name
            for group in groups.values()
            if group.size > 1
            for name, uses in zip(group.names, self._uses_slow_link(group), strict=True)
            if uses
        }
        options = self._options["slow_link"]
        facts: Fields = {"node": self._slow_node, "factor": self._read_factor("slow_link")}
        facts |= {key: int(options[key]) for key in ("to", "nic") if key in options}
        if "stage" in options:
            return {"stage": int(options["stage"]), "factor": facts["factor"]}
        return facts | {"groups": sorted(slow, key=int)}

    def _described_shortage(self, name: str) -> Fields:
        facts: Fields = {"from_step": self.config.first_step + self._find_step(name, 0)}
        if name == "full_allocator":
            facts["times_per_step"] = self.retries(self.config.steps)
            facts["ns"] = self._read_ns(name, _RETRY_MS)
        else:
            facts["ns"] = self._read_ns(name, _STARVED_MS)
        return facts | self._named_rank(name)

    def _named_rank(self, name: str) -> dict[str, int]:
        return {"rank": self._rank(name)} if "rank" in self._options[name] else {}

    @property
    def _slow_node(self) -> int:
        return int(self._read_value("slow_link", "node", self.config.nodes - 1))

    @property
    def _unlinked_rank(self) -> int:
        return int(self._read_value("unlinked_launch", "rank", self.config.written[0]))

    def _read_value(self, name: str, key: str, usual: float) -> float:
        return float(self._options.get(name, {}).get(key, usual))

    def _rank(self, name: str) -> int:
        return int(self._read_value(name, "rank", self._drawn))

    def _list_stragglers(self) -> list[int]:
        options = self._options["straggler"]
        for key, ranks in (
            ("node", self.config.gpus_per_node),
            ("stage", self.config.stage_ranks),
        ):
            if key in options:
                low = int(options[key]) * ranks
                return list(range(low, low + ranks))
        return [self._rank("straggler")]

    def _everywhere_or_rank(self, name: str) -> Iterable[int]:
        """The rank where one is named, else all of them."""
        if "rank" in self._options.get(name, {}):
            return [self._rank(name)]
        return range(self.config.ranks)

    def _find_step(self, name: str, usual: int | None = None) -> int:
        first = self.config.first_step
        later = self.config.steps // 2 if usual is None else usual
        return int(self._read_value(name, "step", first + later)) - first

    def _read_factor(self, name: str) -> float:
        return self._read_value(name, "factor", _FACTORS[name])

    def _read_ns(self, name: str, usual_ms: float) -> int:
        return round(1e6 * self._read_value(name, "ms", usual_ms))

    def _build_slowdowns(self, name: str) -> NDArray[np.float64]:
        return self._of_ranks(name, self._everywhere_or_rank(name))

    def _of_ranks(self, name: str, ranks: Iterable[int]) -> NDArray[np.float64]:
        factor = np.ones(self.config.ranks)
        factor[list(ranks)] = self._read_factor(name)
        return factor


def _ring_links(nodes: list[int]) -> list[set[int]]:
    """Pairs of nodes that are neighbours in a ring through the nodes of a group, in order."""
    ring = list(dict.fromkeys(nodes))
    return [{low, high} for low, high in zip(ring, [*ring[1:], ring[0]], strict=True)]
