"""What `caption check` prints: a page for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from caption.data.check.captions import SplitSummary
from caption.data.check.dataset import Check
from caption.data.readers.findings import KINDS, Finding, Kind
from caption.parts import Spec

SHOWN = 10  # findings of a kind that a page names before it counts the rest


def as_json(data: str, reader: Spec, limits: Mapping[str, Any], check: Check) -> str:
    """One object; `findings` has all of them."""
    report = {
        "data": data,
        "reader": reader,
        "limits": dict(limits),
        "complete": check.complete,
        "faults": len(check.faults),
        "notes": len(check.notes),
        "images": {"files": check.images, "examined": check.examined},
        "vocabulary": check.words,
        "splits": {split: _numbers(summary) for split, summary in check.splits.items()},
        "findings": [
            {
                "kind": finding.kind.name,
                "fault": finding.kind.is_fault,
                "text": finding.text,
                "images": list(finding.images),
            }
            for kind in KINDS
            for finding in check.findings
            if finding.kind == kind
        ],
    }
    return json.dumps(report, indent=1)


def _numbers(summary: SplitSummary) -> dict[str, Any]:
    return {
        "images": summary.images,
        "captions": summary.captions,
        "captions_per_image": {
            "fewest": summary.fewest_captions,
            "mean": summary.captions_per_image,
            "most": summary.most_captions,
        },
        "words": summary.words,
        "words_per_caption": {"mean": summary.words_per_caption, "most": summary.longest},
        "unknown_rate": summary.unknown_rate,
    }


def as_text(data: str, reader: Spec, limits: Mapping[str, Any], check: Check, recognised: bool) -> str:
    """The numbers, the findings by kind, faults first, and the verdict.

    Args:
        data: what was checked, as the user called it.
        reader: what read it.
        limits: tokenizer, min_count and max_words.
        check: what came of it.
        recognised: whether the reader was chosen by the content: then the page says how to name it.
    """
    parts = [f"{data}: {reader['class_path']}", _table(check.splits)] if check.splits else [data]
    if check.words is not None:
        parts.append(
            f"vocabulary: {check.words:,} words (training captions, count {limits['min_count']} or more, tokenizer "
            f"{limits['tokenizer']})"
        )
    if check.images:
        examined = f"{check.examined:,} decoded and compared"
        if not check.complete:
            examined = f"{check.examined:,} of {check.images:,} decoded and compared, then stopped"
        parts[-1] += f"\nimages: {examined}"
    for kind in KINDS:
        found = [finding for finding in check.findings if finding.kind == kind]
        if found:
            parts.append(_section(kind, found))
    if recognised:
        parts.append(f"in a configuration:\n{_yaml(reader)}")
    parts.append(_verdict(check))
    return "\n\n".join(parts)


def _table(splits: Mapping[str, SplitSummary]) -> str:
    heads = ["", "images", "captions", "per image", "words", "per caption", "longest", "unknown words"]
    rows = [heads]
    for split, summary in splits.items():
        fewest, most = summary.fewest_captions, summary.most_captions
        spread = f"{most}" if fewest == most else f"{fewest} to {most}, mean {summary.captions_per_image:.2f}"
        rate = summary.unknown_rate
        rows.append(
            [
                split,
                f"{summary.images:,}",
                f"{summary.captions:,}",
                spread,
                f"{summary.words:,}",
                f"{summary.words_per_caption:.1f}",
                f"{summary.longest}",
                "–" if rate is None else f"{100 * rate:.2f} %",
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _section(kind: Kind, found: list[Finding]) -> str:
    name = kind.name if len(found) == 1 else kind.plural
    lines = [f"{'FAULT' if kind.is_fault else 'note'}: {len(found):,} {name}. {kind.remedy}"]
    lines += [f"  {finding.text}" for finding in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"  and {len(found) - SHOWN:,} more, which --format json names")
    return "\n".join(lines)


def _yaml(reader: Spec) -> str:
    text = yaml.safe_dump({"data": {"reader": dict(reader)}}, sort_keys=False, allow_unicode=True)
    return "\n".join(f"  {line}" for line in text.splitlines())


def _verdict(check: Check) -> str:
    faults, notes = len(check.faults), len(check.notes)
    counts = f"{faults:,} fault{'s' * (faults != 1)}, {notes:,} note{'s' * (notes != 1)}"
    if faults:
        return f"{counts}: training on this data would be wrong."
    return f"{counts}: this data can be trained on." if check.complete else f"{counts} so far."
