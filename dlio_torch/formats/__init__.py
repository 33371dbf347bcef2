"""File formats: one module a format, each both writing and reading its files.

``registry.py`` names them; ``base.py`` is the contract that all of them fulfil and that
``contract.py`` tests.  Formats do not import each other.
"""
