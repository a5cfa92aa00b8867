"""Cost models shared by the simulator, the plans, the what-ifs and the analyses.

In: sizes of an operation, a transfer, a step; an accelerator. Out: time, FLOPs, bytes, memory.
May import base.
"""
