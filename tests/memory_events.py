"""Rows of `memory` from an address and a size."""


def event(time: int, address: str, size: int, total: int, reserved: int = 200) -> dict:
    where = {"process": "1", "thread": "1", "device_type": 1, "device": 0, "event": time}
    sizes = {"size_bytes": size, "allocated_bytes": total, "reserved_bytes": reserved}
    return {"name": "[memory]", "time_ns": time, "address": address, **where, **sizes}
