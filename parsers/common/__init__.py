"""What several parsers share: lines of logs, safe unpickling, calls of NCCL.

In: bytes. Out: rows. May not import any parser.
"""
