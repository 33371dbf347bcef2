"""File formats: each subpackage writes and reads the files of one family of formats.

``core`` has the contract and the registry of formats, ``testing`` the test suite that each format passes.  Families
do not import each other, except those that are built on HDF5.
"""

from contextlib import suppress

with suppress(ImportError):
    # A parallel h5py imports mpi4py, which would initialise MPI in every process that looks at a file, loader
    # workers among them. dist/mpi.py does it where ranks talk over MPI.
    import mpi4py

    mpi4py.rc.initialize = False
    mpi4py.rc.finalize = False
