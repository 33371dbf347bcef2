"""Facts about netCDF files, with and without the CF conventions, that need no open file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from dlio_torch.formats.core.content import least
from dlio_torch.formats.core.facts import FormatFacts
from dlio_torch.formats.netcdf.options import NetcdfConfig
from dlio_torch.units import counted

_BEGIN_BYTES = 32 << 10  # attributes of the root group and of the first dimensions lie in the first kilobytes


class NetcdfFacts(FormatFacts):
    """Facts about format ``netcdf``."""

    name: ClassVar[str] = "netcdf"
    format: ClassVar[str] = "dlio_torch.formats.netcdf.format:NetcdfFormat"
    options: ClassVar[type | None] = NetcdfConfig
    group: ClassVar[str] = "netcdf"
    uncompressed: ClassVar[tuple[str, Any] | None] = ("compression", "none")
    based_on: ClassVar[str] = "hdf5"  # netCDF-4
    magics: ClassVar[tuple[bytes, ...]] = tuple(b"CDF" + bytes([version]) for version in (1, 2, 5))
    suffixes: ClassVar[tuple[str, ...]] = (".nc", ".nc4")
    describe: ClassVar[str] = "dlio_torch.formats.netcdf.describe:describe"
    recreate: ClassVar[str] = "dlio_torch.formats.core.recreation:as_described"
    content: ClassVar[str] = "dlio_torch.formats.netcdf.content:read_content"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether an HDF5 file has the attributes that the netCDF-4 library writes."""
        with path.open("rb") as file:
            begin = file.read(_BEGIN_BYTES)
        return any(name in begin for name in (b"_NCProperties", b"_Netcdf4Dimid", b"_Netcdf4Coordinates"))

    def content_text(self, content: Mapping[str, Any]) -> str:
        return f"{least(content)}{counted(len(content['arrays']), 'array')}" if "arrays" in content else ""


class NetcdfCfFacts(NetcdfFacts):
    """Facts about format ``netcdf_cf``, whose files are recognised as ``netcdf``."""

    name: ClassVar[str] = "netcdf_cf"
    format: ClassVar[str] = "dlio_torch.formats.netcdf.cf:NetcdfCfFormat"
    magics: ClassVar[tuple[bytes, ...]] = ()
    based_on: ClassVar[str] = ""
    describe: ClassVar[str] = "dlio_torch.formats.netcdf.describe:describe_cf"
    recreate: ClassVar[str] = ""

    def recognises(self, path: Path, head: bytes) -> bool:
        return False
