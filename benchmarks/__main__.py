"""Entry point of ``python -m benchmarks``: see :mod:`benchmarks.harness.command`."""

from benchmarks.harness.command import main

if __name__ == "__main__":
    raise SystemExit(main())
