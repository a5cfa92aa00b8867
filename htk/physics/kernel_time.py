"""The time of a kernel that reads memory and computes."""

import math


def partly_hidden(reading: float, computing: float) -> float:
    """Return the time of a kernel that would take so long to read, and so long to compute.

    The two hide each other only in part: near the balance, where both take as long, the kernel
    takes longer than either. Of exponents 1 to 6 of their sum, and the longer of the two alone, 2
    and 3 agree best with batches that TensorRT-LLM published (docs/serving_scorecard.md).
    """
    return math.hypot(reading, computing)
