"""ADIOS2: folders of BP4 and BP5."""
