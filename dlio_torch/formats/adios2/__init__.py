"""Format ``adios2``: folders that ADIOS2 writes with its engines BP4 and BP5."""
