"""Goodput: the most requests that are answered within limits of latency (DistServe, 2024).

Limits are on the mean time per output token, and on the time within which nine of ten requests
have their first token. A replica that reads prompts beside answering is compared with replicas
that do either: those send keys and values to these over the network (Splitwise, 2024).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from htk.base.errors import UsageError
from htk.planning.serving.server import Server
from htk.planning.serving.steady import Answering, Load, Pace, SteadyServer, waiting_p90_ns

_MOST_REQUESTS = 1 << 16
_MOST_REPLICAS = 16  # of a kind, in a ratio of whole numbers


@dataclass(frozen=True)
class Objective:
    """Limits of latency; infinite where there is none."""

    ttft_ns: float = math.inf
    tpot_ns: float = math.inf

    def __post_init__(self) -> None:
        if min(self.ttft_ns, self.tpot_ns) <= 0:
            raise UsageError("a limit of latency is a positive time")

    def tighter(self, first: float, token: float) -> "Objective":
        """Return the limits to plan for where times are so many times as long as planned."""
        return Objective(self.ttft_ns / first, self.tpot_ns / token)

    def holds(self, state: Answering) -> bool:
        return state.tpot_ns <= self.tpot_ns and state.ttft_p90_ns <= self.ttft_ns


@dataclass(frozen=True)
class ServedLayout:
    """A layout at the largest rate that it holds the limits at."""

    layout: str
    servers: tuple[Server, ...]  # that reads and answers, or that reads and that answers
    gpus: int
    requests_per_s: float  # of all of them
    requests: float  # being answered by each replica that answers
    tpot_ns: float
    ttft_p90_ns: float
    kv_transfer_ns: float = 0.0  # for a request, between replicas

    @property
    def requests_per_s_per_gpu(self) -> float:
        return self.requests_per_s / self.gpus


def most_within(steady: SteadyServer, objective: Objective) -> Answering | None:
    """Return the replica with the most requests that fit and hold the limits; None: one is too
    many. Latencies only grow with requests, so halving finds it."""
    low = 0
    high = min(steady.most_requests, _MOST_REQUESTS)
    if not high or not objective.holds(steady.answering(1)):
        return None
    low, high = 1, high + 1  # low holds, high does not
    while high - low > 1:
        middle = (low + high) // 2
        holds = objective.holds(steady.answering(middle))
        low, high = (middle, high) if holds else (low, middle)
    return steady.answering(low)


def plan_colocated(server: Server, load: Load, objective: Objective) -> ServedLayout | None:
    """Return the goodput of a replica that reads prompts and answers."""
    best = most_within(SteadyServer(server, load), objective)
    if best is None:
        return None
    return ServedLayout(
        _describe_layout(server), (server,), server.gpus, best.requests_per_s, best.requests,
        best.tpot_ns, best.ttft_p90_ns,
    )  # fmt: skip


def plan_disaggregated(
    prefill: Server, decode: Server, load: Load, objective: Objective
) -> ServedLayout | None:
    """Return the goodput of replicas that read prompts and others that answer, in the ratio of at
    most 16 of each that serves the most requests for each GPU; None: no ratio holds the limits."""
    reading = _Reading(prefill, load, objective)
    answering = _Apart(decode, load, objective)
    best = answering.best
    if reading.requests_per_s <= 0 or best is None:
        return None
    rate, state = best
    options = [
        (min(p * reading.requests_per_s, d * rate) / (p * prefill.gpus + d * decode.gpus), p, d)
        for p in range(1, _MOST_REPLICAS + 1)
        for d in range(1, _MOST_REPLICAS + 1)
    ]
    _, p, d = max(options, key=lambda o: (o[0], -o[1] - o[2]))
    served = min(p * reading.requests_per_s, d * rate)
    return ServedLayout(
        f"{p} × prefill {_describe_layout(prefill)} + {d} × decode {_describe_layout(decode)}",
        (prefill, decode),
        p * prefill.gpus + d * decode.gpus, served, state.requests,
        state.tpot_ns + answering.transfer_ns / load.generated,
        reading.ttft_p90_ns(served / p), answering.transfer_ns,
    )  # fmt: skip


class _Reading:
    """A replica that reads prompts one after another."""

    def __init__(self, server: Server, load: Load, objective: Objective) -> None:
        self.steady = SteadyServer(server, load)
        self.objective = objective

    @cached_property
    def prompt_ns(self) -> float:
        return self.steady.prefill_ns()

    def ttft_p90_ns(self, requests_per_s: float) -> float:
        """Return a pipeline's stages read as many prompts at a time."""
        stages = self.steady.server.pipeline_parallel
        service = self.prompt_ns / stages
        load = requests_per_s * 1e-9 * service
        return self.prompt_ns + waiting_p90_ns(Pace(service, service, load), 0.0, load)

    @cached_property
    def requests_per_s(self) -> float:
        """The most at which nine of ten have their first token in time; 0: none are, or prompts do
        not fit."""
        if not self.steady.most_requests or self.prompt_ns > self.objective.ttft_ns:
            return 0.0
        stages = self.steady.server.pipeline_parallel
        low = 0.0
        high = _BUSIEST * 1e9 * stages / self.prompt_ns
        if self.ttft_p90_ns(high) <= self.objective.ttft_ns:
            return high
        for _ in range(50):
            middle = (low + high) / 2
            holds = self.ttft_p90_ns(middle) <= self.objective.ttft_ns
            low, high = (middle, high) if holds else (low, middle)
        return low


_BUSIEST = 0.99  # share of the time that a replica reads: more than that no queue stays short


class _Apart:
    """A replica that answers requests whose prompts others have read."""

    def __init__(self, server: Server, load: Load, objective: Objective) -> None:
        self.server = server
        self.load = load
        self.objective = objective
        self.steady = SteadyServer(server, load)

    @cached_property
    def transfer_ns(self) -> float:
        """Keys and values of a prompt between replicas, by the adapters of all GPUs of one."""
        network = self.server.network
        size = self.server.kv_bytes(1, self.load.prompt)
        pace = network.adapters or network.across.ns_per_byte or 0.0
        return network.across.latency + size * pace * network.node

    @cached_property
    def best(self) -> tuple[float, Answering] | None:
        """Return the largest rate that holds the limit, and the replica at it."""
        low = 0
        high = min(self.steady.most_requests, _MOST_REQUESTS) + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._is_within_objective(middle) else (low, middle)
        if not low:
            return None
        state = self._state(low)
        return state.requests_per_s, state

    def _is_within_objective(self, requests: int) -> bool:
        spread = self.transfer_ns / self.load.generated
        return self._state(requests).tpot_ns + spread <= self.objective.tpot_ns

    def _state(self, requests: int) -> Answering:
        stages = self.server.pipeline_parallel
        decode = self.steady.decode(requests / stages)
        rate = requests / (decode.total * self.steady.iterations) * 1e9
        tokens = self.load.prompt + self.load.generated
        return Answering(
            requests, requests, decode.total / self.steady.accepted, 0.0, 0.0, rate,
            rate * self.load.generated, self.server.kv_bytes(requests, tokens), True, decode,
        )  # fmt: skip


def list_served_layouts(server: Server, load: Load, objective: Objective) -> Iterator[ServedLayout]:
    """Yield the goodput of the replica on 1, 2, 4 … GPUs of a node, and of the best pair of those
    with prefill and decode apart."""
    widths = [t for t in _list_powers(server.gpus_per_node) if not server.model.heads % t]
    servers = [replace(server, tensor_parallel=t) for t in widths]
    servers = [s for s in servers if s.kv_room_bytes > 0]
    for own in servers:
        goodput = plan_colocated(own, load, objective)
        if goodput is not None:
            yield goodput
    pairs = [plan_disaggregated(p, d, load, objective) for p in servers for d in servers]
    held = [pair for pair in pairs if pair is not None]
    if held:
        yield max(held, key=lambda g: g.requests_per_s_per_gpu)


def fit_to_limits(best: ServedLayout, load: Load, objective: Objective) -> ServedLayout | None:
    """Return the same layout, in the ratio that suits, under other limits."""
    if len(best.servers) == 1:
        return plan_colocated(best.servers[0], load, objective)
    return plan_disaggregated(best.servers[0], best.servers[1], load, objective)


def _list_powers(most: int) -> Iterator[int]:
    width = 1
    while width <= most:
        yield width
        width *= 2


def _describe_layout(server: Server) -> str:
    stages = f", pp {server.pipeline_parallel}" if server.pipeline_parallel > 1 else ""
    return f"tp {server.tensor_parallel}{stages}"
