"""Formats ``netcdf`` and ``netcdf_cf``: netCDF files, generic or with the CF conventions."""
