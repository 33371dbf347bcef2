"""Definitions of the I/O figures as text, for captions and for JSON."""

from __future__ import annotations

CAPTIONS: dict[str, str] = {
    "layers": "A call counts where no lower layer (POSIX below stdio below MPI-IO) recorded a call of its class on "
    "its file, so that no byte counts twice.",
    "io_time": "I/O time: length of the union of the calls' intervals, so that calls that overlap in time count once; "
    "per process, or global over all processes.",
    "summed_time": "Summed time: sum of the calls' durations, each call counted; per rank: / number of ranks.",
    "bandwidth": "Bandwidth: bytes moved / length of the union of the intervals of the calls that moved them.",
    "transfer_sizes": "Transfer size: what a read or write moved (its return value); transfers of zero bytes count, "
    "failed calls do not. Percentiles interpolate linearly.",
    "darshan_histogram": "Size classes of Darshan; an upper bound belongs to its class, K = 1024.",
    "log2_histogram": "Class 0 holds transfers of 0 bytes, class k those of 2^(k-1) to 2^k - 1 bytes.",
    "over_time": "The bytes of each call are spread evenly over the interval in which it moved them; a bin's rate is "
    "its bytes / its length.",
    "busy": "Busy: share of a bin in which at least one call was in progress.",
    "in_flight": "In flight: mean number of reads and writes in progress, over all processes.",
    "sequential": "Sequential: offset >= end of the previous access of this process to this file in this direction "
    "(Darshan: offset > last byte); share of all accesses. A first access at offset 0 is not sequential.",
    "consecutive": "Consecutive: offset = end of the previous access of this process to this file in this direction "
    "(Darshan: offset = last byte + 1); share of all accesses. A first access at offset 0 is not consecutive.",
    "stream": "Per stream: the same rules with the accesses of each thread followed apart, so that threads that read "
    "one file do not break each other's order.",
    "jumps": "Jump: offset - end of the previous access of this thread to this file in this direction; 0 is "
    "consecutive, negative goes back. First accesses have none.",
    "distinct_bytes": "Distinct bytes: length of the union of the byte ranges that were read (or written) in a file.",
    "reuse": "Reuse: bytes read / distinct bytes read; 1 means that no byte was read twice.",
    "failed": "Failed: reads and writes that returned an error; they take time and move nothing.",
    "untraced": "Untraced: bytes that the kernel counted for a process's reads (writes) minus those of its recorded "
    "calls. Page faults of mapped files are in neither.",
    "overlap": "Overlap: |I/O intersected with compute| / |I/O|, both as unions of intervals.",
    "exposed_io": "Exposed I/O: length of the I/O time outside of compute.",
    "files": "One row per file; times and bytes are sums or unions over all processes.",
    "ranks": "One row per rank; I/O time is the union over the rank's processes.",
    "coarse": "Coarse: from counters, without a record of each call; counts, bytes and summed times only.",
}
"""Text by figure; plain ASCII, no markup."""
