"""File formats: one module a format, each both writing and reading its files.

``registry.py`` names them; ``base.py`` is the contract that all of them fulfil and that
``contract.py`` tests.  Formats do not import each other.
"""

from contextlib import suppress

with suppress(ImportError):
    # A parallel h5py imports mpi4py, which would initialise MPI in every process that looks at a file, loader
    # workers among them. dist/mpi.py does it where ranks talk over MPI.
    import mpi4py

    mpi4py.rc.initialize = False
    mpi4py.rc.finalize = False
