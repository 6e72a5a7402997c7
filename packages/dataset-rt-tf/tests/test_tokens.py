"""A pipeline knows the tokens of its own passes, however many and whatever is seeded meanwhile."""

import pytest
import tensorflow as tf

from dataset_rt_tf.tokens import Tokens, token_number


@pytest.fixture(autouse=True)
def global_seed():
    yield
    tf.random.set_seed(0)


def passes(tokens, count):
    return [
        token_number(token) for token in tokens.passes(lambda token: token).repeat().take(count).as_numpy_iterator()
    ]


@pytest.mark.parametrize("seed", [None, 0, 3])
def test_a_token_of_its_own_is_known_once(seed):
    if seed is not None:
        tf.random.set_seed(seed)
    tokens = Tokens()
    taken = passes(tokens, 700)
    assert len(set(taken)) == 700
    # As Keras does after the pipeline was made.
    tf.random.set_seed(4)
    for token in taken:
        assert tokens.is_own(token)
        assert not tokens.is_own(token)
    assert tokens.taken >= 700


def test_tokens_are_expected_once_more_after_a_rewind():
    tokens = Tokens()
    taken = passes(tokens, 300)
    assert all(tokens.is_own(token) for token in taken)
    tf.random.set_seed(5)
    tokens.rewind(tokens.taken)
    assert all(tokens.is_own(token) for token in taken)


def test_a_token_of_another_pipeline_is_foreign():
    assert not any(Tokens().is_own(token) for token in passes(Tokens(), 3))
