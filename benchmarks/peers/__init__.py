"""Loaders of other projects, each over equal samples in its own native format.

A peer is a module of this package, named in :data:`benchmarks.peers.names.PEERS`, with

    write(folder, raw, work)           write the samples of the raw file in the peer's format
    start(folder, raw, work, variant)  prepare; gives a function that starts an epoch, an iterable of batches

It runs in a process of its own, :mod:`benchmarks.peers.worker`, by an interpreter that may be another one than ours:
these modules import the peer, torch and numpy, and of this project only each other.
"""
