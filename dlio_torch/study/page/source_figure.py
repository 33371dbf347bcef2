"""Figure of the read rate of each setting from device or page cache, with the limits of the storage."""

from __future__ import annotations

from collections.abc import Sequence

from dlio_torch.analysis.cache import WARM
from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import BLACK, GREY, SKY, VERMILLION, panels, size_unit
from dlio_torch.report.run_verdict import percent
from dlio_torch.study.metrics import DEVICE_SHARE, STORAGE_LIMIT, STORAGE_RATE
from dlio_torch.study.page.marks import cut, handle, legend_of
from dlio_torch.study.page.page_data import StorageLimit
from dlio_torch.study.page.points import PointTrials, StudyView
from dlio_torch.study.values import text_of

MOST_BARS = 24
_STYLES = ("--", ":", "-.")


def source_figure(study: StudyView, points: Sequence[PointTrials], limits: Sequence[StorageLimit], name: str) -> str:
    """Draws a bar per point: the rate from the device, or from the page cache, with the limits of the storage.

    Args:
        study: for names.
        points: those to show, each with a rate of reading.
        limits: of the directory.
        name: unique on the page.
    """
    rates = [point.spreads[STORAGE_RATE.key].median for point in points]
    local = [point.spreads.get(STORAGE_LIMIT.key) for point in points]
    far = [item.median for item in local if item is not None] + [limit.bytes_per_s for limit in limits]
    factor, unit = size_unit(max([*rates, *far]))
    tips: dict[str, str] = {}
    device_known = [point.spreads.get(DEVICE_SHARE.key) for point in points]
    with panels(1, 1, 1.15 + 0.3 * len(points)) as (figure, [axes]):
        for index, (point, rate) in enumerate(zip(points, rates, strict=True)):
            share, limit = device_known[index], local[index]
            colour, result = GREY, "source not measured"
            if share is not None:
                colour = VERMILLION if share.median > WARM else SKY
                result = f"{percent(share.median)} of the bytes read came from the device"
            [bar] = axes.barh([index], [rate * factor], 0.68, color=colour, zorder=2)
            bar.set_gid(f"bar-{index}")
            tips[f"bar-{index}"] = f"{study.label(point.settings)}: {text_of(rate, 'B/s')}; {result}"
            if limit is not None:
                axes.plot([limit.median * factor], [index], marker="|", color=BLACK, markersize=15, markeredgewidth=2)
        for entry, style in zip(limits, _STYLES, strict=False):
            axes.axvline(entry.bytes_per_s * factor, color=BLACK, linestyle=style, linewidth=1.2)
        axes.set_yticks(range(len(points)), [cut(study.label(point.settings), 52) or "as set" for point in points])
        axes.tick_params(axis="y", length=0, labelcolor=BLACK)
        axes.set_ylim(len(points) - 0.5, -0.5)
        axes.set_xlim(0, max([*rates, *far]) * factor * 1.04)
        axes.set_xlabel(f"rate of reading, all ranks ({unit}/s)")
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        entries = []
        if any(item is not None and item.median > WARM for item in device_known):
            entries.append(handle("from the device", marker="s", color=VERMILLION, markersize=9))
        if any(item is not None and item.median <= WARM for item in device_known):
            entries.append(handle("from the page cache", marker="s", color=SKY, markersize=9))
        if any(item is None for item in device_known):
            entries.append(handle("source not measured", marker="s", color=GREY, markersize=9))
        if any(item is not None for item in local):
            entries.append(handle("storage limit for these reads", marker="|", markersize=12, markeredgewidth=2))
        for entry, style in zip(limits, _STYLES, strict=False):
            entries.append(handle(f"limit: {cut(entry.label, 60)}", linestyle=style))
        legend_of(figure, entries)
        return to_svg(figure, name, "Rate of reading of each setting, from the device or the page cache", tips)
