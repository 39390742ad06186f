"""The `caption` command: finds the verb, and says in a sentence what went wrong."""

from __future__ import annotations

import io
import os
import sys
import traceback
from importlib import import_module

from caption.errors import UserError

USAGE = """\
usage: caption VERB [OPTIONS]          caption VERB --help tells a verb's options

Image captioning with visual attention: train it, score it, see where it looks for every word.

  demo       train on the embedded Shapes dataset, evaluate, caption, draw; takes minutes on a CPU
  describe   caption photos, with a heatmap for every word
  score      BLEU, CIDEr, ROUGE-L of captions, whoever made them
  features   encode a dataset's images once, for faster training
  check      what is wrong with a dataset, before training on it
  prepare    check a downloaded Flickr8k, Flickr30k or COCO, and lay it out for training
  import     make a checkpoint from a model of the authors' code or of sgrvinod's tutorial

  fit        train with a YAML file from configs/
  validate   evaluate a checkpoint on the validation split
  test       evaluate a checkpoint on the test split
  predict    caption a whole split

  --version  print the version
  --debug    after any verb: show the traceback of an error
"""

# verb -> module with main(args) -> exit code. Modules are imported when asked for: importing torch takes seconds.
VERBS = {
    "demo": "caption.cli.demo",
    "describe": "caption.cli.describe",
    "score": "caption.cli.score",
    "features": "caption.cli.features",
    "check": "caption.cli.check",
    "prepare": "caption.cli.prepare",
    "import": "caption.cli.import_",
    "fit": "caption.cli.train",
    "validate": "caption.cli.train",
    "test": "caption.cli.train",
    "predict": "caption.cli.train",
}
LIGHTNING = ("fit", "validate", "test", "predict")

WRONG_USAGE = 2
INTERRUPTED = 130


def main(args: list[str] | None = None) -> int:
    """Run a verb.

    Returns:
        0: all done; 1: some inputs failed, or an internal error; 2: wrong usage; 130: stopped by Ctrl-C.
    """
    if args is None and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            errors="surrogateescape"
        )  # file names need not be Unicode, and go out as they came in
    args = list(sys.argv[1:] if args is None else args)
    if not args or args[0] in ("-h", "--help", "help"):
        print(USAGE, end="", file=sys.stdout if args else sys.stderr)
        return 0 if args else WRONG_USAGE
    if args[0] == "--version":
        from importlib.metadata import version

        print(version("show-attend-and-tell"))
        return 0
    verb = args[0]
    if verb not in VERBS:
        _say(f"there is no verb {verb!r}; the verbs are {', '.join(VERBS)}")
        return WRONG_USAGE
    debug = "--debug" in args
    args = [arg for arg in args if arg != "--debug"]
    try:
        code = import_module(VERBS[verb]).main(args if verb in LIGHTNING else args[1:])
        sys.stdout.flush()  # here, where a reader that has gone is known about
        return code
    except UserError as error:
        return _failed(str(error), WRONG_USAGE, debug)
    except KeyboardInterrupt:
        return _failed("stopped", INTERRUPTED, debug)
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough. What is still to be written at exit goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as leaving:  # argparse
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or 0
        return _failed(str(leaving.code), WRONG_USAGE, debug)
    except Exception as error:
        return _failed(f"internal error, {type(error).__name__}: {error} (--debug shows where)", 1, debug)


def _failed(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    _say(message)
    return code


def _say(message: str) -> None:
    print(f"caption: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
