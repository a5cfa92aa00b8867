"""Every format that htk reads: one module each, asked in this order."""

from htk.parser import Parser
from htk.parsers import flight_recorder, kineto

PARSERS: tuple[Parser, ...] = (flight_recorder, kineto)
