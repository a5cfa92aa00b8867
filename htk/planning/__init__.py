"""Jobs and servers that were described, not recorded: their time, memory, network and cost.

In: a model, a cluster, a layout. Out: predictions with intervals. May import base and physics.
"""
