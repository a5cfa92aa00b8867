"""The command line: commands derived from the registries, and those written by hand.

In: arguments. Out: text on stdout, one line on stderr where it fails, a documented exit code.
"""
