"""Markdown: tables of figures and of ratios, and the sections of the README that a run replaces."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from harness.paths import README
from harness.ratios import ratio
from harness.results import Result, Row

NOTHING = "-"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a table; the first column is text, the others stand to the right.

    Raises:
        ValueError: a row has more or fewer cells than the header.
    """
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"a row must have {len(header)} cells as the header has, got {len(row)}: {row}")
    rule = ["---", *("---:" for _ in header[1:])]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (header, rule, *rows))


def amount(value: float) -> str:
    """Show a figure with three digits and a suffix: 1,230k, 12.3M, 4.56."""
    if value >= 1e10:
        return f"{value / 1e9:.3g}G"
    if value >= 1e7:
        return f"{value / 1e6:,.3g}M" if value < 1e9 else f"{value / 1e6:,.0f}M"
    thousands = value / 1000
    if thousands >= 100:
        return f"{thousands:,.0f}k"
    if thousands >= 1:
        return f"{thousands:.3g}k" if thousands < 10 else f"{thousands:.1f}k"
    return f"{value:.3g}"


def contenders_of(result: Result) -> list[str]:
    """List the contenders in the order of their first row, those that failed everywhere last."""
    names: dict[str, None] = {}
    for row in result.rows:
        names.update(dict.fromkeys(row.figures))
    for row in result.rows:
        names.update(dict.fromkeys(row.failed))
    return list(names)


def column(row: Row) -> str:
    """Name a row of results where it is a column of the table."""
    return f"{row.subject} {row.operation}".strip()


def figures_table(result: Result) -> str:
    """Give the medians, a line for each contender and a column for each measurement."""
    lines = []
    for name in contenders_of(result):
        cells = [
            amount(statistics.median(row.figures[name])) if name in row.figures else NOTHING for row in result.rows
        ]
        lines.append([with_version(result, name), *cells])
    return markdown(["", *(column(row) for row in result.rows)], lines)


def ratios_table(result: Result, *, reference: str) -> str:
    """Give how many times as much `reference` does as each other contender: median and range over the rounds.

    Args:
        result: the figures.
        reference: the contender above the line; its further ways, named `REFERENCE, WAY`, are not compared with it.
    """
    lines = []
    for name in contenders_of(result):
        if name == reference or name.startswith(f"{reference},"):
            continue
        cells = [
            str(ratio(row.figures[reference], row.figures[name]))
            if name in row.figures and reference in row.figures
            else NOTHING
            for row in result.rows
        ]
        if set(cells) != {NOTHING}:
            lines.append([f"{reference} / {name}", *cells])
    return markdown(["", *(column(row) for row in result.rows)], lines)


def with_version(result: Result, name: str) -> str:
    """Name a contender with its version, where it has one; `NAME, WAY` becomes `NAME VERSION, WAY`."""
    if name not in result.versions:
        return name
    store, comma, way = name.partition(",")
    return f"{store} {result.versions[name]}{comma}{way}"


def troubles(result: Result) -> str:
    """List what did not install and what failed, a sentence each; empty if nothing did."""
    lines = [f"- {name} did not install: `{one_line(reason)}`\n" for name, reason in result.absent.items()]
    for row in result.rows:
        for name, reason in row.failed.items():
            lines.append(f"- {name} failed at {column(row)}: `{one_line(reason)}`\n")
    return "".join(lines)


def one_line(reason: str) -> str:
    """Keep the end of a reason, where the exception's own line is."""
    return " ".join(reason.split()).replace("`", "'").replace("|", "/")[-200:]


def replace_section(text: str, name: str, body: str) -> str:
    """Replace what stands between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`.

    Raises:
        ValueError: the markers are not there, or not once.
    """
    begin, end = f"<!-- bench:{name} -->\n", f"<!-- /bench:{name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the text must hold {begin.strip()} and {end} once each; add them where the tables belong")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{body.strip()}\n\n{end}{after}"


def update_section(name: str, body: str, path: Path = README) -> None:
    """Replace a section of the README; see `replace_section`."""
    path.write_text(replace_section(path.read_text(), name, body))
