"""Builds the section on advice: changes, their evidence, and the predicted gain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlio_torch.analysis.call_findings import CallFinding
from dlio_torch.report.advice_text import needed
from dlio_torch.report.html.page_blocks import NOT_MEASURED, Absent, Block, Changes, Folded, Notes, Section, Table, Text
from dlio_torch.report.html.run.view import View
from dlio_torch.report.html.theme import clean
from dlio_torch.report.run_verdict import saved_share, settings_of
from dlio_torch.units import percent

_TITLE = "Advice"
CHANGES = "What to change"
"""Heading of the recommended changes on the first screen."""
_MOST_CHANGES = 3
_NO_FINDING = "No pattern of I/O calls that usually slows a program down was found."
_NOT_PREDICTED = "not predicted"
_MODEL = (
    "Predictions replay the measured times of all batches and steps through a model of the loader: of n producers, "
    "producer k mod n produces batch k as soon as the producer is free and the batch is requested. One end of a "
    "predicted interval neglects costs that this run did not show; the other end assumes their largest possible "
    'values. Both ends include the noise of the run and the error of the model. "At best" and "at most" mean '
    "that the other end of the interval is not known."
)


def advice_section(view: View) -> Section:
    """Builds the section with all advice and its evidence, or with the reason why there is none."""
    advice = view.summary.get("advice") if view.summary is not None else None
    if advice is None and view.recording.kind != "run" and (len(view.calls) or view.findings):
        return Section("advice", _TITLE, _on_calls(view))
    if advice is None:
        return Section("advice", _TITLE, [Absent(f"There is no advice for this recording. {view.get_run}")])
    blocks: list[Block] = [Text(advice["conclusion"])]
    items = [item for item in advice["items"] if item["key"] is not None]
    noticed = [item for item in advice["items"] if item["key"] is None]
    if items:
        rows = [
            [_setting(item), saved_share(item) or _NOT_PREDICTED, item["confidence"], f"{item['text']}{needed(item)}"]
            for item in items
        ]
        columns = ("<change", "share of the time saved", "<confidence", "<why")
        model = advice["model"]
        note = _MODEL if model is not None else ""
        note += (
            (
                " For this run, the modelled time of a step differs from the measured time by "
                f"{percent(abs(model['error']))}."
            )
            if model is not None
            else ""
        )
        blocks.append(Table("Recommended changes, largest gain first", columns, rows, note.strip()))
        blocks += [_evidence(item) for item in items]
    if noticed:
        rows = [
            [_setting(item), saved_share(item) or _NOT_PREDICTED, item["confidence"], item["text"]] for item in noticed
        ]
        note = "No option of dlio_torch changes these; the share is that of the time which they take."
        blocks.append(
            Table("What else was noticed", ("<noticed", "share of the time", "<confidence", "<why"), rows, note)
        )
        blocks += [_evidence(item) for item in noticed]
    if advice["caveats"]:
        blocks.append(Notes(advice["caveats"]))
    if advice["withheld"]:
        blocks.append(Folded("Changes that were checked and are not recommended", [Notes(advice["withheld"])]))
    return Section("advice", _TITLE, blocks)


def change_list(view: View) -> Changes | None:
    """Builds the list of the first changes that the advice recommends; None without advice."""
    advice = view.summary.get("advice") if view.summary is not None else None
    if advice is None:
        return _call_changes(view) if view.recording.kind != "run" and (len(view.calls) or view.findings) else None
    items = [item for item in advice["items"] if item["key"] is not None]
    shown = []
    for item in items[:_MOST_CHANGES]:
        settings = settings_of(item)
        saved = saved_share(item)
        gain = f"saves {saved} of the time" if saved else "no gain predicted"
        shown.append((settings, gain, item["text"]))
    left = len(items) - len(shown)
    note = f'{left} more in the section "{_TITLE}".' if left else ""
    if not items:
        note = str(advice["conclusion"])
        if not note.startswith("No advice"):
            note = f"No change of an option is recommended. {note}"
        noticed = [item["text"] for item in advice["items"]]
        note += f" Noticed: {'; '.join(noticed)}." if noticed else ""
    return Changes(CHANGES, shown, note)


def _call_changes(view: View) -> Changes:
    shown = [(finding.change, _concerned(finding), finding.text) for finding in view.findings[:_MOST_CHANGES]]
    left = len(view.findings) - len(shown)
    note = f'{left} more in the section "{_TITLE}".' if left else ""
    return Changes(CHANGES, shown, note if shown else _NO_FINDING, settings=False)


def _concerned(finding: CallFinding) -> str:
    return "" if finding.share is None else f"concerns {percent(finding.share)} of the time in I/O calls"


def _on_calls(view: View) -> list[Block]:
    """Builds the table of all findings on the calls of a recorded program or log."""
    if not view.findings:
        return [Text(_NO_FINDING)]
    rows = [
        [finding.change, NOT_MEASURED if finding.share is None else percent(finding.share), clean(finding.text)]
        for finding in view.findings
    ]
    note = (
        "Share of time: durations of the calls that a finding concerns / durations of all I/O calls. It is the most "
        "that a change can save of this time. Gains are not predicted, because the recording does not show what waits."
    )
    heads = ("<change", "share of the time in I/O calls", "<finding")
    return [Table("Findings on the I/O calls, those with most time first", heads, rows, note)]


def _setting(item: Mapping[str, Any]) -> str:
    return str(item["rule"]).replace("_", " ") if item["key"] is None else f"{item['key']}={item['value']}"


def _evidence(item: Mapping[str, Any]) -> Folded:
    rows = [[name, _figure(value)] for name, value in item["evidence"]]
    predicted = item["predicted"]
    note = ""
    if predicted is not None:
        high = "not known" if predicted["high"] is None else _figure(predicted["high"])
        note = (
            f"Predicted: {predicted['figure']} changes from {_figure(predicted['now'])} to at least "
            f"{_figure(predicted['low'])} and at most {high}. Assumption: {predicted['assumption']}."
        )
    return Folded(f"Evidence for {_setting(item)}", [Table("", ("<figure", "value"), rows, note)])


def _figure(value: object) -> str:
    if value is None:
        return "not measured"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
