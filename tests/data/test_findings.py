"""Findings: faults are collected, or the first one raises."""

import pytest

from caption.data.readers.captions import Finding, Findings, Kind, Refusal
from caption.errors import DataError


def missing(count: int) -> list[Finding]:
    return [Finding(Kind.MISSING, f"{number}.jpg") for number in range(count)]


def test_everything_is_collected_in_order() -> None:
    findings = Findings()
    findings.report(missing(2))
    findings.report([])
    findings.report([Finding(Kind.LONG, "long")])
    with findings.skipping():
        raise DataError("line 3 is wrong")
    findings.report([Finding(Kind.BARE, "bare")])
    assert [finding.text for finding in findings.found] == [
        "0.jpg",
        "1.jpg",
        "long",
        "line 3 is wrong",
        "bare",
    ]
    assert findings.of(Kind.MALFORMED) == [Finding(Kind.MALFORMED, "line 3 is wrong")]
    assert [f.kind for f in findings.found if f.kind.is_fault] == [
        Kind.MISSING,
        Kind.MISSING,
        Kind.MALFORMED,
        Kind.BARE,
    ]


def test_only_faults_of_the_data_are_skipped() -> None:
    findings = Findings()
    with pytest.raises(ZeroDivisionError), findings.skipping():
        _ = 1 / 0
    with findings.skipping():
        pass
    assert findings.found == []


def test_a_refusal_names_the_first_few_and_the_remedy() -> None:
    with pytest.raises(DataError) as caught:
        Refusal("'x.csv'").report(missing(5))
    message = str(caught.value)
    assert message.startswith("5 missing images in 'x.csv': 0.jpg, 1.jpg, 2.jpg and 2 more. Get the files")
    assert "caption check" in message
    with pytest.raises(DataError, match=r"^1 missing image: 0\.jpg\. "):
        Refusal("").report(missing(1))


def test_a_refusal_lets_errors_through_as_they_are_and_passes_notes_over() -> None:
    refusal = Refusal("x")
    with pytest.raises(DataError, match=r"^line 3 is wrong$"), refusal.skipping():
        raise DataError("line 3 is wrong")
    refusal.report([Finding(Kind.LONG, "long")])
    refusal.report([])
    assert refusal.found == []


def test_faults_come_before_notes() -> None:
    severities = [kind.is_fault for kind in Kind]
    assert severities == sorted(severities, reverse=True)
    assert len({kind.label for kind in Kind}) == len(Kind)
