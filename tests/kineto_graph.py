"""A CUDA graph of two streams that is replayed twice, drawn as torch 2.15 does, for tests.

Nodes: `a` (5 us) on stream 7; `b` (3) on 22 after `a`; a callback on the host (2) after `a`;
`c` (4) on 7 after the callback and `b`. Streams are drawn on row 7. Arrows run over microseconds
of a quarter of a year, which their doubles round.
"""

from tests.kineto_file import Event, kernel, launch, of_rank

_BEGIN = 7_800_000_000_000.0  # us since the quarter began
_FIRST_ARROW = 1 << 40
HEADER = of_rank(0, 1, base=1_790_857_026_000_000_000)


def replay(number: int, launched: float) -> list[Event]:
    """Return the events of a replay: a call, and its nodes 20 us after it."""
    start = _BEGIN + launched + 20
    nodes = [
        _node("a", 1, start, 5, number),
        _node("b", 2, start + 6, 3, number, own_stream=22),
        _node("HostNode: save", 3, start + 5.5, 2, number, cat="graph_host_node"),
        _node("c", 4, start + 10, 4, number),
    ]
    call = {**launch(number, _BEGIN + launched), "name": "cudaGraphLaunch"}
    arrows: list[Event] = []
    for k, (source, target) in enumerate(((0, 1), (0, 2), (1, 3), (2, 3))):
        arrow = {"cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7}
        arrow["id"] = _FIRST_ARROW + 4 * number + k
        ended = nodes[source]["ts"] + nodes[source]["dur"]
        arrows.append({**arrow, "ph": "s", "ts": ended})
        arrows.append({**arrow, "ph": "f", "bp": "e", "ts": nodes[target]["ts"]})
    return [call, *nodes, *arrows]


def _node(
    name: str,
    number: int,
    ts: float,
    dur: float,
    correlation: int,
    *,
    own_stream: int | None = None,
    cat: str = "kernel",
) -> Event:
    event = {**kernel(name, ts, dur, correlation), "cat": cat}
    event["args"] |= {"graph id": 7, "graph node id": number}
    if own_stream is not None:
        event["args"] |= {"original_stream": own_stream}
    return event
