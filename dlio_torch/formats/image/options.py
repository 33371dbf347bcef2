"""Options of image files: ``dataset.image``, for jpeg and png."""

from __future__ import annotations

from dataclasses import dataclass

from dlio_torch.config.opt import LARGEST_CALL, opt


@dataclass(frozen=True)
class ImageConfig:
    """Folders of JPEG or PNG files, one image a file."""

    quality: int = opt(90, "JPEG quality, 1 to 95", minimum=1)
    file_bytes: int = opt(0, "mean file size; 0: the size that quality and shape give", unit="B", minimum=0)
    file_bytes_stdev: float = opt(0.0, "standard deviation of the file size", unit="B", minimum=0)
    decode: bool = opt(
        True,
        "true: each image is decoded to pixels by the thread or process that reads it; false: the stored "
        "bytes are delivered",
    )
    buffer_bytes: int = opt(
        0,
        "buffer of an open file; 0: st_blksize of the file system (4 KiB on ext4, 4 MiB on Lustre)",
        unit="B",
        minimum=0,
        maximum=LARGEST_CALL,
    )
