"""Requests that come and go, against a server simulated iteration by iteration."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from htk.base.errors import UsageError
from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.serving.iteration import IterationWork
from htk.planning.serving.server import Server, Speculation
from htk.planning.serving.steady import Load, Pace, SteadyServer, waiting_p90_ns

EIGHT, H100 = decoder("llama3-8b"), gpu("h100")


def steady(prompt: int, generated: int, **options: Any) -> SteadyServer:
    return SteadyServer(Server(EIGHT, H100, **options), Load(prompt, generated))


def simulated(server: SteadyServer, requests: int, rounds: int) -> tuple[float, float]:
    """Mean time per output token and rate with always so many requests: one that leaves is replaced
    at once, and what it asks is read while the others are answered. Starts are staggered."""
    load, chunk = server.load, server.server.chunk
    left = [load.generated * (i + 1) / requests for i in range(requests)]
    unread = [0] * requests
    clock, tokens, finished, begun = 0.0, 0, 0, 0.0
    for iteration in range(rounds):
        if iteration == rounds // 3:  # after it has settled
            begun, tokens, finished = clock, 0, 0
        answered = [i for i in range(requests) if not unread[i]]
        budget, read, prompts = chunk, 0, 0
        for i in range(requests):
            part = min(unread[i], budget)
            unread[i], budget, read = unread[i] - part, budget - part, read + part
            prompts += part > 0
        work = IterationWork(read, prompts, 0.0, len(answered), load.context)
        clock += server.compute.iteration(work).total
        tokens += len(answered)
        for i in answered:
            left[i] -= 1
            if left[i] <= 0:
                finished += 1
                left[i], unread[i] = load.generated, load.prompt
    spent = clock - begun
    return spent / (tokens / requests), finished / spent * 1e9


@pytest.mark.parametrize(
    ("prompt", "generated", "requests"),
    [(512, 128, 16), (512, 128, 64), (2048, 64, 8), (100, 400, 200), (6000, 300, 12)],
)
def test_a_simulated_server_agrees(prompt: int, generated: int, requests: int) -> None:
    server = steady(prompt, generated)
    state = server.answering(requests)
    per_token, rate = simulated(server, requests, 12 * generated)
    assert state.requests_per_s == pytest.approx(rate, rel=0.08)
    # The simulation counts the iterations in which a request is read, the plan does not.
    assert state.tpot_ns == pytest.approx(per_token, rel=0.08)


def test_no_requests_are_lost() -> None:
    """Little's law: requests being answered are the rate times how long each is."""
    server = steady(512, 128)
    for requests in (1, 7, 64, 1000):
        state = server.answering(requests)
        long = state.tpot_ns * 128 * 1e-9
        assert state.answered == pytest.approx(state.requests_per_s * long)
        assert state.tokens_per_s == pytest.approx(128 * state.requests_per_s)


@pytest.mark.parametrize("options", [{}, {"weights": "int4"}, {"tensor_parallel": 4},
                                     {"pipeline_parallel": 2}, {"chunk": 512},
                                     {"speculation": Speculation(3, 0.7)}])  # fmt: skip
@pytest.mark.parametrize("load", [(64, 512), (1024, 256), (3000, 20)])
def test_latency_and_throughput_only_grow_with_requests(
    load: tuple[int, int], options: dict[str, Any]
) -> None:
    server = steady(*load, **options)
    states = [server.answering(n) for n in (*range(1, 130), *range(130, 2000, 37))]
    for name in ("tpot_ns", "ttft_ns", "ttft_p90_ns", "requests_per_s", "kv_bytes"):
        values = [getattr(state, name) for state in states]
        wrong = [(a, b) for a, b in pairwise(values) if b < a * (1 - 1e-9)]
        assert not wrong, (name, wrong[:3])


def test_no_more_are_answered_than_chunks_are_read_for() -> None:
    """Each brings 4096 tokens, of which an iteration reads 512: at 64 tokens an answer, 8."""
    server = steady(4096, 64, chunk=512)
    assert server.most_answered == 8
    few, many, more = (server.answering(n) for n in (8, 9, 20))
    assert (many.answered, more.answered) == (8, 8)
    assert many.requests_per_s == more.requests_per_s == few.requests_per_s
    waited = more.ttft_ns - few.ttft_ns  # twelve more, at that rate
    assert waited == pytest.approx(12 / few.requests_per_s * 1e9)
    assert more.ttft_p90_ns == float("inf")


def test_a_lone_request_by_hand() -> None:
    server = steady(1000, 50)
    state = server.answering(1)
    reading = server.compute.iteration(IterationWork(1000, 1, 0, 1, 1025)).total
    decode = server.decode(1).total
    mean = decode * 49 / 50 + reading / 50
    assert state.tpot_ns == pytest.approx(mean)
    in_reading = reading / 50 / mean
    wait = (in_reading * reading + (1 - in_reading) * decode) / 2  # of the one under way
    assert state.ttft_ns == pytest.approx(wait + reading)
    assert state.ttft_p90_ns == pytest.approx(decode + reading)  # nine of ten meet no other


def test_a_long_prompt_is_read_in_chunks_that_look_back() -> None:
    server = steady(3000, 50, chunk=1000)
    parts = [
        server.compute.iteration(IterationWork(1000, 1, k * 1000, 2, 3025)).total for k in range(3)
    ]
    assert server.prefill_ns(2) == pytest.approx(sum(parts))
    assert parts[0] < parts[1] < parts[2]


def test_speculation_divides_what_an_iteration_takes() -> None:
    plain, drafted = steady(100, 300), steady(100, 300, speculation=Speculation(3, 0.8))
    work = IterationWork(requests=1, context=250, tokens_each=4)
    each = drafted.compute.iteration(work).total
    tokens = 1 + 0.8 + 0.64 + 0.512
    assert drafted.answering(1).tpot_ns == pytest.approx(each / tokens, rel=0.02)
    assert drafted.answering(1).tpot_ns < plain.answering(1).tpot_ns
    useless = steady(100, 300, speculation=Speculation(3, 0.0))
    assert useless.answering(1).tpot_ns > plain.answering(1).tpot_ns


def test_stages_answer_other_requests_at_the_same_time() -> None:
    lone, staged = steady(512, 128), steady(512, 128, pipeline_parallel=2)
    two, one = staged.answering(2), lone.answering(1)
    hop = staged.decode(1).communication
    assert hop > 0
    assert two.tpot_ns == pytest.approx(one.tpot_ns + hop, rel=0.01)
    assert two.requests_per_s == pytest.approx(2 * one.requests_per_s, rel=0.03)


def test_the_wait_of_prompts_that_are_read_one_by_one() -> None:
    """The tail is that of a simulated queue (M/D/1)."""
    generator = np.random.default_rng(7)
    for load in (0.05, 0.5, 0.8):
        arrivals = np.cumsum(generator.exponential(1 / load, 100_000))
        begins = np.empty_like(arrivals)
        free = 0.0
        for i, arrived in enumerate(arrivals.tolist()):  # each waits for the one before
            begins[i] = max(arrived, free)
            free = begins[i] + 1.0
        waits = begins - arrivals
        p90 = waiting_p90_ns(Pace(1.0, 1.0, load), 0.0, load)
        assert p90 == pytest.approx(float(np.quantile(waits, 0.9)), rel=0.2)


def test_a_full_server_lets_queues_grow() -> None:
    assert waiting_p90_ns(Pace(5.0, 5.0, 1.0), 2.0, 1.0) == float("inf")


def arrivals_simulated(server: SteadyServer, rate: float, seconds: float) -> tuple[float, float]:
    """Mean time per output token, and the time within which nine of ten have their first token,
    with requests that arrive at random."""
    load, chunk = server.load, server.server.chunk
    generator = np.random.default_rng(3)
    gaps = generator.exponential(1e9 / rate, int(rate * seconds))
    waiting_for = list(np.cumsum(gaps))[::-1]
    reading: list[list[float]] = []  # when it arrived, tokens left to read
    answers: list[list[float]] = []  # when its first token came, tokens left
    clock, firsts, paces = 0.0, [], []
    while waiting_for or reading or answers:
        if not reading and not answers:
            clock = max(clock, waiting_for[-1])
        while waiting_for and waiting_for[-1] <= clock:
            reading.append([waiting_for.pop(), load.prompt])
        budget, read, prompts = float(chunk), 0.0, 0
        for request in reading:
            part = min(request[1], budget)
            request[1], budget, read = request[1] - part, budget - part, read + part
            prompts += part > 0
        work = IterationWork(read, prompts, 0.0, len(answers), load.context)
        clock += server.compute.iteration(work).total
        for answer in answers:
            answer[1] -= 1
        paces += [(clock - a[0]) / load.generated for a in answers if a[1] <= 0]
        answers = [a for a in answers if a[1] > 0]
        firsts += [clock - r[0] for r in reading if r[1] <= 0]
        answers += [[clock, load.generated] for r in reading if r[1] <= 0]
        reading = [r for r in reading if r[1] > 0]
    return float(np.mean(paces)), float(np.quantile(firsts, 0.9))


@pytest.mark.parametrize(
    ("prompt", "generated", "requests"),
    [(1024, 128, 8), (1024, 128, 40), (4000, 100, 6), (4000, 100, 20), (200, 300, 100)],
)
def test_a_server_simulated_with_random_arrivals_agrees(
    prompt: int, generated: int, requests: int
) -> None:
    server = steady(prompt, generated)
    state = server.answering(requests)
    seconds = 600 / state.requests_per_s
    pace, first = arrivals_simulated(server, state.requests_per_s, seconds)
    assert state.tpot_ns == pytest.approx(pace, rel=0.15)
    assert state.ttft_p90_ns == pytest.approx(first, rel=0.3)


def test_a_load_has_tokens() -> None:
    with pytest.raises(UsageError):
        Load(0, 5)
