"""A described job becomes the time, memory, communication and cost of its training step.

Models alone, no trace: imports `models` and what lies below it, and nothing of traces or what-ifs.
"""
