"""The modules of the page, which are joined into one script, so that all declarations share one scope."""

import re
from pathlib import Path

import pytest

import caption.visualize

WEB = Path(caption.visualize.__file__).parent / "web"
MODULES = {path.name: path.read_text(encoding="utf-8") for path in WEB.glob("*.js")}
DECLARED = r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)"


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_imports_is_exported_where_it_says(name):
    for names, home in re.findall(r'^import \{ ([^}]*) \} from "\./([\w.]+)";$', MODULES[name], re.MULTILINE):
        exported = re.findall(
            r"^export (?:async )?(?:function|class|const) (\w+)", MODULES[home], re.MULTILINE
        )
        assert set(names.split(", ")) <= set(exported)
        body = MODULES[name].replace(f"import {{ {names} }}", "")
        assert all(re.search(rf"\b{each}\b", body) for each in names.split(", "))


def test_no_two_modules_declare_the_same_name():
    declared = [name for text in MODULES.values() for name in re.findall(DECLARED, text, re.MULTILINE)]
    assert sorted(declared) == sorted(set(declared))
