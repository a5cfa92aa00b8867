"""Questions for agents: tools of the Model Context Protocol, derived from the registries.

In: traces below folders that were given. Out: bounded answers with units and coverage; nothing is
written. May not import the other faces.
"""
