"""The section on advice: changes, their evidence, and the predicted gain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlio_torch.report.advice_text import needed
from dlio_torch.report.html.page_blocks import Absent, Block, Folded, Notes, Section, Table, Text
from dlio_torch.report.html.run.view import View
from dlio_torch.report.run_verdict import percent

_TITLE = "Advice"
_MODEL = (
    "Predictions replay the measured times of all batches and steps through a model of the loader: producer k mod n "
    "produces batch k as soon as it is free and the batch is requested. One end of an interval neglects costs that "
    "this run did not show, the other one takes their largest possible values; both include the noise of the run and "
    "the error of the model. At best: the other end is not known."
)


def advice_section(view: View) -> Section:
    """All advice of a run with its evidence, or the reason for none."""
    advice = view.summary.get("advice") if view.summary is not None else None
    if advice is None:
        return Section("advice", _TITLE, [Absent(f"There is no advice for this recording. {view.get_run}")])
    blocks: list[Block] = [Text(advice["conclusion"])]
    items = advice["items"]
    if items:
        rows = [[_setting(item), _outlook(item), item["confidence"], f"{item['text']}{needed(item)}"] for item in items]
        columns = ("<change", "saves of the time", "<confidence", "<why")
        model = advice["model"]
        note = _MODEL if model is not None else ""
        note += f" Of this run the model misses {percent(abs(model['error']))}." if model is not None else ""
        blocks.append(Table("Changes, the largest gain first", columns, rows, note.strip()))
        blocks += [_evidence(item) for item in items]
    if advice["caveats"]:
        blocks.append(Notes(advice["caveats"]))
    if advice["withheld"]:
        blocks.append(Folded("Checked, and not advised", [Notes(advice["withheld"])]))
    return Section("advice", _TITLE, blocks)


def _setting(item: Mapping[str, Any]) -> str:
    return str(item["rule"]).replace("_", " ") if item["key"] is None else f"{item['key']}={item['value']}"


def _outlook(item: Mapping[str, Any]) -> str:
    """The share of the elapsed time that is saved."""
    predicted = item["predicted"]
    if predicted is None or predicted["gain_high"] is None:
        return "not predicted"
    high = percent(max(0.0, predicted["gain_high"]))
    if predicted["gain_low"] is None:
        return f"at most {high}"
    low = percent(max(0.0, predicted["gain_low"]))
    return high if low == high else f"{low} to {high}"


def _evidence(item: Mapping[str, Any]) -> Folded:
    rows = [[name, _figure(value)] for name, value in item["evidence"]]
    predicted = item["predicted"]
    note = ""
    if predicted is not None:
        high = "not known" if predicted["high"] is None else _figure(predicted["high"])
        note = (
            f"Predicted: {predicted['figure']} from {_figure(predicted['now'])} to {_figure(predicted['low'])} at the "
            f"least, {high} at the most. It is assumed that {predicted['assumption']}."
        )
    return Folded(f"Evidence for {_setting(item)}", [Table("", ("<figure", "value"), rows, note)])


def _figure(value: object) -> str:
    if value is None:
        return "not measured"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
