"""Pages of reports, parsed, and what must hold for each of them."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "link", "br", "img", "hr", "input"}
HOSTILE = "/data/<script>alert(1)</script>\"'&amp;$x^2$\udcff\x1b[31m\u202e.h5"


MIB = 1 << 20


@dataclass
class Page(HTMLParser):
    """A page, parsed: every element must be closed, in order."""

    path: Path
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.source = self.path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "figcaption":
            self.captions.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & {*self.open}:
            self.texts.append(data)
        if "figcaption" in self.open:
            self.captions[-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).replace("\u00a0", " ").split())

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def section(self, key: str) -> str:
        """The text of a section."""
        part = self.source.split(f'<section id="{key}"', 1)[1].split("</section>", 1)[0]
        return " ".join(re.sub(r"<[^>]*>", " ", part).replace("\u00a0", " ").split())


def check(page: Page) -> None:
    """What holds for every page."""
    assert len(page.of("h1")) == 1
    assert page.of("script") == [{}]
    [script] = re.findall(r"<script>(.*?)</script>", page.source, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in page.source
    assert len(page.of("figure")) == len(page.captions) == len([tag for tag in page.of("svg") if tag.get("aria-label")])
    for number, caption in enumerate(page.captions, start=1):
        assert caption.startswith(f"Figure {number}. ")
        assert re.search(r"[Ee]xact|[Ee]stimated", caption), caption
        assert len(caption) > 80
    for _tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "xlink:href"):
                assert value is not None
                assert value.startswith(("#", "data:image/png;base64,"))
    assert not re.search(r"url\((?!#)|@import", page.source)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {f"#{name}" for name in ids}
    for _tag, attributes in page.tags:
        for name, value in attributes.items():
            if name.endswith("href") and value is not None and value.startswith("#"):
                assert value in targets
    assert page.path.stat().st_size < 3 * MIB
