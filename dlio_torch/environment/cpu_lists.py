"""Lists of CPU numbers as text, in the kernel's format: ``0-3,8`` for 0, 1, 2, 3, 8."""

from __future__ import annotations

from collections.abc import Iterable


def format_cpus(numbers: Iterable[int]) -> str:
    """Formats CPU numbers as ranges; an empty text for none."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def parse_cpus(text: str) -> tuple[int, ...]:
    """Numbers of a list of CPUs, in ascending order.

    Raises:
        ValueError: the text is no such list.
    """
    numbers: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(numbers))
