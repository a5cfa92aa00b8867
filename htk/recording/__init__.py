"""Recording a run around `torch.profiler`, from inside the training script.

In: a training loop. Out: trace files. Imports torch when used and nothing that analyses.
"""
