"""Documents of a few events, and what an engine read of them."""

EVENT = b'{"ph":"X","name":"a","pid":1,"tid":2,"ts":1.5,"dur":2,"args":{"correlation":%d}}'


def event(correlation: int) -> bytes:
    return EVENT % correlation


def trace(*events: bytes, before: bytes = b"", after: bytes = b'],"x":1}') -> bytes:
    return b"{" + before + b'"traceEvents":[' + b",".join(events) + after


def correlations(raw) -> list[int]:
    return raw.values("correlation").tolist()
