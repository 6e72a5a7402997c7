"""The page on the one order shows what a run shows now."""

import re

import one_order
from drivers import LOADERS, driver_of


def test_the_table_of_the_page_is_that_of_a_fresh_run_and_says_one_thing():
    for name in LOADERS:
        driver_of(name)
    page = one_order.PAGE.read_text()
    assert one_order.written(page, one_order.table()) == page
    rows = [line for line in page.partition(one_order.BEGIN)[2].splitlines() if "…`" in line]
    assert len(rows) == 1 + sum(map(len, one_order.RUNS.values()))
    assert len({tuple(re.findall(r"`(\w+)…`", row)) for row in rows}) == 1
