"""Builds the section on recorded I/O calls: their time, bytes, sizes and order in all."""

from __future__ import annotations

from dlio_torch.report.html.page_blocks import NOT_MEASURED, Absent, Block, Facts, Section, Text
from dlio_torch.report.html.run.view import GET_CALLS, View
from dlio_torch.units import format_duration, format_rate, format_size, percent

_TITLE = "I/O calls"


def call_section(view: View) -> Section:
    """Builds the facts on all recorded I/O calls, and on bytes that only counters contain."""
    rows = [*_calls(view), *_counters(view)]
    blocks: list[Block] = [Text(_sentence(view))] if len(view.moves) else []
    blocks.append(Facts(rows) if rows else Absent(GET_CALLS))
    return Section("calls", _TITLE, blocks)


def _sentence(view: View) -> str:
    """The bytes read and written in a sentence, with their time, sizes and order."""
    rates = view.bandwidth
    sizes = view.sizes["all"]
    order = view.order["all"]
    spent, runtime, share = view.io_time, view.recording.runtime_s, view.io_share
    who = f"{view.ranks} ranks" if view.ranks > 1 else "The program"
    text = f"{who} read {format_size(rates['read'].bytes)} and wrote {format_size(rates['write'].bytes)}"
    text += f" within {format_duration(runtime)}" if runtime else ""
    files = view.moves["file"].nunique()
    text += f" in {files} file{'' if files == 1 else 's'}"
    if view.counted_words:
        text += f", and by counters without recorded calls {view.counted_words}"
    text += f"; {'at least one of them' if view.ranks > 1 else 'it'} was in an I/O call for "
    text += format_duration(spent.global_s)
    text += f" ({percent(share[0])} of the {share[1]})" if share else ""
    if rates["all"].bytes_per_s is not None:
        text += f", moving {format_rate(rates['all'].bytes_per_s)}"
    if sizes.median is not None:
        text += f"; half of the transfers are of {format_size(sizes.median)} or less"
    if order.sequential is not None:
        text += f", {percent(order.sequential)} {view.placed_words or 'of them'} are sequential"
    return f"{text}."


def _calls(view: View) -> list[tuple[str, str]]:
    if not len(view.calls):
        return []
    spent, share = view.io_time, view.io_share
    text = f"{format_duration(spent.global_s)}: union of the calls' intervals over all ranks"
    text += f", {percent(share[0])} of the {share[1]}" if share else ""
    if spent.mean_per_rank_s is not None:
        text += f"; {format_duration(spent.mean_per_rank_s)} per rank on average, summed over its calls"
    rows = [("time in I/O calls", text)]
    if view.recording.runtime_s is not None and view.summary is None:
        rows.append(("run time of the recorded program", format_duration(view.recording.runtime_s)))
    for kind, done in (("read", "read"), ("write", "written")):
        figures = view.bandwidth[kind]
        if figures.calls:
            rate = NOT_MEASURED if figures.bytes_per_s is None else format_rate(figures.bytes_per_s)
            files = " on data files" if view.recording.kind == "run" else ""
            rows.append(
                (
                    f"{done} by recorded calls{files}",
                    f"{format_size(figures.bytes)} in {figures.calls:,} calls, {rate} during I/O time",
                )
            )
    sizes, order = view.sizes["all"], view.order["all"]
    if sizes.median is not None and sizes.mean is not None:
        rows.append(("transfer size", f"median {format_size(sizes.median)}, mean {format_size(round(sizes.mean))}"))
    if order.sequential is not None and order.consecutive is not None:
        text = f"{percent(order.sequential)} sequential, {percent(order.consecutive)} consecutive, per file"
        rows.append(("order of accesses", f"{text}, {view.placed_words}".removesuffix(", ")))
    return rows


def _counters(view: View) -> list[tuple[str, str]]:
    return [
        (f"{done} through {layer}", f"{format_size(size)}, known from counters: single calls were not recorded")
        for layer, moved in view.counted_only.items()
        for size, done in zip(moved, ("read", "written"), strict=True)
        if size
    ]
