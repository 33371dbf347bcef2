"""Reads one Darshan log through Darshan's C library and writes plain arrays.

It runs in a process of its own (see :mod:`dlio_torch.iotrace.importers.darshan`): the library ends the process
that reads a damaged log (SIGSEGV, failed assertions).  Records go to the disk one by one, as the C structures
that the library returns, so memory holds one record at a time.  Arguments: the log, a folder for the result::

    segments.bin       array of SEGMENT: all DXT segments, record by record, writes before reads
    records.npy        array of RECORD: one per rank, file and DXT module
    counters-<module>.npy   int64/float64 table, columns in about.json
    about.json         job, modules, names, hosts; written last
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import IO, Any

import numpy as np

SEGMENT = np.dtype([("offset", "<i8"), ("length", "<i8"), ("start_s", "<f8"), ("end_s", "<f8")])
RECORD = np.dtype(
    [("id", "<u8"), ("rank", "<i8"), ("host", "<i4"), ("module", "<i4"), ("writes", "<i8"), ("reads", "<i8")]
)
DXT = ("DXT_POSIX", "DXT_MPIIO")
COUNTED = ("POSIX", "STDIO", "MPI-IO")
# Ends of the names of the counters that are kept, of about a hundred in each record.
_KEPT = "OPENS FDOPENS READS WRITES SEEKS BYTES_READ BYTES_WRITTEN SEQ_READS SEQ_WRITES CONSEC_READS CONSEC_WRITES"
KEPT = tuple(f"_{name}" for name in (*_KEPT.split(" "), "F_READ_TIME", "F_WRITE_TIME", "F_META_TIME"))


def main(log_path: str, folder: str) -> None:
    """Reads the log; the process ends with status 0 only if the whole log was read."""
    from darshan.backend import cffi_backend as backend  # type: ignore[import-not-found,import-untyped,unused-ignore]

    ffi, library = backend.ffi, backend.libdutil
    out = Path(folder)
    handle = library.darshan_log_open(log_path.encode("utf-8", "surrogateescape"))
    if handle == ffi.NULL:
        sys.exit("Error: the log cannot be opened.")
    log = {"handle": handle, "modules": None, "name_records": None}
    modules = backend.log_get_modules(log)
    about = {**_job(ffi, library, handle), "modules": modules, "columns": {}}
    partial = [name for name in (*DXT, *COUNTED) if modules.get(name, {}).get("partial_flag")]
    if not partial:
        about["names"] = _names(ffi, library, handle)
        about["hosts"] = _segments(ffi, library, handle, modules, out)
        for name in COUNTED:
            if name in modules:
                about["columns"][name] = _counters(backend, handle, modules[name]["idx"], name, out)
    library.darshan_log_close(handle)
    (out / "about.json").write_text(json.dumps({**about, "partial": partial}), encoding="ascii")


def _text(ffi: Any, value: Any) -> str:
    return bytes(ffi.string(value)).decode("utf-8", "surrogateescape")


def _job(ffi: Any, library: Any, handle: Any) -> dict[str, Any]:
    job = ffi.new("struct darshan_job *")
    runtime = ffi.new("double *")
    executable = ffi.new("char[]", 1 << 16)
    if library.darshan_log_get_job(handle, job) != 0 or library.darshan_log_get_exe(handle, executable) != 0:
        sys.exit("Error: the log does not name its job.")
    library.darshan_log_get_job_runtime(handle, job[0], runtime)
    return {
        # The handle starts with the version of the log, a string.
        "log_version": _text(ffi, ffi.cast("char *", handle)),
        "start_ns": int(job.start_time_sec) * 10**9 + int(job.start_time_nsec),
        "end_ns": int(job.end_time_sec) * 10**9 + int(job.end_time_nsec),
        "nprocs": int(job.nprocs),
        "job_id": int(job.jobid),
        "runtime_s": float(runtime[0]),
        "metadata": _text(ffi, job.metadata),
        "command": _text(ffi, executable),
    }


def _names(ffi: Any, library: Any, handle: Any) -> dict[str, str]:
    records = ffi.new("struct darshan_name_record **")
    count = ffi.new("int *")
    library.darshan_log_get_name_records(handle, records, count)
    return {str(int(records[0][i].id)): _text(ffi, records[0][i].name) for i in range(count[0])}


def _segments(ffi: Any, library: Any, handle: Any, modules: dict[str, Any], out: Path) -> list[str]:
    hosts: dict[str, int] = {}
    records: list[tuple[int, ...]] = []
    with open(out / "segments.bin", "wb") as file:
        for number, name in enumerate(DXT):
            if name in modules:
                _module(ffi, library, handle, modules[name]["idx"], number, hosts, records, file)
    np.save(out / "records.npy", np.array(records, dtype=RECORD))
    return list(hosts)


def _module(
    ffi: Any,
    library: Any,
    handle: Any,
    index: int,
    number: int,
    hosts: dict[str, int],
    records: list[tuple[int, ...]],
    file: IO[bytes],
) -> None:
    start, width = ffi.sizeof("struct dxt_file_record"), ffi.sizeof("struct segment_info")
    buffer = ffi.new("void **")
    while library.darshan_log_get_record(handle, index, buffer) > 0:
        record = ffi.cast("struct dxt_file_record *", buffer[0])
        host = hosts.setdefault(_text(ffi, record.hostname), len(hosts))
        writes, reads = int(record.write_count), int(record.read_count)
        records.append((int(record.base_rec.id), int(record.base_rec.rank), host, number, writes, reads))
        content = ffi.buffer(buffer[0] + start, (writes + reads) * width)
        if width == SEGMENT.itemsize:
            file.write(content)
        else:  # a later version of the library may append fields
            file.write(np.frombuffer(content, np.uint8).reshape(-1, width)[:, : SEGMENT.itemsize].tobytes())
        library.darshan_free(buffer[0])
        buffer[0] = ffi.NULL


def _counters(backend: Any, handle: Any, index: int, name: str, out: Path) -> list[str]:
    ffi, library = backend.ffi, backend.libdutil
    pointer = backend._structdefs[name].replace("**", "*")
    names = [*backend.counter_names(name), *backend.fcounter_names(name)]
    places = [place for place, column in enumerate(names) if column.endswith(KEPT)]
    rows: list[Any] = []
    buffer = ffi.new("void **")
    while library.darshan_log_get_record(handle, index, buffer) > 0:
        record = ffi.cast(pointer, buffer[0])
        # Everything as the 64 bits of an integer, so that neither ids nor times lose a digit.
        head = np.array([int(record.base_rec.id)], np.uint64).view(np.int64)
        content = bytes(ffi.buffer(record.counters)) + bytes(ffi.buffer(record.fcounters))
        rows.append(np.concatenate((head, [int(record.base_rec.rank)], np.frombuffer(content, np.int64)[places])))
        library.darshan_free(buffer[0])
        buffer[0] = ffi.NULL
    np.save(out / f"counters-{name}.npy", np.array(rows, np.int64).reshape(len(rows), len(places) + 2))
    return ["id", "rank", *(names[place] for place in places)]


if __name__ == "__main__":
    main(*sys.argv[1:])
