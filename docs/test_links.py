"""Every link of the built site and of the repository's Markdown files leads somewhere; the site needs no network.

mkdocs itself, with `strict` and the `validation` settings, checks what the Markdown of docs/ links to. Here the HTML
that came out is checked as it lies in `site/`: links of generated pages, anchors that an extension made, what pages,
style sheets and the search refer to. Beside it stand the Markdown files that people read in the repository or on a
package's page. Links to other hosts are looked at, never followed.
"""

import json
import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import markdown
import pytest
from pymdownx.slugs import slugify

ROOT = Path(__file__).parent.parent
SITE = ROOT / "site"
SOURCES = sorted((ROOT / "docs").rglob("*.md"))

# What a browser loads by itself, by element; anything else is followed by a click.
LOADED = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
FOLLOWED = {"a": ("href",), "area": ("href",), "form": ("action",)}


class Document(HTMLParser):
    """What a piece of HTML refers to, and the anchors that it has."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.anchors: list[str] = []
        self.loads: list[str] = []
        self.links: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take down the element's id and its references."""
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.anchors.append(values["id"])
        if tag == "a" and values.get("name", values.get("id")) != values.get("id"):
            self.anchors.append(values["name"])
        for name in LOADED.get(tag, ()):
            if name in values:
                parts = values[name].split(",") if name == "srcset" else [values[name]]
                self.loads += [part.split()[0] if name == "srcset" else part for part in parts]
        self.links += [values[name] for name in FOLLOWED.get(tag, ()) if name in values]


def outside(reference: str) -> bool:
    """Whether a reference names a scheme or a host."""
    parts = urlsplit(reference)
    return bool(parts.scheme or parts.netloc)


def fault_of_form(reference: str) -> str | None:
    """What is wrong with a link to another host, as far as it can be seen without asking that host."""
    parts = urlsplit(reference)
    if parts.scheme == "mailto":
        return None if re.fullmatch(r"[^@\s]+@[^@\s]+\.\w+", parts.path) else "is no address"
    if parts.scheme != "https":
        return "does not begin with https:"
    if not re.fullmatch(r"([\w-]+\.)+[a-z]{2,}", parts.netloc) or re.search(r"\s", reference):
        return "is no address of a page"
    return None


def fault_of_target(reference: str, page: Path, root: Path, anchors: dict[Path, list[str]]) -> str | None:
    """What is wrong with a reference to a file below `root`, or to an anchor of one whose anchors are known."""
    parts = urlsplit(reference)
    path = unquote(parts.path)
    target = root / path.lstrip("/") if path.startswith("/") else page.parent / path if path else page
    target = Path(os.path.normpath(target))
    if not target.is_relative_to(root):
        return "leads out of it"
    if target.is_dir() and page.suffix == ".html":
        target /= "index.html"
    if not target.exists():
        return "leads to nothing"
    if parts.fragment and target in anchors and unquote(parts.fragment) not in anchors[target]:
        return f"leads to an anchor that {target.relative_to(root)} does not have"
    return None


def faults_of_site(site: Path) -> Iterator[str]:
    """Give a line for everything in a built site that leads to nothing or needs another host."""
    documents = {page: Document(page.read_text()) for page in sorted(site.rglob("*.html"))}
    anchors = {page: document.anchors for page, document in documents.items()}
    for page, document in documents.items():
        name = page.relative_to(site)
        for anchor in sorted({anchor for anchor in document.anchors if document.anchors.count(anchor) > 1}):
            yield f"{name}: the anchor #{anchor} is there more than once"
        for reference in document.loads:
            fault = "is loaded from elsewhere" if outside(reference) else None
            fault = fault or fault_of_target(reference, page, site, anchors)
            if fault and not reference.startswith("data:"):
                yield f"{name}: {reference} {fault}"
        for reference in document.links:
            fault = fault_of_form(reference) if outside(reference) else fault_of_target(reference, page, site, anchors)
            if fault:
                yield f"{name}: {reference} {fault}"
    for sheet in sorted(site.rglob("*.css")):
        for reference in re.findall(r"url\(\s*[\"']?([^)\"']+)", sheet.read_text()):
            fault = "is loaded from elsewhere" if outside(reference) else fault_of_target(reference, sheet, site, {})
            if fault and not reference.startswith("data:"):
                yield f"{sheet.relative_to(site)}: {reference} {fault}"
    index = site / "search" / "search_index.json"
    for entry in json.loads(index.read_text())["docs"] if index.exists() else ():
        fault = fault_of_target(entry["location"], site / "index.html", site, anchors)
        if fault:
            yield f"search: {entry['location']} {fault}"


def repository_pages(root: Path) -> Iterator[Path]:
    """Find the Markdown files of a checkout, without what tools have put there."""
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if not name.startswith(".") and name not in {"target", "site", "dist"})
        yield from sorted(Path(folder, file) for file in files if file.endswith(".md"))


def faults_of_markdown(root: Path) -> Iterator[str]:
    """Give a line for each link in the Markdown files below `root` that leads to nothing where they are read."""
    documents = {}
    for page in repository_pages(root):
        extensions = ["fenced_code", "tables", "toc"]
        settings = {"toc": {"slugify": slugify(case="lower")}}
        html = markdown.markdown(page.read_text(), extensions=extensions, extension_configs=settings)
        documents[page] = Document(html)
    # What `:::` puts onto a page has its anchors in the site alone.
    anchors = {
        page: document.anchors
        for page, document in documents.items()
        if not re.search(r"^::: ", page.read_text(), re.MULTILINE)
    }
    for page, document in documents.items():
        name = page.relative_to(root)
        # A package's README is shown by the package index, which has none of the files beside it.
        alone = name.parts[0] == "packages"
        for reference in document.loads + document.links:
            if outside(reference):
                fault = fault_of_form(reference)
            elif alone and not reference.startswith("#"):
                fault = "leads to nothing on the package's own page"
            else:
                fault = fault_of_target(reference, page, root, anchors)
            if fault:
                yield f"{name}: {reference} {fault}"


def test_every_page_is_in_the_built_site() -> None:
    assert len(SOURCES) >= 30
    for source in SOURCES:
        page = source.relative_to(ROOT / "docs").with_suffix(".html")
        assert (SITE / page).exists() or (SITE / page.with_suffix("") / "index.html").exists(), f"{source} is not built"


def test_every_link_anchor_and_asset_of_the_built_site_leads_somewhere() -> None:
    assert list(faults_of_site(SITE)) == []


def test_every_link_of_the_repositorys_markdown_files_leads_somewhere() -> None:
    assert {"README.md", "CONTRIBUTING.md"} <= {page.name for page in repository_pages(ROOT)}
    assert list(faults_of_markdown(ROOT)) == []


def test_every_page_has_a_title_and_a_description_of_its_own() -> None:
    pages = [page for page in SITE.rglob("*.html") if page.name != "404.html"]
    for pattern in (r"<title>(.+?)</title>", r'<meta name="description" content="([^"]{20,200})">'):
        found = {page: re.findall(pattern, page.read_text(), re.DOTALL) for page in pages}
        assert [page for page, texts in found.items() if len(texts) != 1] == []
        texts = [texts[0] for texts in found.values()]
        assert sorted({text for text in texts if texts.count(text) > 1}) == []


def test_what_a_function_gives_is_described_and_not_taken_for_a_type() -> None:
    # Google's style reads what stands before a colon as the type.
    types = []
    for page in sorted((SITE / "reference").rglob("*.html")):
        for given in re.findall(r"(?:Returns|Yields):</span>(.*?)</ul>", page.read_text(), re.DOTALL):
            text = " ".join(re.sub(r"<[^>]+>", "", given).split())
            types.append(text.partition(" \N{EN DASH} ")[0])
    assert len(types) >= 20
    assert [given for given in types if re.search(r"[\w`] [\w`]", given)] == []


# Each is the body of a page index.html beside other.html, which has the anchor `there`, and the file fine.png.
BROKEN = {
    '<a href="gone.html">x</a>': "index.html: gone.html leads to nothing",
    '<a href="other.html#gone">x</a>': "index.html: other.html#gone leads to an anchor that other.html does not have",
    '<a href="#gone">x</a>': "index.html: #gone leads to an anchor that index.html does not have",
    '<a href="../secret.html">x</a>': "index.html: ../secret.html leads out of it",
    '<a href="http://example.com/">x</a>': "index.html: http://example.com/ does not begin with https:",
    '<a href="https://example">x</a>': "index.html: https://example is no address of a page",
    '<a href="mailto:nobody">x</a>': "index.html: mailto:nobody is no address",
    '<img src="gone.png">': "index.html: gone.png leads to nothing",
    '<img src="fine.png" srcset="fine.png 1x, gone.png 2x">': "index.html: gone.png leads to nothing",
    '<script src="https://example.com/a.js"></script>': (
        "index.html: https://example.com/a.js is loaded from elsewhere"
    ),
    '<link rel="stylesheet" href="//example.com/a.css">': "index.html: //example.com/a.css is loaded from elsewhere",
    '<p id="twice"></p><p id="twice"></p>': "index.html: the anchor #twice is there more than once",
}


@pytest.mark.parametrize("body", BROKEN)
def test_a_dead_link_in_a_built_page_is_found(body: str, tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text('<h1 id="there">There</h1>')
    (tmp_path / "fine.png").write_bytes(b"")
    fine = (
        '<a href="other.html#there">x</a><a href="https://example.com/a">x</a><img src="fine.png"><a href="#a" id="a">'
    )
    page = tmp_path / "index.html"
    page.write_text(fine)
    assert list(faults_of_site(tmp_path)) == []
    page.write_text(fine + body)
    assert list(faults_of_site(tmp_path)) == [BROKEN[body]]


def test_a_dead_reference_in_a_style_sheet_and_in_the_search_is_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<h1 id="there">There</h1>')
    (tmp_path / "a.css").write_text("a { background: url(gone.svg) } b { background: url('data:image/svg+xml,x') }")
    (tmp_path / "search").mkdir()
    entries = {"docs": [{"location": "index.html#there"}, {"location": "gone.html#there"}]}
    (tmp_path / "search" / "search_index.json").write_text(json.dumps(entries))
    found = ["a.css: gone.svg leads to nothing", "search: gone.html#there leads to nothing"]
    assert list(faults_of_site(tmp_path)) == found


@pytest.mark.parametrize(
    ("link", "found"),
    [
        ("docs/other.md#a-heading", None),
        ("docs", None),
        ("https://example.com/page#anchor", None),
        ("docs/gone.md", "README.md: docs/gone.md leads to nothing"),
        ("docs/other.md#gone", "README.md: docs/other.md#gone leads to an anchor that docs/other.md does not have"),
        ("http://example.com", "README.md: http://example.com does not begin with https:"),
    ],
)
def test_a_dead_link_in_a_markdown_file_is_found(link: str, found: str | None, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "other.md").write_text("# A heading\n\n```text\n[no link](in-code.md)\n```\n")
    (tmp_path / "README.md").write_text(f"[fine](docs/other.md) and [link]({link})\n")
    assert list(faults_of_markdown(tmp_path)) == ([found] if found else [])


def test_a_packages_page_links_to_no_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "packages" / "one").mkdir(parents=True)
    (tmp_path / "packages" / "one" / "README.md").write_text("# One\n\n[here](#one) and [there](../../README.md)\n")
    (tmp_path / "README.md").write_text("# All\n")
    found = ["packages/one/README.md: ../../README.md leads to nothing on the package's own page"]
    assert list(faults_of_markdown(tmp_path)) == found
