"""Each page of the built site in a real browser: nothing fails or comes from elsewhere, and a phone shows it whole.

The site in `site/` is served to this machine alone, and the system's chromium opens it without a window.
`DATASET_RT_CHROMIUM` names the browser where it is not `chromium` on the path.
"""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response, Route, sync_playwright

SITE = Path(__file__).parent.parent / "site"
PAGES = sorted(str(page.relative_to(SITE)) for page in SITE.rglob("*.html"))
WIDTHS = {"desktop": 1280, "phone": 390}
HEIGHT = 844
# Milliseconds; a page takes about a second.
PATIENCE = 60_000

# Loads the images that would wait for their turn, and gives the addresses of those that did not become a picture.
BROKEN_IMAGES = """async () => {
  const images = Array.from(document.images);
  for (const image of images) image.loading = "eager";
  await Promise.all(images.map((image) => image.decode().catch(() => {})));
  return images.filter((image) => !image.naturalWidth).map((image) => image.getAttribute("src"));
}"""

# Gives the elements that make the page wider than the window, the outermost of each chain only.
TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const wide = Array.from(document.body.querySelectorAll("*")).filter((element) => {
    const box = element.getBoundingClientRect();
    return box.width > 0 && box.right > width + 1;
  });
  return wide
    .filter((element) => !wide.includes(element.parentElement))
    .map((element) => `${element.tagName}.${element.className}: ${element.textContent.trim().slice(0, 60)}`)
    .concat(`the page is ${document.documentElement.scrollWidth} wide in a window of ${width}`);
}"""


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a word about each."""

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder to this machine alone, and give its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    with served(SITE) as origin:
        yield origin


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    executable = os.environ.get("DATASET_RT_CHROMIUM") or shutil.which("chromium")
    assert executable, "no chromium found; install it, or name it by DATASET_RT_CHROMIUM"
    with sync_playwright() as playwright:
        # Chromium's own background requests find no host either.
        only_here = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        browser = playwright.chromium.launch(executable_path=executable, args=[only_here], timeout=PATIENCE)
        yield browser
        browser.close()


class Visit:
    """A page in a window of its own, and what went wrong there."""

    def __init__(self, browser: Browser, origin: str, *, scheme: str, width: int) -> None:
        context = browser.new_context(
            color_scheme="dark" if scheme == "dark" else "light",
            viewport={"width": width, "height": HEIGHT},
            is_mobile=width < 500,
            has_touch=width < 500,
        )
        context.set_default_timeout(PATIENCE)
        self.origin = origin
        self.faults: list[str] = []
        self.page: Page = context.new_page()
        context.route(lambda url: not url.startswith((origin, "data:", "blob:")), self._refuse)
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("requestfailed", self._fail)
        self.page.on("response", self._look)

    def _refuse(self, route: Route) -> None:
        self.faults.append(f"asks another host: {route.request.url}")
        route.abort()

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.faults.append(f"console {message.type}: {message.text}")

    def _fail(self, request: Request) -> None:
        if request.url.startswith(self.origin):
            self.faults.append(f"request failed: {request.url}: {request.failure}")

    def _look(self, response: Response) -> None:
        if response.status >= 300:
            self.faults.append(f"status {response.status}: {response.url}")

    def open(self, path: str) -> None:
        """Open a page, and look at it once it has come to rest."""
        self.page.goto(self.origin + path, wait_until="networkidle")
        self.page.evaluate("() => document.fonts.ready.then(() => null)")
        self.faults += [f"no picture: {source}" for source in self.page.evaluate(BROKEN_IMAGES)]
        self.faults += [f"too wide: {what}" for what in self.page.evaluate(TOO_WIDE)]

    def close(self) -> None:
        """Close the window."""
        self.page.context.close()


def faults_of(browser: Browser, origin: str, path: str, *, scheme: str = "light", width: int = 390) -> list[str]:
    """Open a page in a window of its own and give what went wrong."""
    visit = Visit(browser, origin, scheme=scheme, width=width)
    try:
        visit.open(path)
    finally:
        visit.close()
    return visit.faults


def test_the_site_is_built() -> None:
    assert len(PAGES) >= 30, f"build the site first, by `mkdocs build`; {SITE} has {len(PAGES)} pages"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_opens_without_a_fault(browser: Browser, site: str, path: str, scheme: str, width: str) -> None:
    visit = Visit(browser, site, scheme=scheme, width=WIDTHS[width])
    try:
        visit.open(path)
        assert visit.faults == []
        shown = visit.page.evaluate("() => document.body.dataset.mdColorScheme")
        assert shown == {"light": "default", "dark": "slate"}[scheme]
    finally:
        visit.close()


def test_the_search_finds_a_function(browser: Browser, site: str) -> None:
    visit = Visit(browser, site, scheme="light", width=WIDTHS["desktop"])
    try:
        visit.open("index.html")
        visit.page.locator("input.md-search__input").click()
        visit.page.keyboard.type("update_metadata")
        visit.page.locator(".md-search-result__link", has_text="Filter and rebalance").first.wait_for()
        assert visit.faults == []
    finally:
        visit.close()


def test_the_colour_scheme_can_be_chosen_and_stays_on_the_next_page(browser: Browser, site: str) -> None:
    visit = Visit(browser, site, scheme="light", width=WIDTHS["desktop"])
    try:
        visit.open("index.html")
        shown = "() => document.body.dataset.mdColorScheme"
        for _ in range(3):
            if visit.page.evaluate(shown) == "slate":
                break
            visit.page.locator("form[data-md-component=palette] label:not([hidden])").click()
        visit.open(PAGES[-1])
        assert visit.page.evaluate(shown) == "slate"
        assert visit.faults == []
    finally:
        visit.close()


def test_a_phone_reaches_a_guide_by_the_menu(browser: Browser, site: str) -> None:
    visit = Visit(browser, site, scheme="light", width=WIDTHS["phone"])
    try:
        visit.open("index.html")
        visit.page.locator("header label[for=__drawer]").click()
        visit.page.locator("nav.md-nav--primary label", has_text="Guides").first.click()
        visit.page.locator("nav.md-nav--primary a", has_text="Many ranks").click()
        visit.page.wait_for_url("**/many-ranks**")
        assert visit.faults == []
    finally:
        visit.close()


FAULTS = {
    "<script>console.error('no')</script>": "console error: no",
    "<script>console.warn('well')</script>": "console warning: well",
    "<script>throw new Error('thrown')</script>": "error: thrown",
    "<img src='gone.png'>": "no picture: gone.png",
    "<img src='gone.png' loading='lazy' style='margin-top: 9000px'>": "no picture: gone.png",
    "<script src='gone.js'></script>": "status 404: ",
    "<link rel=stylesheet href='https://fonts.example.com/css'>": "asks another host: https://fonts.example.com/css",
    "<script>fetch('https://example.com/').catch(() => {})</script>": "asks another host: https://example.com/",
    "<table><tr><td style='min-width: 500px'>wide</td></tr></table>": "too wide: TABLE.: wide",
}


@pytest.mark.parametrize("body", FAULTS)
def test_a_fault_of_a_page_is_found(browser: Browser, tmp_path: Path, body: str) -> None:
    whole = "<!doctype html><meta name=viewport content='width=device-width'><link rel=icon href='data:,'><h1>Page</h1>"
    (tmp_path / "fine.html").write_text(whole)
    (tmp_path / "broken.html").write_text(whole + body)
    with served(tmp_path) as origin:
        assert faults_of(browser, origin, "fine.html") == []
        found = faults_of(browser, origin, "broken.html")
        assert any(fault.startswith(FAULTS[body]) for fault in found), found


def test_a_page_that_is_not_there_is_a_fault(browser: Browser, site: str) -> None:
    assert any(fault.startswith("status 404: ") for fault in faults_of(browser, site, "gone.html"))
