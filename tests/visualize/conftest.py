"""A browser for the tests of the interactive page."""

import pytest
from helpers.browser import CHROMIUM, Browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def show(browser, tmp_path):
    """Open a page from disk. At the end of the test, its log must be empty, without other network requests."""
    opened = []

    def show(page, **options):
        path = tmp_path / f"page{len(opened)}.html"
        path.write_text(page, encoding="utf-8")
        opened.append((path.as_uri(), browser.open(path.as_uri(), **options)))
        return opened[-1][1]

    yield show
    for address, page in opened:
        assert page.complaints() == []
        assert page.requests() == [address]
        page.close()
