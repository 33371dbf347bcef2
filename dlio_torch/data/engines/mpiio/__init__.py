"""Reading by MPI-IO: ``access.io=independent``, each rank for itself, and ``collective``, all ranks together.

What carries out the calls is the MPI's own layer, ROMIO in MPICH and its kin, OMPIO or ROMIO in Open MPI: that
joins what ranks ask for together into large requests of a few aggregators (two-phase I/O), and reads across gaps
where one rank asks for scattered extents (data sieving), as the hints say.

====================  ====================================================================================
``reading_ranks.py``  the ranks that read, the hints, open files, and what was asked for
``step_files.py``     which files any rank needs in a step, known to all without a message
``byte_ranges.py``    samples that are contiguous byte ranges, read by ``MPI.File``
``dataset.py``        the batches
====================  ====================================================================================
"""
