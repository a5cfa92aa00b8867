"""Names of the tasks and calls that Ascend's recorders write."""

import re

WAITS = re.compile(r"WAIT|RECORD|NOTIFY", re.IGNORECASE)
COPIES = re.compile(r"MEMCPY|SDMA|PCIE_DMA", re.IGNORECASE)
TASKS_QUEUE = ("enqueue", "dequeue")  # between the thread of Python and the one that launches
CALL = "privateuse1_runtime"  # as Kineto files the calls of a device's library
