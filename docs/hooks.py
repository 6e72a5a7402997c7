"""Hooks of mkdocs: what the pages of the site have beyond their Markdown."""

import re
from html import escape, unescape

from mkdocs.structure.pages import Page

# What search engines show of a description.
LONGEST_DESCRIPTION = 160


def shortened(text: str) -> str:
    """Give as many of the first sentences as fit, or what fits of the first one, cut between two words."""
    kept = ""
    for sentence in re.split(r"(?<=[.?!])\s+", text):
        if len(kept) + len(sentence) >= LONGEST_DESCRIPTION:
            break
        kept = f"{kept} {sentence}".lstrip()
    return kept or f"{text[: LONGEST_DESCRIPTION - 1].rsplit(' ', 1)[0]}…"


def describe(html: str, page: Page) -> None:
    """Take a page's description, for search engines and link previews, from its first paragraph.

    So it is written once, and stands in no header that the repository's own view of the Markdown would show.
    """
    paragraph = re.search(r"<p>(.*?)</p>", html, re.DOTALL)
    if paragraph:
        text = " ".join(unescape(re.sub(r"<[^>]+>", "", paragraph[1])).split())
        page.meta.setdefault("description", escape(shortened(text)))


def break_names(html: str) -> str:
    """Let names as long as a test's go on in the next line behind an underscore, dot or colons; keep options whole."""

    def broken(name: re.Match[str]) -> str:
        return re.sub(r"(?<=\w\w)(_|\.|::)(?=\w\w)", r"\1<wbr>", name[0])

    def arranged(code: re.Match[str]) -> str:
        text = re.sub(r"[\w.:]{33,}", broken, code[0])
        return re.sub(r"(?<![\w-])--?[a-z][a-z-]*", r'<span class="option">\g<0></span>', text)

    # Blocks of code are not meant: in those, each line has elements of its own.
    return re.sub(r"<code>[^<]+</code>", arranged, html)


def on_page_content(html: str, *, page: Page, **_: object) -> str:
    """Finish the HTML that came out of a page's Markdown."""
    describe(html, page)
    return break_names(html)
