"""Definitions of the I/O figures as text, for captions and JSON."""

from __future__ import annotations

CAPTIONS: dict[str, str] = {
    "layers": (
        "Counted calls: a call counts if no lower layer (POSIX below stdio below MPI-IO) recorded a call of its "
        "class on its file, so that no byte counts twice."
    ),
    "io_time": (
        "I/O time: length of the union of the calls' intervals, so that calls that overlap in time count once; per "
        "process, or over all processes."
    ),
    "summed_time": "Summed time: sum of the durations of all calls; per rank: this sum / number of ranks.",
    "bandwidth": "Bandwidth: bytes moved / length of the union of the intervals of the calls that moved them.",
    "transfer_sizes": (
        "Transfer size: bytes that a read or write moved (its return value); transfers of zero bytes count, failed "
        "calls do not. Percentiles interpolate linearly."
    ),
    "darshan_histogram": "Size classes of Darshan: an upper bound belongs to its class, and K is 1024.",
    "log2_histogram": "Size classes: class 0 holds transfers of 0 bytes, class k those of 2^(k-1) to 2^k - 1 bytes.",
    "over_time": (
        "Bandwidth over time: the bytes of each call are spread evenly over the interval in which it moved them; "
        "the rate in a bin is the bytes in the bin / the length of the bin."
    ),
    "busy": "Busy: share of a bin in which at least one call was in progress.",
    "in_flight": "In flight: mean number of reads and writes in progress, over all processes.",
    "sequential": (
        "Sequential: offset >= end of the preceding access of the same process to the same file in the same "
        "direction (Darshan: offset > last byte); share of all accesses. A first access at offset 0 is not "
        "sequential."
    ),
    "consecutive": (
        "Consecutive: offset = end of the preceding access of the same process to the same file in the same "
        "direction (Darshan: offset = last byte + 1); share of all accesses. A first access at offset 0 is not "
        "consecutive."
    ),
    "stream": (
        "Per stream: the same rules applied to the accesses of each thread, so that threads that read the same file "
        "do not break each other's order."
    ),
    "jumps": (
        "Jump: offset - end of the preceding access of the same thread to the same file in the same direction; a "
        "jump of 0 is consecutive, a negative jump goes back. First accesses have no jump."
    ),
    "distinct_bytes": "Distinct bytes: length of the union of the byte ranges that were read (or written) in a file.",
    "reuse": "Reuse: bytes read / distinct bytes read; 1 means that no byte was read twice.",
    "failed": "Failed: reads and writes that returned an error; these calls take time and move no bytes.",
    "untraced": (
        "Untraced: bytes that the kernel counted for a process's reads (writes) minus the bytes of its recorded "
        "calls. Page faults of mapped files are in neither count."
    ),
    "overlap": "Overlap: |I/O intersected with compute| / |I/O|, both as unions of intervals.",
    "exposed_io": "Exposed I/O: I/O time during which no compute ran.",
    "files": "Files: one row per file; times and bytes are sums or unions over all processes.",
    "ranks": "Ranks: one row per rank; I/O time is the union over the rank's processes.",
    "coarse": (
        "Coarse: computed from counters, without single calls, so that only counts, bytes and summed times are known."
    ),
}
"""Definition of each figure; plain ASCII, no markup."""
