"""The tables of the Treebank tokenizer: character classes, abbreviations, spellings of tokens.

All entries were found by querying Stanford CoreNLP 3.4.1, character by character and word by word.
"""

from __future__ import annotations

LETTER = (
    # Python's letters, without digits and fractions, ...
    r"[^\W\d_²³¹¼-¾\u09f4-\u09f9\u2070-\u2089\u2150-\u2189\u2460-\u249b\u24ea-\u24ff\u2776-\u2793\u3007]"
    # ... and the marks that belong to letters: separate accents, vowel signs.
    r"|[\u02c2-\u02c5\u02d2-\u02df\u02e5-\u02eb\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5"
    r"\u05c7\u0615-\u061a\u064b-\u065e\u0670\u06d6-\u06ed\u0711\u0730-\u074a\u07a6-\u07b0\u07eb-\u07f3\u0900-\u0903"
    r"\u093c\u093e-\u094e\u0951-\u0955\u0962\u0963\u0981-\u0983\u09bc-\u09cd\u0a01-\u0a03\u0a3c-\u0a4f\u0a81-\u0a83"
    r"\u0abc-\u0acd\u0b82\u0bbe-\u0bcd\u0c01-\u0c03\u0c3e-\u0c56\u0d3e-\u0d48\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
    r"\u0eb1-\u0ebc\u0ec8-\u0ecd]"
    # Accented vowels as HTML entities.
    r"|&[aeiouAEIOU](?:acute|grave|uml);"
)
"""A regular expression for one letter."""

SYMBOL = (
    r"[!-~¡¥-©«¬®-±´¶-¸»¿×÷\x80\xad\x91-\x94’‘“”‚„“”‹›‛†-‣…‰-‸※‼-⁂⁄¼-¾²³¹\u2070\u2074-\u208e\u2153-\u215e"
    r"\u037e\u0387\u0589\u05be\u05c0\u05c3\u05c6\u05f3\u05f4\u0606-\u060c\u061b\u061e\u061f\u066a\u066d\u06d4"
    r"\u0964\u0965\u0e3f\u0e4f\u1fbd\u2016\u2017\u20a4\u2100-\u2bff\u3001\u3002\u3012\u30fb\uff01-\uff0f"
    r"\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\uffe0\uffe1\uffe5\uffe6¢-¤€₠]"
)
"""A regular expression for a character that is a separate token. Other characters, such as emoji, are dropped."""

# Abbreviations that keep their full stop everywhere.
TITLES = (
    "adj adm adv alex assoc asst atty ave brig capt cf cie cmdr col comdr cpl dept det dr drs elec ens ft "
    "gen gov govs hon insp invt jos lieut lt maj messrs mfg mlle mme mr mrs ms msgr mt mtg natl pfc ph "
    "pres prof profs pvt rep reps rev sen sens sfc sgt spc st ste supt treas vs wm"
)
# Abbreviations that keep it unless the word continues after it ("inc.com").
OFTEN_LAST = (
    "al ala apr ariz assn aug bancorp bhd bldg blvd bros calif co colo conn corp cos ct dak dec esq est "
    "etc ext feb fla fri ga inc ind intl jan jr jul jun kan kans ky ltd mar md mich minn mo mon mont neb "
    "nev nov oct okla penn plc ppte ppty pte ptes pty ptys rd rt sep sept seq sq sr sys tel tenn thu "
    "thurs tue tues univ va vt wed wis wisc wyo"
)
# The same, but only capitalised: "miss." and "ill." are words at the end of a sentence.
OFTEN_LAST_CAPITAL = "ark az del ill la mass miss ore pa tex wash"
# Abbreviations that keep it before a number: "no. 5".
BEFORE_NUMBER = "art ca fig figs no nos op pp prop"
# Extensions of file names: "01.jpg" is one token.
EXTENSIONS = (
    "bat bmp c cgi class cpp dll docx? exe gif gz h html? jar java jpe?g mov mp3 pdf php pl png ppt ps py "
    "sql tar txt wav x xml zip"
)
# First words of sentences: a single letter and a full stop before one of these is not an initial.
BEGINNINGS = (
    "a about according additionally after an as at but he her here however if in it last many more now "
    "once one other our she since so some such that the their then there these they this we what when "
    "while yet you"
)

TWO_WORDS = {
    first + second: (first, second)
    for first, second in (
        ("can", "not"), ("gon", "na"), ("wan", "na"), ("got", "ta"), ("gim", "me"), ("lem", "me"),
    )
}  # fmt: skip
"""Two words written as one."""
WITH_APOSTROPHE = (
    "somethin' dunkin' ol' nat'l li'l s'mores ev'ry nor'easter hallowe'en c'mon c'est e'er cont'd."
)
"""Words with an apostrophe that are one token, in addition to those that the rules match."""

NAMES = {
    "(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-",
    "…": "...", "\x85": "...", "–": "--", "—": "--", "―": "--", "\x96": "--", "\x97": "--", "‐": "-", "‑": "-",
    "\u058a": "-", "\xad": "-",
    "“": "``", "«": "``", "\x93": "``", "”": "''", "»": "''", "\x94": "''",
    "‘": "`", "‹": "`", "‛": "`", "\x91": "`", "’": "'", "›": "'", "\x92": "'",
    "¢": "cents", "£": "#", "¤": "$", "€": "$", "₠": "$", "\x80": "$",
    "¼": "1/4", "½": "1/2", "¾": "3/4", "⅓": "1/3", "⅔": "2/3",
}  # fmt: skip
"""The spellings of single characters that are changed."""
ENTITIES = {
    "lt": "<", "gt": ">", "amp": "&", "quot": "''", "apos": "'", "nbsp": "", "mdash": "--", "ndash": "--", "md": "--",
}  # fmt: skip
