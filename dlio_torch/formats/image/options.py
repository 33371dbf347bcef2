"""Options of image files: ``dataset.image``, for jpeg and png."""

from __future__ import annotations

from dataclasses import dataclass

from dlio_torch.config.opt import LARGEST_CALL, opt


@dataclass(frozen=True)
class ImageConfig:
    """Folders of JPEG or PNG files, one image a file."""

    quality: int = opt(90, "JPEG quality, 1 to 95", minimum=1)
    file_bytes: int = opt(0, "mean size of a file; 0: as quality and shape give", unit="B", minimum=0)
    file_bytes_stdev: float = opt(0.0, "standard deviation of the size of a file", unit="B", minimum=0)
    decode: bool = opt(True, "decode to pixels where the sample is read; false: deliver the stored bytes")
    buffer_bytes: int = opt(
        0,
        "buffer of the open file, 4 MiB on Lustre, 4 KiB on ext4; 0: the file system's st_blksize",
        unit="B",
        minimum=0,
        maximum=LARGEST_CALL,
    )
