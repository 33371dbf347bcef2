"""Before the training: where the samples lie, and generating them."""

from __future__ import annotations

import sys

from dlio_torch.data.dataset import description
from dlio_torch.data.dataset import manifest as layout
from dlio_torch.data.dataset.generation import Generated, generate
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.dataset.once import OnceFiles
from dlio_torch.data.dataset.visibility import check_seen
from dlio_torch.errors import DataError
from dlio_torch.native.filling import NativeFiller, open_filler
from dlio_torch.report.found import found_lines
from dlio_torch.run.setting import Setting
from dlio_torch.trace.spans import Recorder
from dlio_torch.units import format_size


def where_samples_lie(run: Setting) -> dict[str, Manifest]:
    """The manifests ``train`` and ``eval``; of existing data the first file is looked at."""
    path = run.config.dataset.path
    if path is None:
        return layout.generated(run.config, run.format)
    # An error of rank 0 ends the others through the communicator.
    manifest, details = layout.existing(run.config, run.format, run.comm)
    run.data_bytes = manifest.bytes or 0
    run.details = {"files": manifest.num_files, "samples": manifest.num_samples, **details}
    if run.first:
        print("\n".join(found_lines(path, run.details)), file=sys.stderr)
    if run.first:
        OnceFiles(run.config, run.format).check_present()
    # Existing data have no evaluation files of their own: evaluation reads the same ones.
    return {"train": manifest, "eval": manifest}


def make_samples(run: Setting, recorder: Recorder) -> Generated | None:
    """Generate the data, where they are generated and lie in files."""
    if run.config.dataset.path is not None or not run.format.needs_files:
        return None
    with run.progress.task("generating", "files") as update, run.vigil("the data set to be written") as vigil:

        def show(done: int, total: int) -> None:
            vigil.asked += 1
            update(done, total)

        made = generate(run.config, run.format, run.comm, recorder, show)
    run.data_bytes = made.data_bytes
    if run.first:
        folder = layout.data_folder(run.config, run.format)
        rate = f", {format_size(made.bytes / made.seconds)}/s" if made.bytes and made.seconds else ""
        # The same bytes at a fraction of the rate, which must not be taken for the storage's.
        slowly = made.written and not isinstance(filler := open_filler(), NativeFiller)
        by = f"; content was made by {filler.how}" if slowly else ""
        print(
            f"data: {folder}: {made.written} file(s) written ({format_size(made.bytes)}{rate}), "
            f"{made.reused} reused{by}",
            file=sys.stderr,
        )
        if made.checksum is not None:
            print(f"data: sha256 {made.checksum}", file=sys.stderr)
    return made


def use_existing(run: Setting, manifests: dict[str, Manifest]) -> None:
    """Check that the generated data are there, and take the parameters that they were made with.

    Raises:
        DataError: they are not.
    """
    if run.config.dataset.path is not None or not run.format.needs_files:
        return
    run.data_bytes = layout.check_present(manifests, run.format, run.comm)
    found = None
    if run.first:
        OnceFiles(run.config, run.format).check_present()
        folder = layout.data_folder(run.config, run.format)
        found = description.read_description(folder)
        if found is None:
            raise DataError(f"{folder / description.DESCRIPTION} does not exist", hint="run the verb generate")
        description.check_description(found, run.config, run.format)
    found = run.comm.broadcast_object(found)
    assert found is not None
    folder = layout.data_folder(run.config, run.format)
    check_seen(folder / description.DESCRIPTION, run.comm, "dataset.root")
    description.use_description(found, folder, run.format)
