"""Facts about netCDF files, with and without the CF conventions, that need no open file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from dlio_torch.formats.core.content import least
from dlio_torch.formats.core.facts import FormatFacts
from dlio_torch.formats.netcdf.options import NetcdfConfig
from dlio_torch.units import counted


class NetcdfFacts(FormatFacts):
    """Facts about format ``netcdf``."""

    name: ClassVar[str] = "netcdf"
    format: ClassVar[str] = "dlio_torch.formats.netcdf.format:NetcdfFormat"
    options: ClassVar[type | None] = NetcdfConfig
    group: ClassVar[str] = "netcdf"
    uncompressed: ClassVar[tuple[str, Any] | None] = ("compression", "none")
    magics: ClassVar[tuple[bytes, ...]] = tuple(b"CDF" + bytes([version]) for version in (1, 2, 5))
    content: ClassVar[str] = "dlio_torch.formats.netcdf.content:read_content"

    def content_text(self, content: Mapping[str, Any]) -> str:
        return f"{least(content)}{counted(len(content['arrays']), 'array')}" if "arrays" in content else ""


class NetcdfCfFacts(NetcdfFacts):
    """Facts about format ``netcdf_cf``, whose files are recognised as ``netcdf``."""

    name: ClassVar[str] = "netcdf_cf"
    format: ClassVar[str] = "dlio_torch.formats.netcdf.cf:NetcdfCfFormat"
    magics: ClassVar[tuple[bytes, ...]] = ()
