"""What all formats share: the contract, batches, file layouts, codecs, buffered and direct files, MPI files."""
