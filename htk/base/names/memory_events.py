"""What PyTorch's profiler calls its records of memory."""

ALLOCATION = "[memory]"  # and release
FAILED_ALLOCATION = "[OutOfMemory]"
