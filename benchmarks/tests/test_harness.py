"""The harness's own arithmetic, and its workers and environments with real processes; nothing here is timed."""

import shutil
import sys
from pathlib import Path

import pytest
import run

import bounds
from harness.environments import Environment, EnvironmentMissing
from harness.limit import build_limit, limit_rate
from harness.paths import README
from harness.payloads import RandomPayloads, pack, payloads_of, shuffled_order
from harness.ratios import ratio
from harness.results import Result, Row, load_result
from harness.rounds import interleave
from harness.table import amount, figures_table, markdown, ratios_table, replace_section, troubles, update_section
from harness.worker import Worker, WorkerError
from parts.stores import opened, row_of_reads, rows_of_writes
from peers.registry import LMDB, OURS, RAW, Contender, ours, raw, started

PYTHON = Path(sys.executable)


def worker() -> Worker:
    return Worker(PYTHON, "tests.counter:Counter", {"start": 40})


def result(**figures: list[float]) -> Result:
    row = Row("1 KiB", "shuffled", "samples/s", figures)
    return Result("example", "a machine", {"ours": "1.0.0"}, rounds=3, scale=1.0, rows=[row])


def test_a_ratio_is_the_median_of_the_quotients_of_each_round_with_their_range():
    found = ratio([10.0, 30.0, 80.0], [10.0, 10.0, 20.0])
    assert (found.median, found.low, found.high) == (3.0, 1.0, 4.0)
    assert str(found) == "3.00 (1.00 to 4.00)"


def test_a_ratio_of_different_numbers_of_rounds_is_refused():
    with pytest.raises(ValueError):
        ratio([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="at least one round"):
        ratio([], [])


def test_every_contender_is_asked_once_a_round_and_another_one_begins_each():
    asked: list[str] = []

    def asking(name: str) -> float:
        asked.append(name)
        return float(len(asked))

    outcome = interleave({name: lambda name=name: asking(name) for name in "abc"}, rounds=3)
    assert "".join(asked) == "abcbcacab"
    assert outcome.figures == {"a": [1.0, 6.0, 8.0], "b": [2.0, 4.0, 9.0], "c": [3.0, 5.0, 7.0]}


def test_a_contender_that_fails_in_a_later_round_is_reported_and_the_others_go_on():
    turns = iter(range(10))

    def failing() -> float:
        if next(turns) == 1:
            raise WorkerError("it broke")
        return 1.0

    outcome = interleave({"broken": failing, "sound": lambda: 2.0}, rounds=3)
    assert outcome.figures == {"sound": [2.0, 2.0, 2.0]}
    assert outcome.failed == {"broken": "it broke"}


def test_no_rounds_are_refused():
    with pytest.raises(ValueError, match="rounds must be at least 1, got 0"):
        interleave({}, rounds=0)


def test_a_worker_answers_with_value_and_time_though_its_libraries_print():
    with worker() as running:
        assert running.call("add", more=1).value == 41
        assert running.call("add", more=1).value == 42
        slept = running.call("sleep", seconds=0.2)
    assert slept.seconds >= 0.2
    assert slept.rate == slept.value / slept.seconds


def test_an_exception_in_a_worker_is_an_error_with_its_text_and_the_worker_lives_on():
    with worker() as running:
        with pytest.raises(WorkerError, match="RuntimeError: this contender cannot do that"):
            running.call("fail")
        assert running.call("add", more=2).value == 42


def test_a_worker_that_ends_is_an_error_with_its_code_and_last_words():
    with worker() as running, pytest.raises(WorkerError, match="ended with code 3: .*last words"):
        running.call("leave")


def test_a_worker_that_hangs_is_given_up():
    with worker() as running:
        running.patience = 0.5
        with pytest.raises(WorkerError, match="no answer within 0 s|no answer within 1 s"):
            running.call("sleep", seconds=600)


def test_a_contender_that_cannot_be_imported_is_an_error_at_once():
    with pytest.raises(WorkerError, match="No module named 'tests.nothing'"):
        Worker(PYTHON, "tests.nothing:Nobody", {})


def test_an_environment_that_does_not_install_gives_the_reason_and_leaves_no_stamp(tmp_path):
    nowhere = Environment("nowhere", (str(tmp_path / "absent-1.0-py3-none-any.tar.gz"),))
    with pytest.raises(EnvironmentMissing, match=r"absent-1\.0"):
        nowhere.make(tmp_path)
    assert not (tmp_path / "nowhere" / "made-of.json").exists()


def test_an_environment_is_reused_until_its_requirements_change(tmp_path):
    python = Environment("empty", ()).make(tmp_path)
    marker = python.parent / "marker"
    marker.touch()
    assert Environment("empty", ()).make(tmp_path) == python
    assert marker.exists()
    with pytest.raises(EnvironmentMissing):
        Environment("empty", (str(tmp_path / "absent.tar.gz"),)).make(tmp_path)
    assert not marker.exists()


def test_payloads_are_the_same_wherever_their_description_is_read(tmp_path):
    random = RandomPayloads(64, 10)
    assert list(payloads_of(random.described())) == list(random)
    assert len(set(random)) == 10
    packed = pack([b"a", b"", b"bcd"], tmp_path / "packed")
    assert list(payloads_of(packed.described())) == [b"a", b"", b"bcd"]
    assert (packed.count, packed.total_bytes, packed.largest) == (3, 4, 3)


def test_the_shuffled_order_is_the_same_every_time_and_in_range():
    order = shuffled_order(7, 1000)
    assert order == shuffled_order(7, 1000)
    assert set(order) == set(range(7))


def test_results_come_back_from_their_file_with_four_digits(tmp_path):
    saved = result(ours=[123456.7, 2.0], lmdb=[1.0, 2.0])
    saved.absent["other"] = "no wheel"
    saved.save(tmp_path)
    loaded = load_result("example", tmp_path)
    assert loaded.figures("1 KiB", "shuffled", "ours") == [123500.0, 2.0]
    assert loaded.figures("1 KiB", "written", "ours") is None
    assert loaded.absent == {"other": "no wheel"}
    assert loaded.versions == {"ours": "1.0.0"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (25e9, "25G"),
        (1.5e9, "1,500M"),
        (23_456_000.0, "23.5M"),
        (1_234_567.0, "1,235k"),
        (123_456.0, "123k"),
        (12_345.0, "12.3k"),
        (4567.0, "4.57k"),
        (456.7, "457"),
        (1.5, "1.5"),
    ],
)
def test_amounts_have_three_digits(value, shown):
    assert amount(value) == shown


def test_tables_show_medians_ratios_and_a_dash_for_what_is_not_there():
    both = result(ours=[2000.0, 4000.0, 6000.0], lmdb=[1000.0, 1000.0, 1000.0])
    both.rows.append(Row("1 KiB", "write", "samples/s", {"ours": [5.0]}, {"lmdb": "Traceback\nOSError: full | `x`"}))
    assert figures_table(both).splitlines() == [
        "|  | 1 KiB shuffled | 1 KiB write |",
        "| --- | ---: | ---: |",
        "| ours 1.0.0 | 4k | 5 |",
        "| lmdb | 1k | - |",
    ]
    assert ratios_table(both, reference="ours").splitlines()[2:] == ["| ours / lmdb | 4.00 (2.00 to 6.00) | - |"]
    both.rows[0].figures["ours, another way"] = [1.0, 1.0, 1.0]
    both.versions["ours, another way"] = "1.0.0"
    assert "ours 1.0.0, another way" in figures_table(both)
    assert "another way" not in ratios_table(both, reference="ours")
    both.absent["lance"] = "no wheel for this Python"
    assert troubles(both).splitlines() == [
        "- lance did not install: `no wheel for this Python`",
        "- lmdb failed at 1 KiB write: `Traceback OSError: full / 'x'`",
    ]


def test_the_section_of_every_part_in_the_readme_is_what_its_stored_figures_give(tmp_path):
    copy = tmp_path / "README.md"
    shutil.copy(README, copy)
    run.render_readme(copy)
    assert copy.read_text() == README.read_text()


def test_every_bound_names_a_row_that_its_part_measures():
    stored = run.stored()
    assert set(stored) == set(run.PLANS)
    found = {bound.line(stored)[3] for bound in bounds.BOUNDS if stored[bound.part].rows}
    assert found
    assert "not measured" not in found


def test_bounds_that_are_missed_are_shown_as_missed():
    figures = {OURS: [4.0, 5.0, 3.0], LMDB: [1.0, 1.0, 1.0]}
    rows = [Row("1 KiB", "shuffled", "samples/s", figures), Row("1 KiB", "ordered", "samples/s", dict(figures))]
    rows[1].figures[LMDB] = [3.0, 3.0, 3.0]
    results = {"peers": Result("peers", "a machine", {}, rounds=3, scale=1.0, rows=rows)}
    shuffled, ordered, absent = (bound.line(results) for bound in bounds.BOUNDS[:3])
    assert shuffled[3:] == ["4.00 (3.00 to 5.00)", "kept"]
    assert ordered[3:] == ["1.33 (1.00 to 1.67)", "**missed**"]
    assert absent[3:] == ["not measured", ""]


def test_stores_are_written_read_and_compared_in_workers_of_their_own(tmp_path):
    payloads = RandomPayloads(100, 400)
    contenders = [ours(), raw(), Contender("nobody", "peers.nothing:Nobody")]
    with started(contenders, payloads.described(), tmp_path) as running:
        assert set(running.workers) == {OURS, RAW}
        assert "No module named 'peers.nothing'" in running.absent["nobody"]
        assert running.versions[OURS].startswith("1.")
        written = rows_of_writes("100 B", running.workers, rounds=2)
        assert {name: len(rates) for name, rates in written.figures.items()} == {OURS: 2, RAW: 2}
        wrong = dict.fromkeys(running.workers, sum(payloads.block[:400]))
        wrong[RAW] += 1
        failed = opened(running.workers, wrong)
        assert set(failed) == {RAW}
        assert "it read other payloads" in failed[RAW]
        row = row_of_reads("100 B", "shuffled", running.workers, rounds=3)
        assert len(row.figures[OURS]) == 3
        assert row.failed == {}
        assert running.workers[OURS].call("batches").value == 400
        assert running.workers[OURS].call("alone").value == 400


def test_the_loops_in_rust_give_rates_and_refuse_what_they_cannot_read(tmp_path):
    records = tmp_path / "records"
    records.write_bytes(bytes(100 * 64))
    program = build_limit()
    for way in ("copy", "pread"):
        for order in ("ordered", "shuffled"):
            assert limit_rate(program, way, order, records, 64) > 0
    with pytest.raises(WorkerError, match="the way must be copy or pread, got fly"):
        limit_rate(program, "fly", "ordered", records, 64)
    with pytest.raises(WorkerError, match="at least one record"):
        limit_rate(program, "copy", "ordered", records, 1 << 20)


def test_a_row_of_another_width_is_refused():
    with pytest.raises(ValueError, match="a row must have 2 cells as the header has, got 1"):
        markdown(["a", "b"], [["1"]])


def test_a_section_is_replaced_again_and_again_and_nothing_beside_it(tmp_path):
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- bench:a -->\nold\n<!-- /bench:a -->\nafter\n")
    for body in ("first\n", "second\n"):
        update_section("a", body, page)
    assert page.read_text() == "before\n<!-- bench:a -->\n\nsecond\n\n<!-- /bench:a -->\nafter\n"


def test_a_section_without_markers_is_refused():
    with pytest.raises(ValueError, match="<!-- bench:b -->"):
        replace_section("nothing", "b", "body")
