"""Configurations by name, laid over each other, and class paths in the working directory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from helpers.command_line import Cli

from caption.cli.configuration.config_files import config_names, find_config, with_layers
from caption.cli.configuration.parts import read_parts
from caption.core.errors import UserError

pytestmark = pytest.mark.slow
FLICKR = "configs/flickr8k_soft.yaml"
CSV = {"data": {"reader": {"class_path": "caption.data.readers.Csv", "init_args": {"captions": "own.csv"}}}}


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
    others = ["fit", "--trainer.max_epochs=3", "--model.search.beam_size", "3", "--data.reader", "x.Flickr"]
    assert with_layers(others) == others


def test_a_configuration_is_found_by_name_from_anywhere(cli: Cli, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("shapes_soft", "configs/shapes_soft.yaml"):
        text, joined = with_layers(["fit", "-c", name])[-1], with_layers(["fit", f"--config={name}"])[-1]
        assert yaml.safe_load(text)["data"]["reader"]["class_path"] == "caption.data.shapes.Shapes"
        assert joined == f"--config={text}"
    assert "data/flickr8k" in cli("check", "flickr8k_soft").out
    for name, meant in (("configs/shapes_sofd.yaml", "shapes_soft"), ("attention/dott", "attention/dot")):
        with pytest.raises(UserError, match=rf"did you mean {meant}\?"):
            find_config(name)
    Path("dot").mkdir()
    Path("shapes_soft").write_text("seed_everything: 7")
    assert find_config("shapes_soft") == "shapes_soft"  # the user's file comes first
    assert Path(find_config("attention/dot")).name == "dot.yaml"


# -- layers ----------------------------------------------------------------------------------------------------


def test_another_reader_does_not_inherit_arguments_of_the_first(cli: Cli, tmp_path: Path):
    def data_of(*args: object) -> dict:
        ran = cli("fit", "-c", FLICKR, *args, "--print_config")
        assert ran.code == 0, ran.err
        return yaml.safe_load(ran.out)["data"]

    own, layer = tmp_path / "own.yaml", tmp_path / "layer.yaml"
    own.write_text(yaml.safe_dump(CSV))
    options = ["--data.reader=caption.data.readers.Csv", "--data.reader.init_args.captions", "own.csv"]
    for layers in (["-c", own], options):
        data = data_of(*layers)
        reader = data["reader"]["init_args"]
        assert (reader["images"], reader["captions"], data["batch_size"]) == (None, "own.csv", 64)
    for parts in (read_parts([FLICKR, str(own)]), read_parts([FLICKR], options)):  # of caption features
        assert parts["data.reader"]["init_args"]["images"] is None
        assert parts["model.encoder"]["init_args"]["name"] == "efficientnet_lite2"
    layer.write_text(yaml.safe_dump({"data": {"reader": {"init_args": {"images": "elsewhere"}}}}))
    reader = data_of("-c", layer)["reader"]["init_args"]
    assert reader["images"] == "elsewhere"
    assert reader["captions"] == "data/flickr8k/Flickr8k.token.txt"


# -- classes of the working directory --------------------------------------------------------------------------


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a reader of the user's own, and a configuration that names it."""
    text = "from caption.data.readers import Csv\nclass Mine(Csv):\n    pass\n"
    (tmp_path / "my_reader.py").write_text(text)
    (tmp_path / "own.csv").write_text("image,caption\na.jpg,a dog\n")
    reader = {"class_path": "my_reader.Mine", "init_args": {"captions": "own.csv"}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"data": {"reader": reader}}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "args",
    [
        "fit -c shapes_soft -c mine.yaml",
        "features -c shapes_soft -c mine.yaml --out store",
        "check mine.yaml",
    ],
)
def test_classes_of_the_working_directory_are_found(cli: Cli, mine: Path, monkeypatch, args: str):
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(mine))])
    monkeypatch.delitem(sys.modules, "my_reader", raising=False)
    ran = cli(*args.split())
    assert "my_reader'" not in ran.err  # No module named 'my_reader'
    assert "a.jpg" in ran.err + ran.out, ran
