"""A complete HTML document, whose content security policy forbids all that it does not list."""

from __future__ import annotations

import base64
import html
from hashlib import sha256

from caption.core.runtime.atomic_files import MARK


def document(title: str, body: str, style: str, script: str = "", *allowed: str) -> str:
    """A document whose content security policy allows embedded pictures, its style sheet and its script alone.

    Args:
        title: plain text.
        body: HTML.
        style: its only style sheet.
        script: its only script; "" for none.
        allowed: further directives of the policy.
    """
    policy = ["default-src 'none'", "img-src data:", *allowed]
    policy += [f"script-src {_hash(script)}"] if script else []
    policy += [f"style-src {_hash(style)}"]
    last = f"<script>{script}</script>\n" if script else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{"; ".join(policy)}">
<meta name="generator" content="{MARK}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body class="satt-page">
<main>
{body}
</main>
{last}</body>
</html>
"""


def _hash(text: str) -> str:
    """The hash by which a policy allows a script or style sheet."""
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"
