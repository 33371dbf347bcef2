"""netCDF, generic and with the CF conventions."""
