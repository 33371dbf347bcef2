"""``python -m dlio_torch``."""

from __future__ import annotations

import sys

from dlio_torch.cli import main

if __name__ == "__main__":
    sys.exit(main())
