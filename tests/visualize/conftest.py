"""Pages in a browser for the tests of the interactive page."""

import pytest


@pytest.fixture
def show(browser, tmp_path):
    """Opens pages from disk. In the end their log must be empty, without other network requests."""
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
