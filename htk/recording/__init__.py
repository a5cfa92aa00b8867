"""Making recordings: around `torch.profiler` in a training script, or of a simulated job.

In: a training loop, or a described job. Out: trace files, and a simulated job's truth.
May import base, and the simulator physics; torch is imported when used.
"""
