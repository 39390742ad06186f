"""Configuration errors in one line: jsonargparse's own messages fill a page."""

from __future__ import annotations

import re

# Lines without information of their own.
SCAFFOLDING = (
    "Does not validate against any",
    "Subtypes:",
    "Errors:",
    "- Expected a <class 'NoneType'>",
    "Given value type:",
)


def one_line(message: str) -> str:
    """An error message of jsonargparse as "key: class: reason".

    Its nested lines name the keys from the outside in, then the class whose argument is wrong, then one reason for
    each allowed type. A message of any other form is only joined to one line.
    """
    keys: list[str] = []
    culprit, given = "", ""
    reasons: list[str] = []
    for line in (line.strip() for line in message.splitlines()):
        if line.startswith(SCAFFOLDING):
            continue
        line = re.sub(
            r"^Type .* expects a function or a callable class: (.*)\. Got value: Namespace\(class_path='([^']+)'.*",
            r"Problem with given class_path '\2': \1",
            line.removeprefix("- "),
        )
        if key := re.match(r'Parser key "([^"]+)":\s*', line):
            keys.append(key[1])
            line = line[key.end() :]
        if problem := re.match(r"Problem with given class_path '([^']+)':\s*", line):
            culprit = problem[1]
            line = line[problem.end() :]
        # A class path is first tried as a file's; why it is not a class stands on the next line.
        line = re.sub(r"^Expected a path but .* either not accessible or invalid$", "", line)
        if line.startswith("Given value: "):
            given = given or f", not {line.removeprefix('Given value: ')}"  # the innermost comes first
        elif line:
            reasons.append(line)
    expected = [re.match(r"Expected an? (.*?)(?:\. Got value: (.*))?$", reason) for reason in reasons]
    if reasons and all(expected):
        kinds = " or ".join(_kind(match[1]) for match in expected if match)
        value = next((f", not {match[2]}" for match in expected if match and match[2]), given)
        reasons = [f"expected {kinds}{value}"]
    return ": ".join(filter(None, (".".join(keys), culprit, " ".join(reasons))))


def _kind(name: str) -> str:
    """<class 'int'> -> int; typing.Literal['a', 'b'] -> one of 'a', 'b'."""
    return re.sub(r"^typing\.Literal\[(.*)\]$", r"one of \1", re.sub(r"^<class '(.*)'>$", r"\1", name))
