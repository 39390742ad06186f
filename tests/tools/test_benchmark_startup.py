"""The start-up benchmark: its statistics of the seconds, and its processes."""

from __future__ import annotations

from tools.benchmark import startup


def test_overhead_is_the_remainder_of_each_round():
    quiet = {"--help": 0.1, "libraries": 2.0, "shapes": 1.5, "shapes's work": 0.25}
    quiet |= {"MobileNetV2": 3.5, "MobileNetV2's work": 0.5}
    busy = {name: 2 * value for name, value in quiet.items()}
    text = startup.report([busy, quiet, quiet])
    shapes, mobilenet = text.split("\n")[-2:]
    assert shapes == (
        "| shapes | 1.50 s (1.50 s to 3.00 s) | 250 ms (250 ms to 500 ms) | −750 ms (−1.50 s to −750 ms) |"
    )
    assert mobilenet.endswith("| 1.00 s (1.00 s to 2.00 s) |")
    assert "2.00 s (2.00 s to 4.00 s)" in text
    assert "100 ms (100 ms to 200 ms)" in text


def test_a_process_gives_its_seconds_and_its_output():
    taken, printed = startup.run("-c", "import time; time.sleep(0.2); print(5)")
    assert taken > 0.2
    assert printed == "5\n"
