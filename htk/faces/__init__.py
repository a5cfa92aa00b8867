"""The command line, the notebook, the agents' server and the report: all that people meet.

In: what the user typed. Out: answers as text, pages, files. May import everything; nothing
imports it.
"""
