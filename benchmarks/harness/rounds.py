"""Interleaved rounds: every contender is asked once a round, so that a slow spell of the machine meets all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from harness.worker import WorkerError


@dataclass
class Outcome:
    """What the rounds gave.

    Attributes:
        figures: for each contender one figure a round, in the order of the rounds.
        failed: for each contender that failed the reason; it has no figures.
    """

    figures: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def interleave(contenders: Mapping[str, Callable[[], float]], *, rounds: int) -> Outcome:
    """Ask every contender once a round; each round begins with the next one, so that nobody always follows the same.

    Args:
        contenders: name and measurement, which gives one figure.
        rounds: how often, at least 1.

    Raises:
        ValueError: no round is asked for.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    outcome = Outcome({name: [] for name in contenders})
    names = list(contenders)
    for turn in range(rounds):
        begin = turn % max(len(names), 1)
        for name in names[begin:] + names[:begin]:
            if name in outcome.failed:
                continue
            try:
                outcome.figures[name].append(contenders[name]())
            except WorkerError as error:
                outcome.failed[name] = str(error)
                del outcome.figures[name]
    return outcome
