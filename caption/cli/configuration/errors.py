"""Errors of a configuration, in one line."""

from __future__ import annotations

import inspect
import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from caption.core.errors import UserError, did_you_mean

NOISE = re.compile(
    r"Does not validate against.*|Sub(class )?types\b.*|Errors:|Given value type: .*"
    r"|a class path \(str\)|a dict with(out)? .*"
    r"|Got value: Namespace\(.*|Type typing\.Callable\[.*?\] expects a function or a callable class: "
)
"""Parts of jsonargparse's messages that show Python types or all arguments of a part; they are removed."""
PLACE = re.compile(r"Parser key \"(.+?)\":|Problem with given class_path '(.+?)':")
"""A step on the way to the culprit: an argument of the option or the class so far, or a class."""
VALUE = re.compile(r"\.? ?(?:Given|Got) value: (.*?)\.?$")
KINDS = {
    r"<class 'int'>": "a whole number",
    r"<class 'float'>": "a number",
    r"<class 'bool'>": "true or false",
    r"<class 'str'>": "text",
    r"<class '(list|tuple|collections\.abc\.\w+)'>": "a list",
    r"<class 'dict'>": "a section",
    r"typing\.Literal\[(.*)\]": r"\1",
    r"<class 'NoneType'>": "",
}
"""Of the values that an option takes, by the names of Python."""
KIND = re.compile(r"Expected an? (<class '.*?'>|typing\.Literal\[.*\])$")
CLASS = re.compile(
    r"Import path (?P<path>\S+) does not correspond to a subclass of (?P<base>\w+)"
    r"|Expected '(?P<given>\S+)' to be a subclass of <class '(?P<kind>\w+)'>\.*"
    r"|(?P<none>Not) a valid subclass of (?P<what>\w+)"
)
"""How jsonargparse reports a class of another kind."""
ALTERNATIVE = re.compile(
    r"Expected a path but (.*) either not accessible or invalid|Expected a dot import path .*"
)
"""What is reported of every value that could have named a file or a class."""
UNKNOWN = re.compile(r"Option '(\w+)'|option '([\w.]+)'|arguments: --([\w.]+)|has no attribute '(\w+)'")
"""How jsonargparse names an unknown argument, entry of a configuration, option and class."""
OF_PARTS = {
    **dict.fromkeys(("lr", "learning_rate"), "model.optimizer.init_args.lr"),
    "weight_decay": "model.optimizer.init_args.weight_decay",
    "momentum": "model.optimizer.init_args.momentum",
    "beam_size": "model.search.init_args.beam_size",
    "max_length": "model.search.init_args.max_length",
}
"""Arguments of the classes of parts, which users look for among the options."""


def jsonargparse_message(message: str, parser: ArgumentParser) -> str:
    """An error message of jsonargparse, which fills a page, as one line, with a suggestion for a misspelt name.

    Args:
        message: it quotes the classes and modules in which a name was looked for.
        parser: the parser that met the error; its options are the keys.
    """
    return one_line(message) + _remedy(message, parser)


class Complaint(NamedTuple):
    """A line of jsonargparse's message that says what is wrong."""

    keys: tuple[str, ...]
    """The option, and the arguments of classes that lead to the culprit."""
    owner: str
    """The class that complains of more than a value; empty for an option."""
    text: str

    @property
    def place(self) -> str:
        """The culprit as users write it, and the class that does not know it: "model.search.init_args.beam_size: "."""
        of_class = f"{self.owner}: " if self.owner and not self.about_value else ""
        return f"{'.init_args.'.join(self.keys)}: " * bool(self.keys) + of_class

    @property
    def about_value(self) -> bool:
        return any(pattern.fullmatch(self.text) for pattern in (KIND, CLASS, ALTERNATIVE))


def one_line(message: str) -> str:
    """An error message of jsonargparse without `NOISE`: the place, and what the value there should be.

    The message is a tree, with a branch for each type that the value could have had. The branch that came furthest
    is the one that was meant; in it, other faults than a wrong type come first.
    """
    complaints, value = _complaints(message)
    if not complaints:
        return message.strip()
    deepest = max(len(complaint.keys) for complaint in complaints)
    meant = [complaint for complaint in complaints if len(complaint.keys) == deepest]
    if faults := [complaint for complaint in meant if not complaint.about_value]:
        return faults[0].place + " ".join(complaint.text for complaint in faults)
    for complaint in meant:
        if other := CLASS.fullmatch(complaint.text):
            name, kind = (
                (other["path"] or other["given"] or "null"),
                (other["base"] or other["kind"] or other["what"]),
            )
            return f"{complaint.place}{name} is not {'an' if kind[0] in 'AEIOU' else 'a'} {kind}"
    kinds = [_kind(found[1]) for complaint in meant if (found := KIND.fullmatch(complaint.text))]
    if {"", "a list"} >= {*kinds} and any("import path" in complaint.text for complaint in meant):
        kinds.insert(0, "the name of a class")
    if {"a number", "a whole number"} <= {*kinds}:
        kinds.remove("a whole number")
    expected = " or ".join(dict.fromkeys(filter(None, kinds))) or "a file that can be read"
    return f"{meant[0].place}{value} is not {expected}"


def _complaints(message: str) -> tuple[list[Complaint], str]:
    """The complaints of a message, and the value that was given."""
    complaints: list[Complaint] = []
    value = "this"
    way: list[tuple[int, str, str]] = []  # indentation, key, class
    for line in filter(str.strip, message.splitlines()):
        text = line.lstrip(" -")
        indent = len(line) - len(text)
        way = [step for step in way if step[0] < indent]
        text = NOISE.sub("", text).strip()
        while place := PLACE.match(text):
            way.append((indent, place[1] or "", (place[2] or "").rpartition(".")[2]))
            text = text[place.end() :].strip()
        if given := VALUE.search(text):
            value = given[1] if not given[1].startswith(("{", "Namespace", "NestedArg")) else value
            text = text[: given.start()].strip()
        if option := ALTERNATIVE.fullmatch(text):
            value = option[1] or value
        if text:
            keys = tuple(key for _, key, _ in way if key)
            owner = way[-1][2] if way else ""
            complaints.append(Complaint(keys, owner, text))
    return complaints, value


def _kind(name: str) -> str:
    """A kind of values in words; empty for one that needs no mention."""
    for python, words in KINDS.items():
        if found := re.fullmatch(python, name):
            return found.expand(words)
    return name


def _remedy(message: str, parser: ArgumentParser) -> str:
    if missing := re.search(r"No module named '(.+?)'", message):
        return f" (put {missing[1]}.py into the working directory, or install the package)"
    if (unknown := UNKNOWN.search(message)) is None:
        return ""
    name = unknown[unknown.lastindex or 0]
    options, owners = list(keys(parser)), re.findall(r"'([\w.]+)'", message)
    last = name.rpartition(".")[2]
    same = (
        [OF_PARTS[last]] if last in OF_PARTS else [key for key in options if key.rpartition(".")[2] == last]
    )
    if len(same) == 1 and not owners:
        return f" (did you mean --{same[0]}?)"
    return did_you_mean(name, {*options, *(argument for owner in owners for argument in _names(owner))})


def reason(error: Exception) -> str:
    """The reason for an error of jsonargparse: the UserError that caused it, if there is one."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, UserError):
        cause = cause.__cause__
    return one_line(str(cause or error))


def keys(parser: ArgumentParser) -> Iterator[str]:
    """The keys of a parser and of its subcommands, such as "trainer.max_epochs"."""
    for action in parser._actions:
        if isinstance(action.choices, Mapping):
            for subcommand in action.choices.values():
                yield from keys(subcommand)
        else:
            yield action.dest


def _names(path: str) -> Iterable[str]:
    """The names in a module, or the arguments of a class; none if it has not been imported."""
    module, _, name = path.rpartition(".")
    if path in sys.modules:
        return dir(sys.modules[path])
    owner = getattr(sys.modules.get(module), name, None)
    try:
        return inspect.signature(owner).parameters if inspect.isclass(owner) else ()
    except ValueError:  # a class written in C
        return ()
