"""The message of every misuse of the commands: messages.txt, which is reviewed as text.

With `UPDATE_MESSAGES=1` in the environment, the test writes the file anew. No message in it may depend on the machine,
the time or the versions of other packages.
"""

from __future__ import annotations

import difflib
import io
import math
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from helpers import tiny_captioner
from helpers.command_line import TINY, Cli
from helpers.user_files import snapshot

import caption
from caption import attention, decoders, encoders, objectives, search
from caption.core.errors import UserError

MESSAGES = Path(__file__).with_name("messages.txt")

MISUSES = {
    "Verbs and options": r"""
        descibe dog.png
        dog.png
        --versoin
        describe dog.png --heatmap=
        describe dog.png --beam-size 5000
        describe dog.png --beam-size 0
        describe dog.png --candidates -1
        describe dog.png --candidates 4 --beam-size 3
        describe dog.png --length-normalization nan
        describe dog.png --out captions
        describe dog.png --engine ray --model model.ckpt --out captions --html page.html
        describe dog.png --model model.ckpt --at-test sample
        serve --port 99999
        configs nothing_like_it
        configs attention/sparsmax
    """,
    "Photos": r"""
        describe
        describe gone.png --model model.ckpt
        describe empty.png --model model.ckpt
        describe text.png --model model.ckpt
        describe nothing --model model.ckpt
        describe in/*.png --model model.ckpt
        describe https://example.org/cat.jpg --model model.ckpt
        describe pipe.png --model model.ckpt
        describe - --model model.ckpt
        analyse --model model.ckpt --photos dog.png --out page.html
    """,
    "Models": r"""
        describe dog.png --model photoss
        describe dog.png --model runs/best.ckpt
        describe dog.png --model https://example.org/a.ckpt
        describe dog.png --model hf://nobody
        describe dog.png --model text.png
        describe dog.png --model cat.png
        describe dog.png --model model.ckpt --lens
        describe dog.png --model model.ckpt --compare model.ckpt
    """,
    "Outputs": r"""
        describe dog.png --model gone.ckpt --heatmap dog.png
        describe dog.png --model gone.ckpt --html page.png
        describe dog.png --model gone.ckpt --heatmap mine.png
        describe dog.png --model gone.ckpt --html mine.html
        describe dog.png --model gone.ckpt --attention mine.npz
        describe dog.png --model gone.ckpt --heatmap link.png
        describe dog.png cat.png --model gone.ckpt --heatmap map.png
        describe dog.png --model gone.ckpt --heatmap x.png --matrix x.png
        describe dog.png --model gone.ckpt --heatmap map.png --opacity 3
        describe dog.png --model gone.ckpt --heatmap map.png --cmap viridiss
        describe dog.png --model gone.ckpt --style paper
        describe dog.png --model gone.ckpt --map gradcam
        describe dog.png --model model.ckpt --map gradcm --heatmap map.png
        describe dog.png --model model.ckpt --map other-photo --heatmap map.png
        describe dog.png --model gone.ckpt --contact-sheet sheet.png --rows 2
        describe dog.png --model gone.ckpt --contact-sheet sheet.png --own-scale
        describe dog.png --model gone.ckpt --no-smooth --attention maps.npz
        describe dog.png --model gone.ckpt --attention maps.txt
        describe dog.png --model gone.ckpt --heatmap map.png --words ,
        describe dog.png --model gone.ckpt --heatmap map.png --width 50000
        describe dog.png --model gone.ckpt --heatmap /dev/null --per-word
        describe dog.png --model gone.ckpt --contact-sheet a.png --html A.png/page.html
        export model.ckpt --format safetensors --out mine.safetensors
        export model.ckpt --format safetensors --out model.ckpt
        export model.ckpt --format onnx --out programs --precision float16
        lens model.ckpt -c tiny.yaml --out text.png
        check captions.csv --write tiny.yaml
    """,
    "Captions": r"""
        score --references types.json --candidates candidates.json
        score --references references.json --candidates candidates.json
        score --references references.json --candidates twice.csv
        score --references references.json --candidates candidates.json --metrics BLUE
        score --references references.json --candidates gone.json
        score --references references.json --candidates - -
        score --references references.json --candidates candidates.json --protocol beam
        check columns.csv
        check semicolons.csv
        check headless.csv
        check gone.csv
        check captions.csv --splits train
        check captions.csv --splits trin=0.7
        check captions.csv --splits 0.7
        check captions.csv --splits train=x
        check captions.csv --images a b
        check captions.csv --images train=.
        check captions.csv --images nowhere
        check captions.csv --max-words 0
        check nothing
        compare nothing
        import sgrvinod gone.pth.tar --word-map references.json --out new.ckpt
    """,
    "Configurations": r"""
        fit
        fit -c shapes_sofft
        fit -c gone.yaml
        fit -c tiny.yaml -c list.yaml
        fit -c tiny.yaml --data.batch_size 0
        fit -c tiny.yaml --model.warm_start gone.ckpt
        fit -c tiny.yaml --ckpt_path gone.ckpt
        fit -c tiny.yaml --trainer.max_epoch 3
        fit -c tiny.yaml --trainer.max_epochs many
        fit -c tiny.yaml --trainer.limit_val_batches x
        fit -c tiny.yaml --max_epochs 3
        fit -c tiny.yaml --model.lr 0.1
        fit -c tiny.yaml --learning_rate 0.1
        fit -c tiny.yaml --beam_size 3
        fit -c tiny.yaml --model.encoder_learning_rate high
        fit -c tiny.yaml --model.frozen_statistics maybe
        predict
        test -c tiny.yaml
    """,
    "Parts of a model in a configuration": r"""
        fit -c tiny.yaml --model.search.init_args.beam_size=0
        fit -c tiny.yaml --model.encoder.init_args.views=2
        fit -c tiny.yaml --model.search.init_args.beam_size many
        fit -c tiny.yaml --model.encoder caption.search.Greedy
        fit -c tiny.yaml --model.encoder SmallCN
        fit -c tiny.yaml --model.encoder.init_args.widths 3
        fit -c tiny.yaml --model.decoder.init_args.gate Gat
        fit -c tiny.yaml --model.decoder.init_args.attention.init_args.score.init_args.sise 3
        fit -c tiny.yaml --model.optimizer.init_args.lr high
        fit -c tiny.yaml --model.optimizer caption.search.Greedy
        fit -c tiny.yaml --model.scheduler StepLR
        fit -c tiny.yaml --data.transform.size big
        fit -c tiny.yaml --trainer.callbacks MyCallback
    """,
}
"""Arguments of `caption`, a command in each line, by what they misuse."""

PYTHON = r"""
    attention.AdditiveScore(2, activation="gelu")
    attention.AdditiveScore(2, layers=0)
    attention.CosineScore(6, strength=0.0)
    attention.ActivatedGeneralScore("tanh", True, strength=0.0)
    attention.LocationSensitiveScore(6, filters=2, kernel=4)
    attention.NeighbourhoodScore(2)
    attention.WholeGridScore(side=0)
    attention.MLPScore([])
    attention.ScoredAttention(SCORE, attention.Softmax(), smoothing=math.nan)
    attention.GumbelSoftmax(temperature=0.0)
    attention.MultiHeadAttention(heads=3, size=8)
    attention.MultiHeadAttention(heads=0, size=8)
    attention.HeadGates(0.33, 0.1, 2.0, speed=0)
    attention.MultiHopAttention(SCORE, hops=0)
    attention.MemoryNetworkAttention(hops=0)
    attention.HierarchicalAttention(SCORE, SCORE, block=0)
    attention.SentinelAttention(SCORE, dropout=math.nan)
    attention.SentinelAttention(SCORE, dropout=1.0)
    attention.PredictedWindow(reach=0.5)
    attention.FollowingWindow(reach=0.0)
    attention.WindowAttention(points=0)
    attention.GlimpseAttention(deviation=0.0)
    attention.LocalGlobalAttention(SCORE, attention.Multinoulli(), SCORE)
    attention.LocalGlobalAttention(SCORE, attention.Softmax(), SCORE, attention.Multinoulli())
    attention.PyramidAttention([SCORE])
    attention.PooledPyramidAttention([SCORE, SCORE], sides=(4, 2))
    attention.PooledPyramidAttention([SCORE, SCORE], sides=(0,))
    attention.CompositionalDeAttention(4, "centred", None, distance_scale=0)
    attention.CompositionalDeAttention(4, gate="halved")
    attention.KMaxPooling(k=0)
    attention.TopKMeanPooling(k=0)
    attention.ChunkMaxPooling(chunks=0)
    attention.SpatialPyramidPooling(sides=())
    attention.SpatialPyramidPooling(sides=(2, 0))
    attention.WordLSTM(size=0)
    attention.PhraseConvolutions(6, longest=0)
    attention.RotatoryAttention(SCORE, SCORE, size=0)
    attention.MutualCrossAttention(attention.WordProjection(6), temperature=0.0)
    attention.MutualCrossAttention(attention.WordProjection(6), 1.0, hidden_size=0)
    attention.AdditiveScore(5, previous_word=True).build(3, attention.QuerySizes(4))
    attention.DotScore(project=False).build(4, attention.QuerySizes(5))
    attention.TrilinearScore().build(4, attention.QuerySizes(5))
    attention.SymmetricScore().build(4, attention.QuerySizes(5))
    encoders.SmallCNN(stride=3)
    encoders.SmallCNN(kernels=(3, 3))
    encoders.SmallCNN(views=0)
    decoders.InitialState(layers=0)
    decoders.DeepOutput(context=False, without_hidden=0.5)
    decoders.DeepOutput(without_hidden=1.5)
    decoders.WordVectors(0)
    decoders.WordVectors(2, frozen=True)
    decoders.MetaEmbedding([decoders.WordVectors(2)])
    decoders.TransformerDecoder([attention.MultiHeadAttention()], layers=2)
    CAPTIONER("dog.png", beam=5)
    CAPTIONER("dog.png", 5)
    CAPTIONER(["dog.png"], search="greedy")
    CAPTIONER(["dog.png"], batch_size=0)
    CAPTIONER(["dog.png"], batch_size=2.0)
    caption.load(None)
    search.Greedy(max_length=0)
    search.BeamSearch(beam_size=1001)
    search.BeamSearch(beam_size=1000, max_length=1000)
    search.Sampling(samples=1000, max_length=1000)
    search.BeamSearch(beam_size=0)
    search.BeamSearch(beam_size=True)
    search.BeamSearch(beam_size=2, candidates=3)
    search.BeamSearch(candidates=1.0)
    search.BeamSearch(length_normalization="1")
    search.BeamSearch(length_normalization=math.nan)
    search.BeamSearch(repeat_penalty=math.inf)
    search.Greedy(repeat_penalty=-1.0)
    search.Sampling(repeat_penalty="1")
    search.Sampling(temperature=0.0)
    search.Sampling(temperature="1")
    search.Sampling(top_k=0)
    search.Sampling(top_p=1.1)
    search.Sampling(top_p="0.5")
    search.Sampling(samples=10**6)
    search.Sampling(seed="x")
    search.Sampling(seed=2**70)
    objectives.CrossEntropy(label_smoothing=1.0)
    objectives.CrossEntropy(label_smoothing=math.nan)
    objectives.CrossEntropy(per=("caption", "batch"))
    objectives.Reinforce(per=("caption", "batch"))
    objectives.Entropy(1.0, per=("caption", "batch"))
    objectives.MovingAverage(1.5)
    objectives.Reinforce(objectives.LeaveOneOut())
    objectives.ScheduledSampling(probability=1.5)
    objectives.SelfCriticalSequence(samples=1)
    objectives.SelfCriticalSequence(bleu=-1.0)
    objectives.WeightedSum([], [])
    objectives.WeightedSum([objectives.CrossEntropy()], [1.0, 2.0])
"""
"""Mistakes in Python."""

NAMESPACE = {
    "caption": caption,
    "math": math,
    "attention": attention,
    "decoders": decoders,
    "encoders": encoders,
    "search": search,
}
NAMESPACE |= {"objectives": objectives, "SCORE": attention.AdditiveScore(6)}
NAMESPACE |= {"CAPTIONER": tiny_captioner.captioner()}


def write_files(folder: Path, model: Path, shapes: Path) -> None:
    """The files that the misuses name."""
    for seed, name in enumerate(("dog.png", "cat.png")):
        tiny_captioner.photo(seed=seed).save(folder / name)
    shutil.copy(model, folder / "model.ckpt")
    (folder / "nothing").mkdir()
    texts = {
        "empty.png": "",
        "text.png": "this is not a photo\n",
        "mine.png": "my own picture",
        "mine.html": "<html>my own page</html>",
        "mine.npz": "my own arrays",
        "mine.safetensors": "my own weights",
        "captions.csv": "image,caption\ndog.png,a dog jumps\ndog.png,a brown dog\ncat.png,a cat\n",
        "columns.csv": "picture,words\ndog.png,a dog\n",
        "semicolons.csv": "Bild;Text\ndog.png;a dog, jumping\n",
        "headless.csv": "dog.png\ta dog\ncat.png\ta cat\n",
        "types.json": '{"dog.png": 17, "cat.png": {"a": 1}}',
        "references.json": '{"1": ["a dog runs", "a brown dog"], "2": ["a cat"]}',
        "candidates.json": '{"1": "a dog"}',
        "twice.csv": "image,caption\n1,a dog\n1,a cat\n2,a boat\n",
        "list.yaml": "- a\n- b\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    config = yaml.safe_load(TINY.format(folder=".", shapes=shapes))
    config["trainer"] |= {"enable_progress_bar": False, "enable_model_summary": False}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(config))
    os.mkfifo(folder / "pipe.png")
    (folder / "link.png").symlink_to("nowhere.png")


def of_commands(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The exit code and the message of each command."""
    for misused, commands in MISUSES.items():
        yield f"# {misused}\n"
        for command in commands.strip().splitlines():
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"dog.png\ncat.png\n")))
            ran = cli(*shlex.split(command))
            assert ran.out == "", command
            assert re.fullmatch(r"caption( \w+)?: .+\n", ran.err), command
            yield f"$ caption {command.strip()}\n[{ran.code}] {ran.err.replace(str(folder), 'FOLDER')}"


def of_python() -> Iterator[str]:
    """The class and the message of each error."""
    yield "# Python\n"
    for line in PYTHON.strip().splitlines():
        with pytest.raises((UserError, ValueError, TypeError)) as caught:
            eval(line.strip(), NAMESPACE)
        yield f">>> {line.strip()}\n{caught.type.__name__}: {caught.value}\n"


def test_the_messages_are_those_of_the_file(
    cli: Cli, model: Path, shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, model, shapes)
    before = snapshot(tmp_path)
    found = "\n".join([*of_commands(cli, tmp_path, monkeypatch), *of_python()])
    if os.environ.get("UPDATE_MESSAGES"):
        MESSAGES.write_text(found, encoding="utf-8")
    lines = [text.splitlines() for text in (MESSAGES.read_text(encoding="utf-8"), found)]
    difference = "\n".join(difflib.unified_diff(*lines, "messages.txt", "now", lineterm="", n=2))
    assert not difference, f"{difference}\nUPDATE_MESSAGES=1 writes messages.txt anew."
    assert "internal error" not in found
    assert snapshot(tmp_path) == before
