"""Hook of MkDocs: shows the cross references of docstrings as code, since the API page holds only some targets."""

from __future__ import annotations

import re

_REFERENCE = re.compile(r":(?:mod|class|func|meth|attr|data):<code>(~?)([\w.]+)</code>")


def on_page_content(html: str, **_: object) -> str:
    """Show ``:class:`~a.b.C``` as ``C``, and without the tilde as ``a.b.C``."""
    return _REFERENCE.sub(lambda match: f"<code>{_shown(match[1], match[2])}</code>", html)


def _shown(tilde: str, name: str) -> str:
    return name.rpartition(".")[2] if tilde else name.removeprefix(".")
