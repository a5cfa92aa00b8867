"""Names of counters in recordings."""

RANGE_PROFILER = "CUPTI range profiler"  # the process of metrics of kernels, named by their series
