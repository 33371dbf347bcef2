"""Options of TFRecord files: ``dataset.tfrecord``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import LARGEST_CALL, MOST_DEFLATE, opt

SUFFIXES = (".tfrecord", ".tfrecords", ".tfrec", ".tfr", ".tfrecord.gz", ".tfrecords.gz")
"""Ends of file names that belong to the format, lower case."""


@dataclass(frozen=True)
class TfrecordConfig:
    """TensorFlow's record files: framed Example protos."""

    transfer_size: int = opt(
        262144, "size of one read call, which is TensorFlow's buffer_size", unit="B", minimum=1, maximum=LARGEST_CALL
    )
    compression: Literal["none", "gzip", "zlib"] = opt(
        "none", "compression of the whole file: TensorFlow's compression_type"
    )
    compression_level: int = opt(6, "gzip or zlib level, 0 to 9", minimum=0, maximum=MOST_DEFLATE)
    compressibility: float = opt(
        0.0, "share of the content that is constant; 0: all random; 1: all zero", minimum=0, maximum=1
    )
    verify_crc: bool = opt(True, "verify the checksums of each record, as TensorFlow does")
    float_lists: list[str] = opt(
        [], "fields stored as lists of floats; all others are stored as the bytes of their memory"
    )
    index: bool = opt(False, "write an index beside each file and read it when the file is opened, for random access")
