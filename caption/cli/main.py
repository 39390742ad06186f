"""The `caption` command: runs the verb, and reports an error in one line."""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from caption.cli.configuration.arguments import verb_parser
from caption.cli.exit_codes import DONE, INTERRUPTED, SOME_FAILED, WRONG_USAGE
from caption.core.errors import Stopped, UserError, did_you_mean, own_code_message, printable, shortened
from caption.core.runtime.allocator import keep_freed_memory
from caption.core.runtime.signals import name_of, stopping_at_once

# The modules in caption.cli are imported only when needed: torch takes seconds.
VERBS = {
    "demo": ("demo", "train on the built-in Shapes dataset, evaluate, caption, draw; minutes on a CPU"),
    "describe": ("describe.command", "caption photos, with a heatmap for every word"),
    "serve": (
        "serve",
        "a local page on which you move a model's attention and read how the sentence changes",
    ),
    "score": ("score", "BLEU, CIDEr, ROUGE-L of captions from any source"),
    "features": ("features", "encode a dataset's images once, for faster training"),
    "check": ("check", "find faults in a dataset before training on it"),
    "shards": ("shards", "write a dataset's training split as WebDataset shards"),
    "import": ("import_", "make a checkpoint from a model of the authors' code or of sgrvinod's tutorial"),
    "push": ("push", "upload a model to the Hugging Face Hub"),
    "compare": ("compare", "training runs side by side: scores and learning curves"),
    "analyse": ("analyse", "measure where models look, and whether that explains their words"),
    "probe": (
        "probe",
        "see whether the image tokens of a model of transformers lie where its maps are drawn",
    ),
    "lens": ("lens", "make a lens: what a model's encoder sees where its decoder looks"),
    "configs": ("configs", "list the configurations that come with the package"),
    "export": ("export", "write a model as ONNX files, which run without torch, or as one small file"),
    "fit": ("training.command", "train a model"),
    "validate": ("training.command", "evaluate a checkpoint on the validation split"),
    "test": ("training.command", "evaluate a checkpoint on the test split"),
    "predict": ("training.command", "caption a whole split"),
}
SUMMARIES = "\n".join(f"  {verb:<11}{summary}" for verb, (_, summary) in VERBS.items())
USAGE = f"""\
usage: caption VERB [OPTIONS]          caption VERB --help lists the options of a verb

Image captioning with visual attention: train a model, score it, see where it looks for every word.

{SUMMARIES}

  --version  print the version
  --debug    after any verb: show the traceback of an error, and which parts run in a faster form
"""


def main(args: list[str] | None = None) -> int:
    """Run a verb.

    Returns:
        an exit code, see `caption.cli.exit_codes`.
    """
    if args is None and isinstance(sys.stdout, io.TextIOWrapper):
        # File names that are not Unicode are printed byte for byte.
        sys.stdout.reconfigure(errors="surrogateescape")
    if args is None:
        keep_freed_memory()
    args = list(sys.argv[1:] if args is None else args)
    if "" in args or any(re.fullmatch("--[^=]+=", arg) for arg in args):
        # A path of this name would be the working directory.
        return _failed("an argument is empty: is a variable of the shell not set?", WRONG_USAGE)
    if sys.stderr is None:  # closed by the shell; print() would then send messages to stdout
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        return _failed("stdout is closed: redirect it to a file, or to /dev/null", WRONG_USAGE)
    try:
        with warnings.catch_warnings(), _printable_warnings():
            # Pillow warns about oddities of files that it can decode. Files that it cannot decode are reported.
            warnings.filterwarnings("ignore", module=r"PIL\b")
            _ignore_settings_of_the_folder()
            with stopping_at_once():
                code = _run(args)
        sys.stdout.flush()  # here, where a closed pipe and a full disk are handled
        return code
    except BrokenPipeError:  # the reader of stdout, such as `head`, has exited
        _discard_stdout()
        return DONE
    except OSError as error:
        _discard_stdout()
        culprit = f"'{error.filename}'" if error.filename else "the output"
        message = f"{culprit} cannot be read or written: {error.strerror or error}"
        return _failed(message, SOME_FAILED, "--debug" in args)


def _ignore_settings_of_the_folder() -> None:
    """Import Matplotlib without the `matplotlibrc` of the working directory, whose settings it would apply."""
    if os.path.exists("matplotlibrc") and "matplotlib" not in sys.modules:
        folder = os.getcwd()
        os.chdir(os.path.dirname(__file__))
        try:
            import_module("matplotlib")
        finally:
            os.chdir(folder)


@contextmanager
def _printable_warnings() -> Iterator[None]:
    """Escape warnings, which may quote names in files from strangers."""
    original = warnings.formatwarning

    def shown(message: Warning | str, *place: Any, **line: Any) -> str:
        return original("\n".join(map(printable, str(message).split("\n"))), *place, **line)

    warnings.formatwarning = shown
    try:
        yield
    finally:
        warnings.formatwarning = original


def _discard_stdout() -> None:
    """Discard the output that Python would still write to stdout when it exits."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # noqa: TID251 (no file)


def _run(args: list[str]) -> int:
    """Like `main`, but errors of the operating system are raised."""
    if not args or args[0] in ("-h", "--help", "help"):
        print(USAGE, end="", file=sys.stdout if args else sys.stderr)
        return DONE if args else WRONG_USAGE
    if args[0] == "--version":
        from caption.core.version import package_version

        print(package_version())
        return DONE
    verb = args[0]
    debug = "--debug" in args
    args = [arg for arg in args if arg != "--debug"]
    if debug:
        import logging

        logging.basicConfig(format="caption: %(message)s")
        logging.getLogger("caption").setLevel(logging.INFO)
    if verb not in VERBS:
        if os.path.splitext(verb)[1] or os.path.exists(verb):
            meant = f"to caption this photo: caption describe {shlex.quote(verb)}"
            return _failed(f"there is no verb {verb!r}; {meant}", WRONG_USAGE)
        meant = did_you_mean(verb, (*VERBS, "--help", "--version"))
        return _failed(f"there is no verb {verb!r}{meant}; the verbs are {', '.join(VERBS)}", WRONG_USAGE)
    try:
        return run_verb(verb, args[1:])
    except UserError as error:
        return _failed(str(error), WRONG_USAGE, debug)
    except Stopped as stop:
        message = str(stop) or f"stopped by {name_of(stop.number)}"
        return _failed(f"{message}; {stop.hint}" if stop.hint else message, 128 + stop.number, debug)
    except KeyboardInterrupt:
        return _failed("stopped", INTERRUPTED, debug)
    except SystemExit as leaving:  # argparse
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or DONE
        return _failed(str(leaving.code), WRONG_USAGE, debug)
    except MemoryError:
        return _failed("the memory is too small for this: give smaller or fewer files", SOME_FAILED, debug)
    except OSError:
        raise
    except Exception as error:
        if (of_own_code := own_code_message(error)) is not None:
            return _failed(f"{of_own_code} (--debug shows the traceback)", WRONG_USAGE, debug)
        message = f"internal error, {type(error).__name__}: {error} (--debug shows the traceback)"
        return _failed(message, SOME_FAILED, debug)


def run_verb(verb: str, args: list[str]) -> int:
    """Run a verb with its arguments. Its errors are raised."""
    name, _ = VERBS[verb]
    module = import_module(f"caption.cli.{name}")
    if name == "training.command":  # Lightning's parser reads the verb itself
        return module.main([verb, *args])
    return module.main(verb_parser(verb, module).parse_args(args))


def _failed(message: str, code: int, debug: bool = False) -> int:
    if debug:
        traceback.print_exc()
    message = shortened(
        printable(" ".join(message.split("\n\t")))
    )  # PyTorch's lists have a line for each entry
    with suppress(OSError):  # stderr may be full, too
        print(f"caption: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
