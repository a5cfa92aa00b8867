"""The version of htk; the package's metadata takes it from here."""

DISTRIBUTION = "htk-trace"  # as it is called on the package index
VERSION = "1.0.0rc1"
