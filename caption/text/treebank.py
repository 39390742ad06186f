r"""Penn Treebank tokens, as in the tokenizer of Stanford CoreNLP 3.4.1.

That tokenizer tries all its rules at a position of the text and applies the one with the longest match; of equally
long matches, the first. Some rules look ahead: that text counts for the length of the match, but is not consumed. This
module does the same. Its rules were found by querying the original as a black box.

Tokens have Treebank spelling: `` and '' for quotation marks, -LRB- and -RRB- for brackets, -- for dashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from caption.text import treebank_words as known

_A = f"(?:{known.LETTER})"
_W = rf"(?:{known.LETTER}|[\d\xad])"
_APOSTROPHE = r"(?:['’\x92]|&(?i:apos);)"
_QUOTE = r"(?:['’\x92`‘‛\x91]|&(?i:apos);)"  # characters typed for an apostrophe
_HYPHEN = "[-‐‑\u058a]"
_CLITIC = rf"{_APOSTROPHE}(?i:s|m|d|re|ve|ll)"
_NOT = rf"[nN]{_QUOTE}[tT]"

_WORD = rf"{_A}{_W}*(?:[.!?]{_A}{_W}*)*"  # with a full stop inside: "end.start"
_INITIALS = r"[A-Za-z](?:\.[A-Za-z])+"
_NUMBER = r"(?:\d*(?:[.,:٫٬]\d+)+|\d+)"
# With a particle: d'Avignon. The alternatives exclude each other; otherwise 1-2-3-... would take exponential time.
_LINK = rf"(?:(?:[dDoOlL]{_QUOTE}{_W})?{_W}+|\d+(?:[.,:٫٬]\d+)+)"
_LINKED = rf"{_LINK}(?:{_HYPHEN}{_LINK})*"
_SLASHED = r"[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}"
_SEVERAL = r"\d{2,4}[- \xa0]"

_NAME = r"[A-Za-z][A-Za-z0-9:._-]*"
_TAG = rf"<(?:[!?][A-Za-z-][^>]*|/{_NAME}\s*|{_NAME}(?:\s+{_NAME}(?:=\"[^\"]*\"|='[^']*')?)*\s*/?\s*)>"
_PATH = r"[^\s\"<>|(){}]+[^\s\"<>|(){}.,!?-]"
_OUTSIDE = r"\s!\"$'(),./:;<=>?@[\\\]^_`{|}-"
_HOST = rf"(?:[^\d{_OUTSIDE}][^{_OUTSIDE}]*\.)+(?:com|net|org|edu)"
_WWW = r"www\.(?:[^\s\"<>|(){}.,!?]+\.)+[A-Za-z]{2,4}"
_MAIL = r"[A-Za-z0-9][^\s\"<>|(){}]*@[^\s\"<>|(){}.]+(?:\.[^\s\"<>|(){}.]+)*"
_FILE = rf"{_W}+(?:\.{_W}+)*\.(?i:{known.EXTENSIONS.replace(' ', '|')})(?!{_W})"


def _any(words: str, lower: bool = True) -> str:
    """A pattern for any of these words, in any case; without `lower`, their first letter is a capital."""
    forms = (
        f"(?i:{re.escape(word)})" if lower else f"{word[0].upper()}(?i:{word[1:]})"
        for word in sorted(words.split(), key=lambda word: (-len(word), word))
    )
    return f"(?:{'|'.join(forms)})".replace("'", _APOSTROPHE)


# (pattern of the token, pattern of what must follow). The order decides between equally long matches.
_RULES: list[tuple[str, str]] = [
    # Two words written as one: cannot, 'tis.
    *((rf"(?i:{first})", rf"(?i:{second})") for first, second in known.TWO_WORDS.values()),
    (r"'[tT]", r"(?i:is|was)"),
    # Markup and dashes.
    (_TAG, ""),
    (r"&(?i:mdash|ndash|md);|[\x96\x97–—―]", ""),
    (r"&(?i:amp);", ""),
    # Words, and the parts that an apostrophe joins to them.
    (_WORD, _CLITIC),
    (r"[A-Za-z]*[A-MO-Za-mo-z]", _NOT),  # "ca" of can't: the n goes with the t
    (_CLITIC, r"[^A-Za-z]"),
    (_WORD, ""),
    (rf"{_APOSTROPHE}[nN]{_APOSTROPHE}?", ""),  # rock 'n' roll
    (rf"{_APOSTROPHE}{_any('em til till cause')}", ""),
    (rf"{_APOSTROPHE}[2-9]0[sS]", ""),
    (rf"{_APOSTROPHE}\d\d", r"\s"),
    (_any(known.WITH_APOSTROPHE), ""),
    (rf"[A-HJ-XZn]{_QUOTE}{_A}{{2,}}", ""),  # O'Reilly
    (rf"{_A}+[aeiouyAEIOUY]{_QUOTE}[aeiouA-Z]{_A}*", ""),  # ma'am
    (rf"[dDlLjJ]{_APOSTROPHE}", ""),
    (rf"[yY]{_APOSTROPHE}", _A),  # y'all
    (_NOT, r"[^A-Za-z]"),
    # Abbreviations, part 1: any word may be one before these marks.
    (rf"(?:{_WORD}|{_W}+)\.", "[,;:、]"),
    (rf"(?:{_any(known.OFTEN_LAST)}|{_any(known.OFTEN_LAST_CAPITAL, lower=False)})\.", r"[\s\S]{2}"),
    # Addresses.
    (rf"(?i:https?)://{_PATH}", ""),
    (rf"(?:{_WWW}|{_HOST})(?:/{_PATH})?", ""),
    (rf"<?{_MAIL}>?", ""),
    (_FILE, ""),
    (r"@[A-Za-z_][A-Za-z_0-9]*", ""),
    (rf"\#{_A}+", ""),
    # Numbers, and words with digits, hyphens or slashes in them.
    (r"\d{1,2}[-/]\d{1,2}[-/]\d{2,4}|\d{4}[-/]\d{1,2}[-/]\d{1,2}", ""),
    (rf"[-+]?{_NUMBER}", ""),
    (r"(?:\d{1,4}[- \xa0])?\d{1,4}(?:\\?/|⁄)\d{1,4}", ""),  # 1 1/2
    (_LINKED, ""),
    (r"[A-Z]+(?:(?:[+&]|&(?i:amp);)[A-Z]+)+", ""),  # AT&T
    (rf"{_SLASHED}(?:\\?/{_SLASHED}){{1,2}}", ""),  # and/or
    (rf"{_W}(?:{_W}|[.,])*(?:-(?:{_INITIALS}\.|{_W}+))+", ""),  # U.S.-based
    (rf"{_LINKED}(?:_{_LINKED})+", ""),
    (rf"(?:\(\d{{2,3}}\)[ \xa0]?|(?:{_SEVERAL})?{_SEVERAL})\d{{3,4}}[- \xa0]?\d{{3,5}}", ""),  # 555 555-5555
    (r"[A-Z]*\$|\#", ""),  # US$
    # Abbreviations, part 2.
    (rf"{_any(known.TITLES)}\.", ""),
    (rf"{_any(known.BEFORE_NUMBER)}\.", r"\s?\d"),  # no. 5
    (rf"(?:{_INITIALS}|[A-Za-z]|(?i:ph\.d))\.", ""),
    (_A, rf"\.\s+(?:{_any(known.BEGINNINGS, lower=False)}|M[rsRS]\.|{_TAG})\s"),  # plan B. The
    (r"[cC]\+\+|[cCfF]\#", ""),
    # Smileys, then punctuation of several characters.
    (r"[<>]?[:;=]['’*o-]?[\]\[()@|\\DPOpd]|[<>]?[:;=]['’*o-][{}]|[:;=]\{", r"[^A-Za-z0-9]"),
    (r"[-'^<>=~]_[-'^<>=~x]", ""),
    (r"'", r"[A-Za-z]\S"),
    (_CLITIC, ""),
    (r"[‘’“”‛`\x91-\x94]{1,2}", ""),
    (r"[⁺⁻₊₋]?(?:[⁰¹²³⁴-⁹]+|[₀-₉]+)", ""),
    (r"\.{3,5}|\.(?: \.){2,}", ""),
    (r"[!?]+|--+|__+|\#\#+|\*\*+|@@+|<<|>>|``|''|\\\*", ""),
    (r"&(?:(?i:lt|gt|quot|apos|nbsp|ht|tl|ur|lr|qc|ql|qr|odq|cdq)|\#\d+);", ""),
    (known.SYMBOL, ""),
]
_BEYOND = re.compile("[\U00010000-\U0010ffff]")  # the basic plane; the original knows no other characters
_OPENING = re.compile(r"\"[A-Za-z0-9$]|'[A-Za-z]\S")
_CROSSING = re.compile(r"\d[ \xa0]\d|\)[ \xa0]\d|\.\s\d|<|\. \.|\b\w\.\s+[A-Z]")
"""Text in which a token, or the text that a rule looks ahead at, may contain white space."""
_JOINED = re.compile(f"{_CLITIC}|{_NOT}")
_SPELLINGS = str.maketrans({"(": "-LRB-", ")": "-RRB-", "⁄": "/", "\xad": None})


def pieces(text: str) -> Iterable[str]:
    """The parts of `text` that can be tokenized independently: usually the text between spaces."""
    if not text.isascii():
        text = _BEYOND.sub(" ", text)  # emoji and the like are dropped; a word ends before them
    return (text,) if _CROSSING.search(text) else text.split()


def tokenize(piece: str) -> Iterator[str]:
    """The tokens of a piece, with their case. A token that contains a space ("1 1/2") is split into two."""
    if piece.isascii() and piece.isalpha() and piece.lower() not in known.TWO_WORDS:
        yield piece  # a fast path for most pieces; the rules give the same
        return
    text = piece + " \n"  # some rules look at the following text
    position, end = 0, len(piece)
    while position < end:
        token = _longest(text, position)
        if token:
            yield from _spelled(token, opening=_OPENING.match(text, position) is not None).split()
        position += len(token) or 1


@cache
def _patterns() -> list[re.Pattern[str]]:
    """The compiled rules. They are compiled at the first caption, because many commands do not tokenize."""
    return [re.compile(f"({token}){ahead}") for token, ahead in _RULES]


def _longest(text: str, position: int) -> str:
    """The token of the rule with the longest match at a position; "" for white space and unknown characters."""
    furthest, token = position, ""
    for pattern in _patterns():
        match = pattern.match(text, position)
        if match and match.end() > furthest:
            furthest, token = match.end(), match.group(1)
    return token


def _spelled(token: str, opening: bool) -> str:
    if token in ('"', "'"):
        return {'"': "``", "'": "`"}[token] if opening else token.replace('"', "''")
    if token in known.NAMES or not token.strip("‘’“”‛`\x91\x92\x93\x94"):
        return "".join(known.NAMES.get(character, character) for character in token)
    if token[0] == "&" and token[-1] == ";":
        name = token[1:-1]
        return known.ENTITIES.get(name if name.lower() in ("quot", "apos") else name.lower(), token)
    if token in ("---", "----"):
        return "--"
    if token.startswith(("....", ". .")):
        return "..."
    if _JOINED.fullmatch(token):
        return re.sub("[‘‛\x91]", "`", re.sub("['’\x92]|&apos;", "'", token))
    return token.replace("&amp;", "&").translate(_SPELLINGS)
