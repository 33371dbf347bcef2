"""Preparation of a run: its data set is located, checked, and generated if the run is to generate it."""

from __future__ import annotations

import sys

from dlio_torch.data.dataset import description
from dlio_torch.data.dataset.generation import Generated, generate
from dlio_torch.data.dataset.manifest import check_present, data_folder
from dlio_torch.data.dataset.once import OnceFiles
from dlio_torch.data.dataset.visibility import check_seen
from dlio_torch.errors import DataError
from dlio_torch.execution.context import RunContext
from dlio_torch.execution.phase_results import PreparedRun
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.native.filling import NativeFiller, open_filler
from dlio_torch.preflight.data_location import locate_data
from dlio_torch.report.data_text import data_lines
from dlio_torch.units import format_size


def locate_data_set(context: RunContext) -> PreparedRun:
    """Locate the data set on all ranks; rank 0 prints what existing files hold.

    Raises:
        DataError: existing data are missing or do not fit the format.
    """
    config = context.composed.config
    data = locate_data(config, context.format, context.comm)
    if data.details is not None and context.is_rank_zero:
        print("\n".join(data_lines(config.dataset.path, data.details)), file=sys.stderr)
        OnceFiles(config, context.format).check_present()
    return PreparedRun(config, data.manifests, data.bytes, data.details)


def needs_generated_data(context: RunContext) -> bool:
    """Whether the run reads files that this program generates."""
    return context.composed.config.dataset.path is None and context.format.needs_files


def check_generated_data(context: RunContext, prepared: PreparedRun) -> int:
    """Check that the data set was generated before, and set the format's parameters to those it was made with.

    Returns:
        Size of all files.

    Raises:
        PreconditionError: files are missing.
        DataError: the data set has no description, or that of another one.
    """
    config, fmt, comm = prepared.config, context.format, context.comm
    size = check_present(prepared.manifests, fmt, comm)
    folder = data_folder(config, fmt)
    content = None
    if context.is_rank_zero:
        OnceFiles(config, fmt).check_present()
        content = description.read_description(folder)
        if content is None:
            raise DataError(f"{folder / description.DESCRIPTION} does not exist", hint="run the verb generate")
        description.check_description(content, config, fmt)
    content = comm.broadcast_object(content)
    assert content is not None
    check_seen(folder / description.DESCRIPTION, comm, "dataset.root")
    description.use_description(content, folder, fmt)
    return size


def generate_data_set(context: RunContext, prepared: PreparedRun, recorder: Recorder) -> Generated:
    """Generate the data set on all ranks; rank 0 prints what was written.

    Raises:
        DlioError: a file cannot be written.
    """
    config, fmt = prepared.config, context.format
    with (
        context.progress.task("generating", "files") as update,
        context.watchdog("the data set to be written") as watchdog,
    ):

        def show(done: int, total: int) -> None:
            watchdog.wait_number += 1
            update(done, total)

        generated = generate(config, fmt, context.comm, recorder, show)
    if context.is_rank_zero:
        _print_generated(generated, str(data_folder(config, fmt)))
    return generated


def _print_generated(generated: Generated, folder: str) -> None:
    rate = ""
    if generated.bytes and generated.seconds:
        rate = f", {format_size(generated.bytes / generated.seconds)}/s"
    # Without the native filler the rate is that of Python making the content, and not of the storage.
    slow = generated.written and not isinstance(filler := open_filler(), NativeFiller)
    by = f"; content was made by {filler.implementation}" if slow else ""
    print(
        f"data: {folder}: {generated.written} file(s) written ({format_size(generated.bytes)}{rate}), "
        f"{generated.reused} reused{by}",
        file=sys.stderr,
    )
    if generated.checksum is not None:
        print(f"data: sha256 {generated.checksum}", file=sys.stderr)
