"""A simulated training job: the traces it would have left, and what is true of it.

config: what is simulated; times: how long things take; program: what a rank does, in order;
schedule: when it happens, on all ranks; writer: trace files; truth: the sidecar.
"""
