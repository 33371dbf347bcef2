"""The contract test suite that every format passes; it ships with the package."""
