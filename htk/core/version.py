"""The version of the installed distribution."""

from importlib.metadata import version

DISTRIBUTION = "htk"  # as it is called on the package index

VERSION = version(DISTRIBUTION)
