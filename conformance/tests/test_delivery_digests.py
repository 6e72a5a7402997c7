"""Digests of deliveries are what the page says, pinned, and the same through the core's own loop."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import blake3
import pytest

import dataset_rt as drt
from dataset_rt.testing import find_driver, replay
from oracle import MODES, ORDERED, PERMUTATION, Stream

TESTDATA = Path(__file__).parents[2] / "testdata"
CACHE = TESTDATA / "format" / "v1" / "golden_none_v1"
CASES = json.loads((TESTDATA / "order" / "delivery_digests_v1.json").read_text())


def opener(case):
    reader = drt.ReaderConfig(
        seed=case["seed"], shuffle=case["mode"] != ORDERED, replacement=case["mode"] != PERMUTATION
    )

    def opened():
        dataset = drt.DatasetRuntime(num_workers=1).cached_dataset(CACHE, reader_config=reader)
        dataset.set_epoch_len(case["epoch_len"])
        return dataset

    return opened


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['mode']}, seed {case['seed']}, {case['epoch_len']}")
def test_a_replay_through_the_core_is_the_pinned_line(case):
    digest = replay(opener(case), find_driver("core"), batch_size=4, epochs=case["epochs"])
    assert str(digest) == case["line"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['mode']}, seed {case['seed']}, {case['epoch_len']}")
def test_the_pinned_line_follows_from_the_oracles_order_and_the_golden_payloads(case):
    samples = list(
        drt.DatasetRuntime(num_workers=1).cached_dataset(CACHE, reader_config=drt.ReaderConfig(shuffle=False))
    )
    stream = Stream(case["mode"], case["seed"], [1.0] * len(samples))
    drawn = [samples[stream.row(position)] for position in range(case["epoch_len"] * case["epochs"])]
    order, payloads = blake3.blake3(), blake3.blake3()
    for sample in drawn:
        order.update(sample.cache_id.to_bytes(8, "little") + sample.sample_id.to_bytes(8, "little"))
        payloads.update(len(sample.data).to_bytes(8, "little") + sample.data)
    fields = dict(field.split("=") for field in case["line"].split())
    assert (fields["order"], fields["payloads"]) == (order.hexdigest(), payloads.hexdigest())
    assert fields["draws"] == str(len(drawn))


def test_every_mode_is_pinned():
    assert {case["mode"] for case in CASES} == set(MODES)
    assert len({case["line"] for case in CASES}) == len(CASES)
    assert {field.name for field in dataclasses.fields(replay(opener(CASES[0]), find_driver("core")))} == {
        field.split("=")[0] for field in CASES[0]["line"].split()
    }
