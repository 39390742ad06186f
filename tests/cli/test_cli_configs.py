"""Configurations by name, laid over each other, and class paths in the working directory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from helpers.command_line import Ran

from caption.cli.configuration.files import config_names, find_config, with_layers
from caption.errors import UserError

Cli = Callable[..., Ran]
pytestmark = pytest.mark.slow
FLICKR = "configs/flickr8k_soft.yaml"
CSV = {"data": {"reader": {"class_path": "caption.data.readers.Csv", "init_args": {"captions": "own.csv"}}}}


def data_of(cli: Cli, *args: object) -> dict:
    ran = cli("fit", *args, "--print_config")
    assert ran.code == 0, ran.err
    return yaml.safe_load(ran.out)["data"]


# -- by name ---------------------------------------------------------------------------------------------------


def test_configs_lists_configurations_with_their_titles_and_prints_one(cli: Cli):
    ran = cli("configs")
    assert (ran.code, ran.err) == (0, "")
    lines = [line.split(maxsplit=1) for line in ran.out.splitlines()]
    assert [name for name, _ in lines] == config_names()
    assert {"shapes_soft", "attention/dot", "presets/paper_hard"} <= {name for name, _ in lines}
    assert all(len(title) > 20 for _, title in lines)
    of_training = [line.split()[0] for line in cli("configs", "training/").out.splitlines()]
    assert of_training == [name for name in config_names() if name.startswith("training/")]
    printed = cli("configs", "shapes_soft").out
    assert yaml.safe_load(printed)["trainer"]["default_root_dir"] == "runs/shapes_soft"
    assert cli("configs", "configs/shapes_soft.yaml").out == printed
    ran = cli("configs", "attention/sparsmax")
    assert (ran.code, ran.out) == (2, "")
    assert "attention/sparsmax" in ran.err
    assert "did you mean attention/sparsemax?" in ran.err


def test_a_configuration_is_found_by_name_from_anywhere(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("shapes_soft", "configs/shapes_soft.yaml"):
        text, joined = with_layers(["fit", "-c", name])[-1], with_layers(["fit", f"--config={name}"])[-1]
        assert yaml.safe_load(text)["data"]["reader"]["class_path"] == "caption.data.shapes.Shapes"
        assert joined == f"--config={text}"


def test_a_file_of_the_working_directory_takes_precedence(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("dot").mkdir()
    Path("shapes_soft").write_text("seed_everything: 7")
    assert find_config("shapes_soft") == "shapes_soft"
    assert Path(find_config("attention/dot")).name == "dot.yaml"


@pytest.mark.parametrize("given", ["shapes_sofd", "configs/shapes_sofd.yaml", "attention/dott"])
def test_a_misspelt_name_gets_a_hint(given: str):
    with pytest.raises(UserError, match=r"did you mean (shapes_soft|attention/dot)\?"):
        find_config(given)


@pytest.mark.parametrize("verb", ["fit", "features", "check"])
def test_every_verb_that_reads_configurations_takes_names(cli: Cli, tmp_path: Path, monkeypatch, verb: str):
    monkeypatch.chdir(tmp_path)
    rest = {"fit": ["-c", "flickr8k_soft"], "check": ["flickr8k_soft"]}
    ran = cli(verb, *rest.get(verb, ["-c", "flickr8k_soft", "--out", "store"]))
    assert ran.code == (1 if verb == "check" else 2)
    assert "data/flickr8k" in ran.err + ran.out or "flickr8k_features" in ran.err


# -- layers ----------------------------------------------------------------------------------------------------


def test_another_reader_does_not_inherit_arguments_of_the_first(cli: Cli, tmp_path: Path):
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump(CSV))
    joined = "--data.reader=caption.data.readers.Csv", "--data.reader.init_args.captions=own.csv"
    for layers in (["-c", own], joined):
        data = data_of(cli, "-c", FLICKR, *layers)
        assert data["reader"]["init_args"]["images"] is None, layers
        assert data["reader"]["init_args"]["captions"] == "own.csv"
        assert data["batch_size"] == 64


def test_features_reads_the_layers_as_fit_does(tmp_path: Path):
    from caption.cli.configuration.parts import read_parts

    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump(CSV))
    options = [
        "--data.reader.class_path",
        "caption.data.readers.Csv",
        "--data.reader.init_args.captions",
        "own.csv",
    ]
    for parts in (read_parts([FLICKR, str(own)]), read_parts([FLICKR], options)):
        assert parts["data.reader"]["init_args"]["images"] is None
        assert parts["model.encoder"]["init_args"]["name"] == "efficientnet_lite2"


def test_a_layer_of_the_same_reader_changes_single_arguments(cli: Cli, tmp_path: Path):
    layer = tmp_path / "layer.yaml"
    layer.write_text(yaml.safe_dump({"data": {"reader": {"init_args": {"images": "elsewhere"}}}}))
    reader = data_of(cli, "-c", FLICKR, "-c", layer)["reader"]
    assert reader["init_args"]["images"] == "elsewhere"
    assert reader["init_args"]["captions"] == "data/flickr8k/Flickr8k.token.txt"


def test_other_arguments_stay_as_they_are():
    args = ["fit", "--trainer.max_epochs=3", "--model.search.beam_size", "3", "--data.reader", "x.Flickr"]
    assert with_layers(args) == args


# -- classes of the working directory --------------------------------------------------------------------------

MINE = """\
from caption.data.readers import Csv

class Mine(Csv):
    pass
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a reader of the user's own, and a configuration that names it."""
    (tmp_path / "my_reader.py").write_text(MINE)
    (tmp_path / "own.csv").write_text("image,caption\na.jpg,a dog\n")
    reader = {"class_path": "my_reader.Mine", "init_args": {"captions": "own.csv"}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"data": {"reader": reader}}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("verb", ["fit", "features", "check"])
def test_classes_of_the_working_directory_are_found(
    cli: Cli, mine: Path, monkeypatch: pytest.MonkeyPatch, verb: str
):
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(mine))])
    monkeypatch.delitem(sys.modules, "my_reader", raising=False)
    layers = ("-c", "shapes_soft", "-c", "mine.yaml")
    args = {"fit": layers, "features": (*layers, "--out", "store"), "check": ("mine.yaml",)}[verb]
    ran = cli(verb, *args)
    assert "my_reader'" not in ran.err  # No module named 'my_reader'
    assert "a.jpg" in ran.err + ran.out, ran


@pytest.mark.slow
def test_the_installed_command_finds_them_without_the_directory_in_its_path(command, mine: Path):
    environment = {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = command("check", "mine.yaml", cwd=mine, env=environment)
    assert "a.jpg" in ran.err + ran.out, ran
