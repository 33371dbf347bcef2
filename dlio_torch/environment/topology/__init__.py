"""Topology of a node: processors, NUMA nodes, memory, GPUs, storage devices, network and container.

All facts come from ``/sys``, ``/proc`` and the vendors' query programs.  Nothing here uses a GPU, imports torch or
changes a setting.
"""
