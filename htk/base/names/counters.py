"""What counters of recordings are called."""

RANGE_PROFILER = "CUPTI range profiler"  # the process of metrics of kernels, named by their series
