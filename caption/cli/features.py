"""`caption features`: compute the regions of all images of a data set once, into a feature store."""

from __future__ import annotations

import argparse
import sys

from caption.cli.arguments import count

DESCRIPTION = """\
Encode every image of a data set once and store its regions, so that training need not decode and encode
images again. The configuration is the one for training; of it, model.encoder, data.transform and data.reader
are used. It may be stopped at any moment: the same command goes on where it was. Train with
`data.features: DIR` in the configuration, or `--data.features DIR` on the command line.

Single entries of the configuration can be replaced, as in training: --model.encoder.weights FILE,
--data.transform.size 96, ...
"""

EPILOG = """\
exit code: 0 all images are in the store; 1 some cannot be read, they are named on stderr and left out;
2 wrong usage, configuration or data, or a store that does not fit them.
"""


def main(args: list[str] | None = None) -> int:
    """Run `caption features`.

    Args:
        args: what follows the verb; None = the process's arguments.

    Returns:
        0: all images are in the store; 1: some could not be read.

    Raises:
        UserError: the configuration, the data or the store is not what it should be.
        SystemExit: with code 2 for wrong usage, with 0 after --help.
    """
    parser = _parser()
    options, rest = parser.parse_known_args(args)
    overrides = _overrides(parser, rest)

    # Not before: these import torch, which takes seconds, and --help must not wait for it.
    from caption.cli import features_config
    from caption.features.writer import write_features

    config = features_config.read(options.config, overrides)
    images = features_config.images(config)
    source = features_config.of_checkpoint(options.model) if options.model else features_config.of(config)
    encoder, transform = source
    done = write_features(
        encoder,
        transform,
        images,
        options.out,
        batch_size=options.batch_size,
        workers=options.workers,
        device=features_config.device(options.device),
        verify=options.verify,
    )
    for image, error in done.failed:
        print(f"not stored: image {image.id!r}: {error}", file=sys.stderr)
    print(f"'{options.out}': {done}", file=sys.stderr)
    return 1 if done.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "caption features",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--config", "-c", metavar="YAML", required=True, help="configuration of the training")
    add("--out", metavar="DIR", required=True, help="folder of the store; made, or continued")
    add("--model", metavar="CKPT", help="take encoder and transform from this checkpoint")
    add("--device", metavar="D", help="cpu, cuda, cuda:1, mps (default: a GPU if there is one)")
    add("--batch-size", metavar="N", type=count, default=32, help="images encoded at once (default 32)")
    add("--workers", metavar="N", type=count, help="threads that decode (default: the processors, up to 16)")
    add("--verify", action="store_true", help="extract anew what is damaged in the store, and changed images")
    return parser


def _overrides(parser: argparse.ArgumentParser, rest: list[str]) -> dict[str, str]:
    """`--data.a.b VALUE` and `--data.a.b=VALUE` as {"data.a.b": "VALUE"}."""
    found: dict[str, str] = {}
    words = iter(rest)
    for word in words:
        name, equals, value = word.partition("=")
        if not name.startswith(("--data.", "--model.")):
            parser.error(f"unrecognized argument: {word}")
        if not equals:
            following = next(words, None)
            if following is None:
                parser.error(f"argument {name}: expected a value")
            value = following
        found[name.removeprefix("--")] = value
    return found
