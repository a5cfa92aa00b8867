"""Answers about queues, graphs and memory."""

from bench.truth.expected.allocator import replayed
from bench.truth.expected.sums import Row, Rows, group, percent, quantile
from bench.truth.model import Activity, MemoryEvent, Recording


def queue_length(recording: Recording) -> Rows:
    rows: Rows = {}
    linked = [a for a in recording.activities if a.call is not None]
    for key, own in [
        *group(linked, lambda a: (0, a.device, a.stream)).items(),
        *group(linked, lambda a: (0, a.device, None)).items(),
    ]:
        waits = [
            (call.start, max(min(a.start for a in launched_by_it), call.start))
            for call, launched_by_it in group(own, lambda a: a.call).items()
        ]
        events = sorted([(t, 0, 1) for t, _ in waits] + [(t, 1, -1) for _, t in waits])
        length = weighted = empty = longest = 0
        lengths = []
        for k, (time, _, change) in enumerate(events):
            length += change
            lengths.append(length)
            longest = max(longest, length)
            held = events[k + 1][0] - time if k + 1 < len(events) else 0
            weighted += length * held
            empty += held * (not length)
        span = events[-1][0] - events[0][0]
        row: Row = {
            **{"launched": len(waits), "length_max": longest},
            "length_mean": weighted / span if span else None,
            "event_length_mean": sum(lengths) / len(lengths),
            "event_length_p50": quantile(lengths, 0.5),
            "empty_pct": percent(empty, span),
        }
        nothing = None if key[2] is not None else 0
        rows[key] = {**row, "blocked_ns": nothing, "blocked_calls": nothing}
    return rows


def compile_graph_coverage(recording: Recording) -> Rows:
    all_time = sum(a.length for a in recording.activities)
    rows: Rows = {}
    for how, alike in group(recording.activities, _how).items():
        device = sum(a.length for a in alike)
        rows[0, how] = {
            **{"device_ns": device, "device_time_pct": percent(device, all_time)},
            "kernels": len(alike),
            "launches": len({a.call for a in alike} - {None}) if recording.calls else None,
            **{
                "regions": None,
                "recompiles": None,
                "compile_ns": 0 if recording.operators else None,
            },
        }
    return rows


def _how(activity: Activity) -> str:
    if activity.in_graph:
        return "cuda graph"
    if activity.name.startswith("triton_"):
        return "compiled"
    return "eager" if activity.operator is not None else "outside operators"


def _in_time(recording: Recording) -> list[MemoryEvent]:
    return sorted(recording.memory, key=lambda event: event.time)


def memory_peaks(recording: Recording) -> Rows:
    rows: Rows = {}
    for device, events in group(_in_time(recording), lambda e: e.device).items():
        peak = max(events, key=lambda e: e.allocated)
        alive: dict[int, MemoryEvent] = {}
        for event in events[: events.index(peak) + 1]:
            alive.pop(event.address, None)
            if event.size > 0:
                alive[event.address] = event
        holders = group(
            alive.values(), lambda e: e.operator.name if e.operator else "(outside operators)"
        )
        held = {name: sum(e.size for e in own) for name, own in holders.items()}
        blocks: dict[str, int | None] = {name: len(own) for name, own in holders.items()}
        left = peak.allocated - sum(held.values())
        if left > 0 or not held:
            held["(allocated before the recording)"] = left
            blocks["(allocated before the recording)"] = None
        for name, size in held.items():
            rows[0, device, name] = {
                **{"peak_ns": peak.time, "peak_bytes": peak.allocated, "device_kind": "gpu"},
                **{"reserved_bytes": peak.reserved, "reserved_bytes_max": peak.reserved},
                "unused_pct": percent(peak.reserved - peak.allocated, peak.reserved),
                **{"failed": 0, "held_bytes": size, "blocks": blocks[name], "inferred": False},
                "held_pct": percent(size, peak.allocated),
            }
    return rows


def memory_timeline(recording: Recording) -> Rows:
    rows: Rows = {}
    for device, events in group(_in_time(recording), lambda e: e.device).items():
        first, last = events[0].time, events[-1].time
        width = max((last - first) // 50 + 1, 1)
        before = -1
        slices = [(event.time - first) // width for event in events]
        for own in group(enumerate(events), lambda e: slices[e[0]]).values():  # noqa: B023
            highest = max(own, key=lambda e: e[1].allocated)
            for nth, event in sorted({highest[0]: highest, own[-1][0]: own[-1]}.values()
                                       , key=lambda e: e[0]):  # fmt: skip
                rows[0, device, event.time] = {
                    **{"allocated_bytes": event.allocated, "reserved_bytes": event.reserved},
                    **{"events": nth - before, "device_kind": "gpu", "inferred": False},
                }
                before = nth
    return rows


def memory_replay(recording: Recording) -> Rows:
    """Return what was recorded, and what a plain allocator makes of it. Where segments lay before
    the recording is guessed from addresses: of a warm replay there is but what needs no guess."""
    rows: Rows = {}
    for device, events in group(_in_time(recording), lambda e: e.device).items():
        reserved = max(event.reserved for event in events)
        held = max(event.allocated for event in events if event.reserved == reserved)
        own = sum(event.size > 0 for event in events)
        rows[0, device, "recorded"] = {
            **{"peak_bytes": max(event.allocated for event in events), "segments": None},
            **{"reserved_bytes_max": reserved, "retries": None, "failed": 0, "blocks": own},
            "unused_pct": percent(reserved - held, reserved),
        }
        before = events[0].allocated - events[0].size
        replay = replayed(before, [(event.address, event.size) for event in events])
        rows[0, device, "replayed"] = replay
        rows[0, device, "replayed warm"] = {
            name: replay[name] for name in ("peak_bytes", "failed", "retries", "blocks")
        }
    return rows
