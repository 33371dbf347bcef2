"""Format ``netcdf_cf``: netCDF with the CF conventions (coordinates, units, contiguous ragged arrays).

Samples of fixed length are the steps of ``time``: a field of shape (lat, lon), (level, lat, lon) or (level) is a
variable (time, ...) with a coordinate variable for each of these dimensions; axes before those have none.  With
a variable-length field the file holds discrete sampling geometries (CF, chapter 9): a sample is a time series, its
rows lie along ``obs``, and ``row_size`` with ``sample_dimension = "obs"`` counts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.stacking import ends_of
from dlio_torch.formats.netcdf.array_format import NetcdfFiles, Table
from dlio_torch.formats.netcdf.file import Element, NcFile, Rows, create, reading
from dlio_torch.formats.netcdf.reader import CountedIndex, RowIndex

if TYPE_CHECKING:
    import netCDF4

_CONVENTIONS = "CF-1.11"
_REAL, _COUNT = Element(np.dtype(np.float64), {}), Element(np.dtype(np.int32), {})
_TIME = {"standard_name": "time", "units": "hours since 2000-01-01 00:00:00", "calendar": "standard"}
_LAT = {"standard_name": "latitude", "units": "degrees_north"}
_LON = {"standard_name": "longitude", "units": "degrees_east"}
_LEVEL = {"standard_name": "model_level_number", "units": "1", "positive": "down"}
_HOURS = 1 << 20  # evaluation samples have numbers beyond any date


class NetcdfCfFormat(NetcdfFiles):
    """Arrays of ``dataset.fields`` in netCDF files that follow the CF conventions."""

    name: ClassVar[str] = "netcdf_cf"

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        super().__init__(config, seed)
        # By stream of lengths, the name of its dimension: fields of equal lengths share one.
        streams = sorted({self._streams[i] for i, spec in enumerate(self._specs) if spec.variable})
        self._obs = {stream: f"obs_{i}" if i > 1 else "obs" for i, stream in enumerate(streams, start=1)}
        self._sample = "sample" if self._obs else "time"
        self._lengths: dict[str, dict[int, str]] = {}
        for spec in self._specs:
            self._axes(spec.shape)
        index_names = {name for obs in self._obs.values() for name in (_row_size(obs), _time(obs))}
        axes = {name for names in self._lengths.values() for name in names.values()}
        for spec in self._specs:
            if spec.name in {"sample", "time", "lat", "lon", "sample_id", *index_names, *axes}:
                raise ConfigError(
                    f"dataset.fields: name={spec.name!r} is reserved for a coordinate variable of "
                    f"dataset.format={self.name}",
                    hint="rename it",
                )

    def _axes(self, shape: tuple[int, ...]) -> tuple[str, ...]:
        """Dimension names of a sample, or of a row, with this shape."""
        kinds = {0: [], 1: ["level"], 2: ["lat", "lon"]}.get(len(shape), ["level", "lat", "lon"])
        if self._obs:  # the latitude of a time series is that of its place
            kinds = []
        names = []
        for kind, length in zip(["n"] * (len(shape) - len(kinds)) + kinds, shape, strict=True):
            known = self._lengths.setdefault(kind, {})
            fresh = f"{kind}{length}" if kind == "n" else f"{kind}_{length}" if known else kind
            names.append(known.setdefault(length, fresh))
        return tuple(names)

    # --- writing ---

    def describe(self, file: netCDF4.Dataset, first_sample: int, rows: Sequence[npt.NDArray[np.int64]]) -> list[Table]:
        samples = len(rows[0])
        file.setncatts({"Conventions": _CONVENTIONS, "title": "synthetic samples", "source": "dlio_torch"})
        file.createDimension(self._sample, None if self.options.unlimited else samples)
        tables = []
        for kind, names in self._lengths.items():
            for length, name in names.items():
                file.createDimension(name, length)
                if kind != "n":
                    tables.append(_coordinate(file, name, name, *_grid(kind, length)))
        hours = first_sample % _HOURS + np.arange(samples, dtype=np.float64)
        along = self.table_chunk(samples)
        if not self._obs:
            return [*tables, _coordinate(file, "time", "time", {**_TIME, "axis": "T"}, hours, along)]
        file.setncattr("featureType", "timeSeries")
        number = np.arange(samples, dtype=np.int32)
        identity = {"cf_role": "timeseries_id", "long_name": "number of the sample in this file"}
        tables.append(_variable(file, "sample_id", _COUNT, self._sample, identity, number, along))
        tables.append(_coordinate(file, "lat", self._sample, _LAT, hours % 180 - 89.5, along))
        tables.append(_coordinate(file, "lon", self._sample, _LON, hours % 360, along))
        for stream, obs in self._obs.items():
            counts = rows[self._streams.index(stream)]
            file.createDimension(obs, int(counts.sum()))
            counted = {"long_name": "rows of each sample", "sample_dimension": obs}
            tables.append(_variable(file, _row_size(obs), _COUNT, self._sample, counted, counts, along))
            within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
            tables.append(_coordinate(file, _time(obs), obs, _TIME, within.astype(np.float64)))
        return tables

    def dimensions(self, number: int) -> tuple[str, ...]:
        spec = self._specs[number]
        along = self._obs[self._streams[number]] if spec.variable else self._sample
        return (along, *self._axes(spec.shape))

    def attributes(self, number: int) -> dict[str, Any]:
        spec = self._specs[number]
        attributes = {"long_name": spec.name, "units": "1"}
        if self._obs:
            time = f"{_time(self._obs[self._streams[number]])} " if spec.variable else ""
            attributes["coordinates"] = f"{time}lat lon"
        return attributes

    def table_bytes(self, number: int) -> float:
        first = self._streams.index(self._streams[number]) == number
        stream = 4 + 8 * self.config.fields[number].length_mean if self._specs[number].variable and first else 0
        # What comes once a sample is counted with the first field.
        return stream + ((20 if self._obs else 8) if number == 0 else 0)

    # --- reading ---

    def check(self, file: NcFile) -> None:
        """Read the coordinate variables of all dimensions of the fields, as CF-aware readers do."""
        with reading(file.path):
            conventions = getattr(file.dataset, "Conventions", "")
            if "CF" not in str(conventions):
                raise DataError(
                    f"{file.path} does not declare the CF conventions: its attribute Conventions is {conventions!r}",
                    hint="set dataset.format=netcdf to read files without CF conventions",
                )
            variables = [file.variable(spec.name) for spec in self._specs]
            coordinates = file.dataset.variables
            for name in sorted({name for variable in variables for name in variable.dimensions}):
                if name in coordinates and coordinates[name].dimensions == (name,):
                    coordinates[name][:]

    def index(self, file: NcFile, number: int, array: Rows) -> RowIndex:
        name = self._specs[number].name
        with reading(file.path):
            along = array.variable.dimensions[0]
            counts = [
                variable
                for variable in file.dataset.variables.values()
                if getattr(variable, "sample_dimension", None) == along and variable.ndim == 1
            ]
            if not counts:
                raise DataError(
                    f"{file.path}: no variable has the attribute sample_dimension={along!r}, which marks the row "
                    f"counts of {name}",
                    hint="store the array as a contiguous ragged array; indexed and incomplete ragged arrays are "
                    "not supported",
                )
            lengths = np.asarray(counts[0][:]).astype(np.int64)
        return CountedIndex(ends_of(lengths, array.count, name, file.path, table=counts[0].name))


def _row_size(obs: str) -> str:
    return obs.replace("obs", "row_size")


def _time(obs: str) -> str:
    return obs.replace("obs", "time")


def _grid(kind: str, length: int) -> tuple[dict[str, str], npt.NDArray[np.float64]]:
    """Attributes and values of an axis's coordinate variable: centers of equal cells around the globe."""
    middles = (np.arange(length) + 0.5) / length
    if kind == "lat":
        return {**_LAT, "axis": "Y"}, 180 * middles - 90
    if kind == "lon":
        return {**_LON, "axis": "X"}, 360 * middles
    return {**_LEVEL, "axis": "Z"}, np.arange(1.0, length + 1)


def _coordinate(
    file: netCDF4.Dataset,
    name: str,
    dimension: str,
    attributes: Mapping[str, str],
    values: npt.NDArray[np.float64],
    storage: Mapping[str, Any] | None = None,
) -> Table:
    return _variable(file, name, _REAL, dimension, attributes, values, storage)


def _variable(
    file: netCDF4.Dataset,
    name: str,
    element: Element,
    dimension: str,
    attributes: Mapping[str, str],
    values: npt.NDArray[Any],
    storage: Mapping[str, Any] | None = None,
) -> Table:
    variable = create(file, name, element, (dimension,), **(storage or {}))
    variable.setncatts(dict(attributes))
    return variable, values.astype(element.dtype)
