"""Shared fixtures: small scenes, a model that trains in seconds, and the command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

# One process per core runs tests, so each takes one thread. This must precede the first import of torch.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest
from filelock import FileLock
from helpers.command_line import SIGNALS, TINY, Ran, Trained, default_signals, run_command

if TYPE_CHECKING:
    from helpers.browser import Browser

    from caption.data.shapes import Shapes

import caption  # noqa: F401  (before torchvision and pytorch_lightning, which imports it)

hypothesis.settings.register_profile("suite", max_examples=50, deadline=None)
hypothesis.settings.load_profile("suite")


SLOW = {"browser", "tiny", "trained"}
"""Fixtures of tests that train or open pages."""
SLOW_ROOMS = {"training", "visualize"}
"""Rooms whose tests train or draw."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Nightly tests are slow, too, and so are those that train, draw or open pages: `-m "not slow"` leaves them out."""
    for item in items:
        is_slow = SLOW.intersection(item.fixturenames) or item.path.parent.name in SLOW_ROOMS
        if is_slow or item.get_closest_marker("nightly"):
            item.add_marker("slow")


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Every test begins with the default actions of signals, and leaves the handlers as they were."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    default_signals()
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A Chromium for the tests of pages."""
    from helpers.browser import DRIVER, Browser

    if DRIVER is None:
        pytest.skip("no Chromium with its driver on this machine")
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """Gives a folder that the first of the test processes has filled; nobody may change it."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def get(name: str, fill: Callable[[Path], None]) -> Path:
        with FileLock(base / f"{name}.lock"):
            if not (base / f"{name}.filled").exists():
                (base / name).mkdir()
                fill(base / name)
                (base / f"{name}.filled").touch()
        return base / name

    return get


@pytest.fixture(scope="session")
def shapes(once: Callable[..., Path]) -> Path:
    """The folder of 40 training, 8 validation and 8 test scenes of 48 pixels."""
    from caption.data.shapes.dataset import write_shapes

    return once("shapes", lambda folder: write_shapes(folder, train=40, val=8, test=8, size=48))


@pytest.fixture(scope="session")
def reader(shapes: Path) -> Shapes:
    """Reads these scenes."""
    from caption.data.shapes import Shapes

    return Shapes(str(shapes), train=40, val=8, test=8, size=48)


@pytest.fixture(scope="session")
def lightning() -> None:
    """Lightning's log handler keeps the stderr at its import, which must not be that of a single test."""
    import caption.cli.training.command  # noqa: F401


@pytest.fixture
def tiny(shapes: Path, tmp_path: Path) -> Path:
    """A configuration that trains in seconds, into `run` next to it."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY.format(folder=tmp_path, shapes=shapes), encoding="utf-8")
    return path


@pytest.fixture
def cli(lightning: None, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs the command in this process."""
    from caption.cli.main import main

    def run(*args: object) -> Ran:
        import torch

        precision = torch.get_float32_matmul_precision()
        capsys.readouterr()
        try:
            code = main([str(arg) for arg in args])
        finally:
            torch.set_float32_matmul_precision(precision)
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def trained(shapes: Path, once: Callable[..., Path]) -> Trained:
    """Two epochs of `caption fit`; tests must not change the folder."""

    def train(folder: Path) -> None:
        (folder / "tiny.yaml").write_text(TINY.format(folder=folder, shapes=shapes), encoding="utf-8")
        ran = run_command("fit", "-c", folder / "tiny.yaml")
        assert ran.code == 0, ran.err
        (folder / "ran.json").write_text(json.dumps(ran))

    folder = once("trained", train)
    return Trained(folder / "tiny.yaml", folder / "run", Ran(*json.loads((folder / "ran.json").read_text())))


@pytest.fixture(scope="session")
def model(once: Callable[..., Path]) -> Path:
    """The file of `helpers.tiny_captioner.captioner()`; nobody may change it."""
    from helpers.tiny_captioner import captioner

    from caption.models import checkpoint

    return once("model", lambda folder: checkpoint.save(captioner(), folder / "tiny.ckpt")) / "tiny.ckpt"


@pytest.fixture
def copied(trained: Trained, tmp_path: Path) -> Path:
    """A copy of the trained run's folder, for changes."""
    return Path(shutil.copytree(trained.folder, tmp_path / "copy"))
