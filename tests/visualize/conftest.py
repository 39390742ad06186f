"""Pages in a browser for the tests of the interactive page."""

import pytest


def opener(browser, folder):
    """Opens pages from disk. In the end their log must be empty, without other network requests."""
    opened = []

    def show(page, **options):
        path = folder / f"page{len(opened)}.html"
        path.write_text(page, encoding="utf-8")
        opened.append((path.as_uri(), browser.open(path.as_uri(), **options)))
        return opened[-1][1]

    yield show
    for address, page in opened:
        assert page.complaints() == []
        assert page.requests() == [address]
        page.close()


@pytest.fixture
def show(browser, tmp_path):
    """Open a page for one test."""
    yield from opener(browser, tmp_path)


@pytest.fixture(scope="module")
def keep(browser, tmp_path_factory):
    """Open a page for all tests of a module, which leave it as they have found it."""
    yield from opener(browser, tmp_path_factory.mktemp("pages"))
