"""Reading text files that users name: UTF-8, lines, JSON, YAML. Every error names the file and the remedy."""

from __future__ import annotations

import io
import json
import os
import re
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from caption.core.errors import DataError, kind_and_reason, optional_package
from caption.core.runtime.inputs import CONFIGURATION, TEXT, Kind, read_input


def read_text(path: str | os.PathLike[str], kind: Kind = TEXT) -> str:
    """The text of a UTF-8 file, with or without byte order mark; of a Parquet table, its rows as JSON lines.

    `~` is the home folder; line ends are kept.

    Raises:
        UserError: the file cannot be read (see `caption.core.runtime.inputs.read_input`), or is not UTF-8; or it is a
            Parquet table, and damaged, too large, or pyarrow is missing.
    """
    path = user_path(path)
    data = read_input(path, kind)
    return (_parquet_lines if data[:4] == PARQUET else utf8_text)(data, f"'{path}'")


PARQUET = b"PAR1"
"""The first bytes of a Parquet table, such as the metadata.parquet of Hugging Face's image folders."""


def _parquet_lines(data: bytes, name: str) -> str:
    """The rows of a Parquet table as JSON lines; bytes, dates and the like become null."""
    with optional_package(f"the Parquet table {name}", "pyarrow"):
        from pyarrow import parquet
    lines: list[str] = []
    size = 0
    try:
        for batch in parquet.ParquetFile(io.BytesIO(data)).iter_batches(100):
            lines += [
                json.dumps(row, default=lambda _: None, ensure_ascii=False) for row in batch.to_pylist()
            ]
            size += sum(map(len, lines[-batch.num_rows :]))
            if size > TEXT.most:
                break
        else:
            return "\n".join(lines)
    except Exception as error:  # pyarrow raises almost anything on damaged files
        raise DataError(
            f"{name} is a damaged Parquet table: {kind_and_reason(error)}. Get it again."
        ) from error
    raise DataError(f"{name} has more than {TEXT.most / 1e9:.1f} GB of text. Is it the right file?")


def user_path(path: str | os.PathLike[str]) -> Path:
    """A path from a user, with `~` as the home folder; `~name` of an unknown user stays as it is."""
    return Path(os.path.expanduser(path))


def utf8_text(data: bytes, name: str) -> str:
    """UTF-8 text, with or without byte order mark. Raises a DataError, with the file's name, for other data."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8 text (byte {error.start}). Save it as UTF-8.") from None
    except MemoryError:
        raise DataError(f"{name} does not fit into the memory. Is it the right file?") from None


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """The non-blank lines of a text, without line ends, each with its number, counted from 1."""
    # splitlines() would also split at characters such as U+2028, which may occur inside a caption.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line.rstrip("\r")


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        DataError: the file is unreadable, is not JSON (the message gives the line), or holds no object.
    """
    data = parsed(read_text(path), f"'{path}'")
    if not isinstance(data, dict):
        raise DataError(f"'{path}' holds a JSON {type(data).__name__}, not an object. Is it the right file?")
    return data


def parsed(text: str, name: str) -> Any:
    """The content of a JSON text. Raises a DataError, with the file's name and the line, for other text."""
    try:
        return load_json(text)
    except JsonError as error:
        raise DataError(f"{name} is not JSON: {error}. Download or write it again.") from None


def json_or_none(text: str) -> Any:
    """The content of a JSON text; None for other text."""
    try:
        return load_json(text)
    except JsonError:
        return None


class JsonError(ValueError):
    """A text is not JSON, or is ambiguous JSON; `fault` is the message without the line."""

    def __init__(self, fault: str, line: int | None = None) -> None:
        super().__init__(fault if line is None else f"{fault} in line {line}")
        self.fault = fault


def load_json(text: str) -> Any:
    """The content of a JSON text.

    Raises:
        JsonError: the text is not JSON; an object has a key twice, so that one value would be lost; values are nested
            too deeply; an integer has more digits than Python converts; a string has half a character (a lone
            surrogate), other than those that encode bytes of file names that are not UTF-8; or the memory is too small.
    """
    try:
        data = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise JsonError(error.msg, error.lineno) from None
    except JsonError:
        raise
    except RecursionError:
        raise JsonError("its values are nested too deeply") from None
    except MemoryError:
        raise JsonError("its values do not fit into the memory") from None
    except ValueError:  # int() limits the digits, because converting them takes quadratic time
        raise JsonError("a number has too many digits") from None
    if _SURROGATE.search(text) and (lone := _lone_surrogate(data)) is not None:
        raise JsonError(f"a string has half a character, {lone!a}")
    return data


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise JsonError(f"one object has the key {short_repr(twice)} twice")
    return data


def _lone_surrogate(data: Any) -> str | None:
    try:
        json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        return error.object[error.start]
    return None


def load_yaml(text: str) -> Any:
    """The content of a YAML text.

    Raises:
        YamlError: the text is not YAML, has a value that its tag does not allow, or a key twice in one mapping.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """PyYAML would keep the last of two values of one key."""

        def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
            node = super().compose_mapping_node(anchor)
            keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            for key, count in keys.most_common(1):
                if count > 1:
                    fault = f"one mapping has the key {short_repr(key)} twice"
                    raise yaml.MarkedYAMLError(problem=fault, problem_mark=node.start_mark)
            return node

    try:
        return yaml.load(text, Loader)
    except RecursionError:
        raise YamlError("its values are nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise YamlError(line + " ".join(str(error.problem).split())) from None
    except Exception as error:  # constructors of tags raise almost anything
        raise YamlError(" ".join(str(error).split())) from None


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """The content of a YAML file.

    Raises:
        UserError: the file is unreadable, too large for a configuration, or not YAML (the message gives the line).
    """
    try:
        return load_yaml(read_text(path, CONFIGURATION))
    except YamlError as error:
        raise DataError(f"'{path}' is not YAML: {error}. Correct it.") from None


class YamlError(ValueError):
    """A text is not valid YAML; the message names the line, if it is known."""


def short_repr(value: Any) -> str:
    """A value in a message: as Python writes it, but long and deep ones cut."""
    try:
        return _SHORT.repr(value)
    except (ValueError, RecursionError):  # an integer of too many digits
        return f"a long {type(value).__name__}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def object_list(data: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """`data[key]`, which must be a list of objects.

    Raises:
        DataError: it is missing or has another type; `where` names the file or the entry.
    """
    values = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(values, list) or not all(isinstance(entry, dict) for entry in values):
        raise DataError(f"{where} has no list of objects called '{key}'. Is it the right file?")
    return values


def field(entry: Mapping[str, Any], key: str, kind: type | tuple[type, ...], where: str) -> Any:
    """`entry[key]`, which must have the type `kind`.

    Raises:
        DataError: it is missing or has another type; `where` names the entry.
    """
    value = entry.get(key)
    if not isinstance(value, kind):
        raise DataError(
            f"{where} has no valid '{key}' (found {short_repr(value)}). Correct it, or use another file."
        )
    return value


def coco_id(photo: str) -> int | str:
    """The image id for COCO's tools: 42 for COCO_val2014_000000000042.jpg, otherwise the name without suffix."""
    stem = PurePath(photo).stem
    number = re.fullmatch(r"(?:COCO_\w+_)?(\d+)", stem)
    return int(number[1]) if number else stem
