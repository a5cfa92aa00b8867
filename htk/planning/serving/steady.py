"""A server that is answering so many requests at once, one leaving as the next begins.

Each request brings a prompt and leaves after so many tokens. Prompts are read in chunks within
iterations that answer the others (chunked prefill: Sarathi-Serve, 2024), so that an iteration that
reads one takes longer for all. While requests begin and leave evenly, an iteration reads as many
tokens of prompts as a request's prompt times the requests over the tokens it generates; where that
is more than a chunk, no more requests can be answered at once, and the others wait to be read.
"""

import math
from dataclasses import dataclass
from functools import cached_property

from htk.base.errors import UsageError
from htk.planning.serving.iteration import IterationTime, IterationWork, ServerCompute
from htk.planning.serving.server import Server

_TAIL = 0.9  # of requests that are to have their first token in time
_FULL = 1e-9  # of a server, left: queues grow without end


@dataclass(frozen=True)
class Load:
    """The tokens of every request: its prompt, and those generated."""

    prompt: int
    generated: int

    def __post_init__(self) -> None:
        if min(self.prompt, self.generated) < 1:
            raise UsageError("a prompt and what is generated have at least 1 token")

    @property
    def context(self) -> float:
        """Return the context length of the mean generated token."""
        return self.prompt + self.generated / 2


@dataclass(frozen=True)
class Pace:
    """Iterations of a server, in ns."""

    mean_ns: float
    reading_ns: float  # one that reads prompts
    reading: float  # share of the time in such


@dataclass(frozen=True)
class Answering:
    """A replica that answers so many requests at once."""

    requests: float  # in the replica: being read or answered
    answered: float  # of those: being answered
    tpot_ns: float  # mean time per output token of a request
    ttft_ns: float  # mean time to the first token, with no other prompt waiting before it
    ttft_p90_ns: float  # with requests that arrive at random
    requests_per_s: float  # of the replica
    tokens_per_s: float  # generated, of the replica
    kv_bytes: float  # on each GPU, with all requests at their full length
    fits: bool
    decode: IterationTime  # an iteration that answers alone


class SteadyServer:
    """A server under one kind of request."""

    def __init__(self, server: Server, load: Load) -> None:
        self.server = server
        self.load = load
        self.compute = ServerCompute(server)

    @property
    def tokens_each(self) -> float:
        """The number of tokens that an iteration verifies of each request."""
        plan = self.server.speculation
        return 1.0 if plan is None else plan.draft_tokens + 1.0

    @property
    def accepted(self) -> float:
        """The number of tokens that an iteration gives each request."""
        plan = self.server.speculation
        return 1.0 if plan is None else plan.tokens

    @cached_property
    def iterations(self) -> float:
        """The number of iterations in which a request is answered."""
        return max(self.load.generated / self.accepted, 1.0)

    @cached_property
    def chunks(self) -> int:
        """The number of iterations in which a lone prompt is read."""
        return math.ceil(self.load.prompt / self.server.chunk)

    @cached_property
    def most_requests(self) -> int:
        """The number of requests that fit in memory at their full length."""
        return self.server.most_requests(self.load.prompt + self.load.generated)

    @cached_property
    def most_answered(self) -> float:
        """The most requests of a stage's group that can be answered at once, however many wait."""
        return self.server.chunk * self.iterations / self.load.prompt

    def decode(self, requests: float) -> IterationTime:
        """Return the time of an iteration that answers so many requests and reads no prompt."""
        return self.compute.iteration(self._build_work(requests))

    def prefill_ns(self, requests: float = 0.0) -> float:
        """Return the time of the iterations that read one prompt beside so many requests, in ns."""
        return self.chunks * self._average_reading(requests, self.load.prompt / self.chunks)

    def _build_work(
        self, requests: float, tokens: float = 0.0, prompts: float = 0.0, cached: float = 0.0
    ) -> IterationWork:
        return IterationWork(tokens, prompts, cached, requests, self.load.context, self.tokens_each)

    def _find_pace(self, requests: float, decode_ns: float) -> Pace:
        """Return the pace of a group's iterations, with the prompts read beside answering."""
        demand = requests * self.load.prompt / self.iterations  # tokens of prompts an iteration
        if demand > self.load.prompt / self.chunks:
            reading = self._average_reading(requests, demand)
            return Pace(reading, reading, 1.0)
        reading = self.prefill_ns(requests) / self.chunks
        share = requests * self.chunks / self.iterations  # of the iterations
        mean = decode_ns * (1 - share) + share * reading
        return Pace(mean, reading, share * reading / mean)

    def _average_reading(self, requests: float, tokens: float) -> float:
        """Return the mean time of an iteration that reads so many tokens of prompts, in ns, each of
        which is at one of its chunks."""
        each = self.load.prompt / self.chunks
        works = (
            self._build_work(requests, tokens, tokens / each, chunk * each)
            for chunk in range(self.chunks)
        )
        return sum(self.compute.iteration(work).total for work in works) / self.chunks

    def answering(self, requests: float) -> Answering:
        """Return latency and throughput with so many requests in the replica."""
        stages = self.server.pipeline_parallel
        group = requests / stages  # each stage works on another group
        answered = min(group, self.most_answered)
        decode = self.decode(answered)
        pace = self._find_pace(answered, decode.total)
        rate = answered / (pace.mean_ns * self.iterations)  # of a group, in requests a ns
        behind = (group - answered) / rate
        begin = self.prefill_ns(answered) + behind
        full = (
            self._average_reading(answered, self.server.chunk)
            * self.load.prompt
            / self.server.chunk
        )
        wait = (pace.reading * pace.reading_ns + (1 - pace.reading) * decode.total) / 2
        wait_p90 = waiting_p90_ns(pace, decode.total, rate * full)
        tokens = self.load.prompt + self.load.generated
        return Answering(
            requests, stages * answered, pace.mean_ns / self.accepted, begin + wait,
            begin + wait_p90, 1e9 * stages * rate, 1e9 * stages * rate * self.load.generated,
            self.server.kv_bytes(requests, tokens), requests <= self.most_requests, decode,
        )  # fmt: skip


def waiting_p90_ns(pace: Pace, decode_ns: float, load: float) -> float:
    """Return the wait that nine of ten prompts stay under, of prompts that arrive at random.

    They wait for the iteration under way, and for prompts before them: the residual over what is
    left of the server (Pollaczek and Khinchine), `load` of which prompts take. The tail falls off
    as an exponential does, for those that meet an iteration that reads.
    """
    left = 1 - load
    if left <= _FULL:
        return math.inf
    if pace.reading <= 1 - _TAIL:
        return decode_ns
    behind = pace.reading_ns / 2 / left
    return max(decode_ns, behind * math.log(pace.reading / (1 - _TAIL)))
