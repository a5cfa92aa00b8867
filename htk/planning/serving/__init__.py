"""A described inference server becomes latency, throughput, memory and cost, without a trace.

Models alone: imports `plan`, `models` and what lies below them, and nothing of traces or what-ifs.
"""
