"""The `caption` command itself: verbs, exit codes, messages and start-up time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.tiny_captioner import photo

from caption.cli import main as command_line
from caption.cli.main import VERBS, main
from caption.errors import ImageError

ROOT = Path(__file__).parents[2]


def stand_in(monkeypatch: pytest.MonkeyPatch, act) -> None:
    """Replace the work of every verb by `act(verb, args)`."""
    monkeypatch.setattr(command_line, "run_verb", act)


def raising(error: BaseException):
    """A verb of this package that fails."""
    namespace = {"error": error}
    exec(compile("def act(verb, args): raise error", command_line.__file__, "exec"), namespace)
    return namespace["act"]


# -- help ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [["--help"], ["-h"], ["help"]])
def test_help_goes_to_stdout_and_names_every_verb(ask: list[str], capsys):
    assert main(ask) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert all(f"\n  {verb} " in out for verb in VERBS)


def test_no_arguments_are_wrong_usage_and_print_the_usage(capsys):
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: caption VERB")


def test_help_answers_in_half_a_second():
    def seconds() -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "caption", "--help"], check=True, capture_output=True)
        return time.perf_counter() - start

    assert min(seconds() for _ in range(5)) < 0.5  # the minimum, because other processes slow down some runs


LOOK = """
import sys
from caption.cli.main import main
try:
    code = main(sys.argv[1:])
finally:
    heavy = {"torch", "torchvision", "matplotlib", "pytorch_lightning", "numpy", "PIL"}
    heavy |= {"torch._dynamo", "torch._inductor", "timm", "pandas", "rich", "onnxruntime", "yaml", "nltk", "scipy"}
    heavy |= {"lightning_fabric", "torchmetrics", "tensorboard", "jsonargparse", "pycocotools"}
    print("LOADED", *sorted(heavy & set(sys.modules)))
sys.exit(code)
"""


@pytest.mark.parametrize(
    "args",
    [
        ["nonsense"],
        ["describe", "--help"],
        ["check", "--help"],
        ["import", "arctic", "--help"],
        ["describe", "photo.jpg", "--modle", "shapes"],
    ],
    ids=" ".join,
)
def test_usage_is_printed_without_slow_imports(args: list[str]):
    done = subprocess.run([sys.executable, "-c", LOOK, *args], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "LOADED"


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("picture", "more"), [([], []), (["--heatmap", "photo.pdf"], ["matplotlib"])], ids=["caption", "heatmap"]
)
def test_describing_a_photo_imports_what_it_needs(picture: list[str], more: list[str], tmp_path: Path):
    photo(80, 40).save(tmp_path / "photo.png")
    command = [sys.executable, "-c", LOOK, "describe", "photo.png", *picture]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == ["LOADED", "PIL", *more, "numpy", "torch"]


@pytest.mark.slow
def test_settings_of_matplotlib_in_the_working_directory_are_ignored(tmp_path: Path):
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\n")
    code = "from caption.cli.main import main; main(['--version'])"
    look = "import matplotlib; print(matplotlib.rcParams['text.usetex'])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", f"{code}; {look}"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_version_is_that_of_the_distribution(capsys):
    from importlib.metadata import version

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == version("show-attend-and-tell") + "\n"
    import caption

    assert caption.__version__ == version("show-attend-and-tell")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, cli):
    ran = cli(verb, "--help")
    assert ran.code == 0
    assert ran.out.startswith(("usage: caption " + verb, "usage: caption [options] " + verb))


# -- errors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("descrbe x.jpg", "there is no verb 'descrbe' (did you mean describe?)"),
        ("beach.jpg", "there is no verb 'beach.jpg'; to caption this photo: caption describe beach.jpg"),
        (". --lens", "to caption this photo: caption describe ."),
        ("--versoin", "there is no verb '--versoin' (did you mean --version?)"),
        (
            "describe x.jpg --modle m",
            "there is no option --modle (did you mean --model?) (caption describe --help",
        ),
        ("describe x.jpg --modle=m", "there is no option --modle (did you mean --model?)"),
        ("describe x.jpg --format jsn", "--format|jsn|json|coco|caption describe --help lists the options"),
        ("describe x.jpg --beam-size five", "--beam-size|five"),
        ("describe x.jpg --out d", "--out is for --engine ray"),
        ("describe --engine ray x.jpg --model m --out d --html p.html", "--html is not for --engine ray"),
        ("describe --model", "--model"),
        ("prepare flickr8 x.zip", "flickr8|flickr30k|coco"),
        ("prepare flickr8k x.zip --ouut d", "there is no option --ouut (did you mean --out?)"),
        ("export photos --formt onnx", "there is no option --formt (did you mean --format?)"),
        ("export photos", "--format|--out"),
        ("describe", "there are no photos"),
    ],
)
def test_wrong_usage_names_the_culprit_and_the_remedy_on_one_line(args: str, said: str, capsys):
    assert main(args.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("caption: ")
    assert all(words in err for words in said.split("|"))


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ImageError("'x.jpg' is empty"), 2, "'x.jpg' is empty"),
        (ImageError("'a\nb\u2028\x1b[2J.jpg' is empty"), 2, "'a\\nb\\u2028\\x1b[2J.jpg' is empty"),
        (KeyboardInterrupt(), 130, "stopped"),
        (PermissionError(13, "Denied", "last.ckpt"), 1, "'last.ckpt' cannot be read or written: Denied"),
        (
            ZeroDivisionError("by nought"),
            1,
            "internal error, ZeroDivisionError: by nought (--debug shows the traceback)",
        ),
    ],
    ids=str,
)
def test_an_error_is_one_line_without_traceback(
    error: BaseException, code: int, message: str, monkeypatch, capsys
):
    stand_in(monkeypatch, raising(error))
    assert main(["describe"]) == code
    assert capsys.readouterr() == ("", f"caption: {message}\n")


@pytest.mark.parametrize("error", [ImageError("no"), ZeroDivisionError("no"), KeyboardInterrupt()])
def test_debug_shows_the_traceback_and_is_not_passed_to_the_verb(error: BaseException, monkeypatch, capsys):
    seen = []

    def act(verb, args):
        seen.append(args)
        raise error

    stand_in(monkeypatch, act)
    assert main(["describe", "a", "--debug", "b"]) in (1, 2, 130)
    assert seen == [["a", "b"]]
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(("left_with", "code"), [(0, 0), (2, 2), (None, 0), ("a word", 2)])
def test_a_verb_may_leave_early(left_with: object, code: int, monkeypatch):
    stand_in(monkeypatch, raising(SystemExit(left_with)))
    assert main(["describe"]) == code


TALK = """
import sys
from caption.cli import main
def talk(verb, args):
    print("a caption", flush=True)
    sys.stdin.readline()
    for _ in range(int(sys.argv[1])):
        print("a caption")
    return 0
main.run_verb = talk
sys.exit(main.main(["describe"]))
"""


@pytest.mark.skipif(os.name == "nt", reason="no pipes that break on Windows")
@pytest.mark.parametrize("lines", [1, 20000], ids=["what waits in the buffer", "more than a buffer holds"])
def test_a_closed_pipe_is_not_an_error(lines: int):
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    talking = subprocess.Popen([sys.executable, "-c", TALK, str(lines)], text=True, env=buffered, **pipes)
    assert talking.stdin is not None
    assert talking.stdout is not None
    assert talking.stderr is not None
    assert talking.stdout.readline() == "a caption\n"
    talking.stdout.close()
    talking.stdin.close()
    assert talking.stderr.read() == ""
    assert talking.wait(timeout=60) == 0
    talking.stderr.close()


# -- streams that are full or closed -----------------------------------------------------------------------------

PRINT = """
import os, sys
from caption.cli import main
def act(verb, args):
    print("a caption")
    print("a message", file=sys.stderr)
    return 0
main.run_verb = act
sys.exit(main.main())
"""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("streams", "code", "out", "err"),
    [
        (
            ">/dev/full",
            1,
            "",
            "a message\ncaption: the output cannot be read or written: No space left on device\n",
        ),
        (">&-", 2, "", "caption: stdout is closed: redirect it to a file, or to /dev/null\n"),
        ("2>&-", 0, "a caption\n", ""),
        ("2>&- >&-", 2, "", ""),
    ],
)
def test_streams_that_are_full_or_closed(streams: str, code: int, out: str, err: str):
    command = ["sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, "-c", PRINT, "describe"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


def test_a_message_has_a_bound(monkeypatch, capsys):
    stand_in(monkeypatch, raising(ImageError("x" * 100_000 + " is the end")))
    assert main(["describe"]) == 2
    err = capsys.readouterr().err
    assert len(err) < 3100
    assert err.endswith("x is the end\n")


@pytest.mark.parametrize(
    "args", [["demo", "--out", ""], ["demo", "--out="], ["fit", "--trainer.default_root_dir", ""]]
)
def test_an_empty_argument_is_not_the_working_directory(
    args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(args) == 2
    assert "an argument is empty" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
