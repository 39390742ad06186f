"""Class paths in a stranger's checkpoint: nothing runs for them unless the user trusts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import QUIET, Ran, Trained
from helpers.tiny_captioner import captioner, rewrite

import caption
from caption.core.errors import CheckpointError
from caption.core.runtime.trust import check_texts, class_paths, find_object, import_from, make
from caption.encoders import Encoder, TorchvisionEncoder
from caption.models import checkpoint

Cli = Callable[..., Ran]
MODULE = """\
from pathlib import Path

from caption.encoders import SmallCNN

Path({canary!r}).touch()


class Foreign(SmallCNN):
    "A class that may be a part."
"""


FOREIGN = {"class_path": "stranger.Foreign", "init_args": {}}


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file that exists once the module `stranger` was imported."""
    return tmp_path / "canary"


@pytest.fixture(autouse=True)
def stranger(tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that can be imported and is not, with a part of its own."""
    package = tmp_path / "packages" / "stranger"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(MODULE.format(canary=str(canary)))
    monkeypatch.syspath_prepend(tmp_path / "packages")
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "stranger"]:
        del sys.modules[name]


def with_encoder(path: str) -> Callable[[dict[str, Any]], None]:
    return lambda contents: contents["captioner"]["encoder"].update(class_path=path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint whose encoder is the stranger's."""
    checkpoint.save(captioner(), tmp_path / "model.ckpt")
    return rewrite(tmp_path / "model.ckpt", with_encoder("stranger.Foreign"))


@pytest.mark.parametrize("trust", [(), "strange", "stranger.other", "caption"])
def test_a_class_of_another_package_is_refused_and_its_module_is_not_imported(
    trust: Any, path: Path, canary: Path
):
    with pytest.raises(CheckpointError, match=r"stranger\.Foreign.*--trust stranger, or trust='stranger'"):
        caption.load(path, trust=trust)
    assert not canary.exists()
    assert "stranger" not in sys.modules


@pytest.mark.parametrize("trust", ["stranger", ["stranger"], ("other", "stranger.Foreign")], ids=str)
def test_a_package_that_the_user_trusts_is_imported_for_parts_inside_parts_too(
    trust: Any, path: Path, canary: Path
):
    spec = {"class_path": "caption.encoders.SeveralEncoders", "init_args": {"encoders": [FOREIGN, FOREIGN]}}
    make(spec, Encoder, trust=iter([trust] if isinstance(trust, str) else trust))
    assert canary.exists()
    del sys.modules["stranger"]
    canary.unlink()
    assert type(caption.load(path, trust=trust).encoder).__name__ == "Foreign"
    assert canary.exists()


def test_a_module_that_is_imported_already_may_be_named_and_its_lazy_names_are_not_made(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    import stranger  # type: ignore[import-not-found]

    assert type(caption.load(path, accelerate=False).encoder) is stranger.Foreign

    def importing(name: str) -> type:
        raise AssertionError("the module's __getattr__ ran")

    monkeypatch.setattr(stranger, "__getattr__", importing, raising=False)
    with pytest.raises(CheckpointError, match=r"there is no class stranger\.Lazy"):
        find_object("stranger.Lazy")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("antigravity.x", "--trust"),
        ("torch.utils.bottleneck.__main__.x", "--trust"),
        *((f"caption.{name}.X", f"there is no class caption.{name}.X")
          for name in ("__main__", "cli.main", "main", "models.hub", "none")),
    ],
)  # fmt: skip
def test_modules_that_are_not_imported_yet_and_those_without_parts_are_refused(path: str, said: str):
    before = set(sys.modules)
    with pytest.raises(CheckpointError, match=said):
        make({"class_path": path}, Encoder)
    assert set(sys.modules) == before


def test_class_paths_are_found_at_any_depth():
    inner = {"class_path": "b.B", "init_args": {"of": [{"class_path": "c.C"}, 1], "text": "d.D"}}
    spec = {"encoder": {"class_path": "a.A", "init_args": {"b": inner}}}
    assert [*class_paths(spec)] == ["a.A", "b.B", "c.C"]


# -- what a parser of configurations is given ----------------------------------------------------------------


def test_the_architecture_of_a_checkpoint_has_all_its_specs_and_nothing_else(trained: Trained):
    contents = checkpoint.read(trained.folder / "best.ckpt")
    specs = contents["hyper_parameters"]
    command = {"class_path": "os.system", "init_args": {"command": "true"}}
    contents["hyper_parameters"] = {**specs, "optimizer": command}
    assert checkpoint.architecture(contents) == specs
    assert set(specs) == {"encoder", "refiner", "decoder", "objective"}


@pytest.mark.parametrize("place", ["encoder", "decoder", "refiner", "attention", "baseline", "encoders"])
def test_text_in_the_place_of_a_part_is_refused(place: str, trained: Trained, canary: Path):
    contents = checkpoint.read(trained.folder / "best.ckpt")
    described, text = contents["captioner"], "{class_path: stranger.Foreign}"
    if place == "attention":
        described["decoder"]["init_args"]["attention"] = text
    elif place == "baseline":
        reinforce = {"class_path": "caption.objectives.Reinforce", "init_args": {"baseline": text}}
        contents["hyper_parameters"]["objective"] = reinforce
    elif place == "encoders":
        encoders = {"encoders": [described["encoder"], text]}
        described["encoder"] = {"class_path": "caption.encoders.SeveralEncoders", "init_args": encoders}
    else:
        described[place] = text
    with pytest.raises(CheckpointError):
        checkpoint.architecture(contents)
    assert not canary.exists()


class Passing(caption.attention.ScoredAttention):
    """Passes arguments on to its base class."""

    def __init__(self, named: str = "", **others: Any) -> None:
        super().__init__(**others)


def test_text_is_accepted_only_where_an_annotation_says_so():
    plain = {"class_path": "caption.decoders.Gate", "init_args": {"size": "scalar"}}
    check_texts({"gate": plain, "other": [1, None]})
    passing = f"{__name__}.Passing"
    check_texts({"class_path": passing, "init_args": {"named": "stranger.Foreign"}})
    for path in ("caption.attention.ScoredAttention", passing):
        score = {"class_path": path, "init_args": {"score": "stranger.Foreign"}}
        with pytest.raises(CheckpointError, match=f"argument score of {path}"):
            check_texts([{"nested": score}])


# -- modules of this package, and of the working directory ------------------------------------------------------


def test_of_the_working_directory_what_the_user_names_is_imported_and_what_that_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("package1").mkdir()
    Path("named1.py").write_text("import sibling1\ndef later(): from sibling3 import Y; return Y")
    Path("package1/inner.py").write_text("import sibling2")
    for number in (1, 2, 3):
        Path(f"sibling{number}.py").write_text("X, Y = 1, 3")
    for name in ("unnamed1.py", "unnamed2.py", "unnamed2.ckpt"):
        Path(name).touch()
    part = {"class_path": "named1.X", "init_args": {"weights": "package1.inner:file"}}
    import_from(".", {"model": [part, "a b.c", 3, "unnamed2.ckpt"]})  # the name of a file is not a module
    assert import_module("named1").sibling1.X == 1
    assert import_module("named1").later() == 3
    assert import_module("package1.inner").__name__ == "package1.inner"
    for name in ("unnamed1", "unnamed2", "sibling2_", "package2"):
        with pytest.raises(ModuleNotFoundError):
            import_module(name)
    Path("exits_at_once.py").write_text("raise SystemExit(0)")
    with pytest.raises(CheckpointError, match=r"exits_at_once\.X"):
        find_object("exits_at_once.X", "exits_at_once")


SHADOWS = ("tensorflow", "tabulate", "s3fs", "boto3", "sklearn", "IPython", "colorama", "filelock")


INSTALLED = "import sys; del sys.path[0]; from caption.cli.main import main; sys.exit(main())"


@pytest.mark.nightly
@pytest.mark.parametrize("start", [["-m", "caption"], ["-c", INSTALLED]], ids=["module", "installed"])
def test_files_of_the_working_directory_are_not_imported(start: list[str], tmp_path: Path, trained: Trained):
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'a').write({name!r} + ' ')")
    where = ["--ckpt_path", trained.folder / "best.ckpt", "--trainer.default_root_dir", tmp_path / "run"]
    environment = {**os.environ, "PYTHONPATH": str(Path(caption.__file__).parents[1])}
    command = [sys.executable, *start, "validate", "-c", trained.config, *QUIET, *where]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "BLEU" in ran.stdout
    assert not (tmp_path / "canary").exists()


# -- the command line; tests/project/test_files_of_strangers.py exchanges every value ------------------------------


@pytest.mark.nightly
@pytest.mark.slow
def test_the_users_own_mechanism_in_the_users_own_checkpoint(
    cli: Cli, tiny: Path, tmp_path: Path, canary: Path, shapes: Path
):
    bare = tiny.read_text()
    tiny.write_text(bare.replace("caption.encoders.SmallCNN", "stranger.Foreign"))
    assert cli("fit", "-c", tiny, *QUIET, "--trainer.max_epochs", 1).code == 0
    model = tmp_path / "run" / "best.ckpt"
    del sys.modules["stranger"]
    canary.unlink()
    # Another configuration does not name the class: --trust does.
    tiny.write_text(bare)
    photo = shapes / "images" / "test_000001.png"
    warm = (
        "fit",
        "-c",
        tiny,
        *QUIET,
        "--trainer.max_epochs",
        0,
        "--trainer.default_root_dir",
        tmp_path / "warm",
    )
    for command in (
        ("validate", "-c", tiny, *QUIET, "--ckpt_path", model),
        ("describe", photo, "--model", model),
        (*warm, "--model.warm_start", model),
    ):
        ran = cli(*command)
        assert (ran.code, "--trust stranger" in ran.err) == (2, True)
        assert not canary.exists()
        ran = cli(*command, "--trust", "other", "--trust", "stranger")
        assert ran.code == 0, ran.err
        canary.unlink()
        del sys.modules["stranger"]
    # A configuration that names the class is the user's own.
    tiny.write_text(bare.replace("caption.encoders.SmallCNN", "stranger.Foreign"))
    assert cli("fit", "-c", tiny, *QUIET, "--ckpt_path", tmp_path / "run" / "last.ckpt").code == 0


def test_the_function_that_gives_an_encoders_weights_is_not_called(tmp_path: Path, canary: Path):
    encoder = TorchvisionEncoder("squeezenet1_1", "features.3", weights="stranger:Path")
    checkpoint.save(captioner(encoder=encoder), tmp_path / "model.ckpt")
    assert caption.load(tmp_path / "model.ckpt").encoder.spec["init_args"]["weights"] == "stranger:Path"
    checkpoint.architecture(checkpoint.read(tmp_path / "model.ckpt"))
    assert not canary.exists()
