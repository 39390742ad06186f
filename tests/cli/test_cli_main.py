"""The `caption` command itself: verbs, exit codes, messages and start-up time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from helpers.command_line import check_refused
from helpers.tiny_captioner import photo

from caption.cli import main as command_line
from caption.cli.main import VERBS, main
from caption.core.errors import ImageError

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


def raising(error: BaseException):
    """A verb of this package that fails."""
    namespace = {"error": error}
    exec(compile("def act(verb, args): raise error", command_line.__file__, "exec"), namespace)
    return namespace["act"]


# -- help ------------------------------------------------------------------------------------------------------


def test_help_and_version_go_to_stdout_and_the_usage_of_nothing_to_stderr(capsys):
    for ask in ("--help", "-h", "help"):
        assert main([ask]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert all(f"\n  {verb} " in out for verb in VERBS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == version("show-attend-and-tell") + "\n"
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: caption VERB")


def test_help_answers_in_half_a_second():
    def seconds() -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "caption", "--help"], check=True, capture_output=True)
        return time.perf_counter() - start

    assert any(seconds() < 0.5 for _ in range(5))  # other processes slow down some runs


LOOK = """
import sys
from caption.cli.main import main
heavy = {"torch", "torchvision", "matplotlib", "pytorch_lightning", "numpy", "PIL"}
heavy |= {"torch._dynamo", "torch._inductor", "timm", "pandas", "rich", "onnxruntime", "yaml", "nltk", "scipy"}
heavy |= {"lightning_fabric", "torchmetrics", "tensorboard", "jsonargparse", "pycocotools"}
for command in sys.argv[1:]:
    main(command.split())
    print("LOADED", *sorted(heavy & set(sys.modules)))
"""
USAGE = [
    *("nonsense", "describe --help", "check --help", "import arctic --help"),
    "describe photo.jpg --modle shapes",
]


def loaded(folder: Path, *commands: str) -> list[str]:
    """What a new process has imported after each command."""
    arguments = [sys.executable, "-c", LOOK, *commands]
    done = subprocess.run(arguments, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if line.startswith("LOADED")]


def test_usage_is_printed_without_slow_imports(tmp_path: Path):
    assert loaded(tmp_path, *USAGE) == ["LOADED"] * len(USAGE)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("picture", "more"), [("", ""), ("--heatmap photo.pdf", "matplotlib ")], ids=["caption", "heatmap"]
)
def test_describing_a_photo_imports_what_it_needs(picture: str, more: str, tmp_path: Path):
    photo(80, 40).save(tmp_path / "photo.png")
    assert loaded(tmp_path, f"describe photo.png {picture}") == [f"LOADED PIL {more}numpy torch"]


@pytest.mark.slow
def test_settings_of_matplotlib_in_the_working_directory_are_ignored(tmp_path: Path):
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\n")
    code = "from caption.cli.main import main; main(['--version'])"
    look = "import matplotlib; print(matplotlib.rcParams['text.usetex'])"
    command = [sys.executable, "-c", f"{code}; {look}"]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, cli):
    ran = cli(verb, "--help")
    assert ran.code == 0
    assert ran.out.startswith(("usage: caption " + verb, "usage: caption [options] " + verb))


# -- errors ----------------------------------------------------------------------------------------------------

WRONG = [
    (". --lens", "to caption this photo: caption describe ."),
    ("describe x.jpg --modle=m", "no option --modle (did you mean --model?) (caption describe --help lists"),
    ("describe x.jpg --format jsn", "--format|jsn|json|coco|caption describe --help lists the options"),
    ("describe x.jpg --beam-size five", "--beam-size|five"),
    ("describe x.jpg --heatmap p.png --style neon", "--style|neon"),
    ("import sgrvino x.pth", "arctic|sgrvinod"),
    ("import sgrvinod x.pth --ouut d", "there is no option --ouut (did you mean --out?)"),
    ("export photos --formt onnx", "--format|--out|there is no option --formt (did you mean --format?)"),
]


@pytest.mark.parametrize(("args", "said"), WRONG)
def test_wrong_usage_names_the_culprit_and_the_remedy_on_one_line(args: str, said: str, cli):
    ran = cli(*args.split())
    check_refused(ran, *said.split("|"))
    assert ran.err.startswith("caption: ")
    assert ran.err.count("\n") == 1


HINT = "(--debug shows the traceback)"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ImageError("'a\nb\u2028\x1b[2J.jpg' is empty"), 2, "'a\\nb\\u2028\\x1b[2J.jpg' is empty"),
        (KeyboardInterrupt(), 130, "stopped"),
        (PermissionError(13, "Denied", "last.ckpt"), 1, "'last.ckpt' cannot be read or written: Denied"),
        (ZeroDivisionError("by nought"), 1, f"internal error, ZeroDivisionError: by nought {HINT}"),
        (SystemExit("a word"), 2, "a word"),
    ],
    ids=str,
)
def test_an_error_is_one_line(error: BaseException, code: int, message: str, monkeypatch, capsys):
    monkeypatch.setattr(command_line, "run_verb", raising(error))
    assert main(["describe"]) == code
    assert capsys.readouterr() == ("", f"caption: {message}\n")


def test_a_verb_may_leave_early_and_a_message_has_a_bound(monkeypatch, capsys):
    for left_with, code in ((0, 0), (2, 2), (None, 0)):
        monkeypatch.setattr(command_line, "run_verb", raising(SystemExit(left_with)))
        assert main(["describe"]) == code
    monkeypatch.setattr(command_line, "run_verb", raising(ZeroDivisionError("x" * 100_000)))
    assert main(["describe"]) == 1
    err = capsys.readouterr().err
    assert len(err) < 3100
    assert err.endswith(f"x {HINT}\n")


@pytest.mark.parametrize("error", [ImageError("no"), ZeroDivisionError("no"), KeyboardInterrupt()])
def test_debug_shows_the_traceback_and_is_not_passed_to_the_verb(error: BaseException, monkeypatch, capsys):
    seen = []

    def act(verb, args):
        seen.append(args)
        raise error

    monkeypatch.setattr(command_line, "run_verb", act)
    assert main(["describe", "a", "--debug", "b"]) in (1, 2, 130)
    assert seen == [["a", "b"]]
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "args", [["demo", "--out", ""], ["demo", "--out="], ["fit", "--trainer.default_root_dir", ""]]
)
def test_an_empty_argument_is_not_the_working_directory(args: list[str], tmp_path: Path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    check_refused(cli(*args), "an argument is empty")
    assert list(tmp_path.iterdir()) == []


# -- streams that break, are full or closed ----------------------------------------------------------------------

SPEAK = """
import sys
from caption.cli import main
def act(verb, args):
    print("a caption")
    print("a message", file=sys.stderr)
    for lines in args:
        sys.stdout.flush()
        sys.stdin.readline()
        print("a caption\\n" * int(lines))
    return 0
main.run_verb = act
sys.exit(main.main())
"""
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
FULL = "a message\ncaption: the output cannot be read or written: No space left on device\n"


@pytest.mark.skipif(os.name == "nt", reason="no pipes that break on Windows")
@pytest.mark.parametrize("lines", [1, 20000], ids=["what waits in the buffer", "more than a buffer holds"])
def test_a_closed_pipe_is_not_an_error(lines: int):
    command = [sys.executable, "-c", SPEAK, "describe", str(lines)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=BUFFERED, **pipes) as talking:
        assert talking.stdout.readline() == "a caption\n"
        talking.stdout.close()
        talking.stdin.close()
        assert talking.stderr.read() == "a message\n"
        assert talking.wait(timeout=60) == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("streams", "code", "out", "err"),
    [
        (">/dev/full", 1, "", FULL),
        (">&-", 2, "", "caption: stdout is closed: redirect it to a file, or to /dev/null\n"),
        ("2>&-", 0, "a caption\n", ""),
        ("2>&- >&-", 2, "", ""),
    ],
)
def test_streams_that_are_full_or_closed(streams: str, code: int, out: str, err: str):
    command = ["sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, "-c", SPEAK, "describe"]
    done = subprocess.run(command, capture_output=True, text=True, env=BUFFERED, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)
