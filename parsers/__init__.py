"""Every format that htk reads: one module each, asked in this order."""

from htk.parser import Parser
from htk.parsers import kineto

PARSERS: tuple[Parser, ...] = (kineto,)
