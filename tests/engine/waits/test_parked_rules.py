"""What a parked episode keeps of the code that was tried."""

from __future__ import annotations

from engine.episodes.episode import Episode
from engine.waits.parked import CODES_MAX, block
from streams.model.events import BlockReason, EpisodeBlocked, Parked
from streams.model.waits import OnExpiry, Wait
from tests.engine.stage import CLOCK

CODES = tuple(f"code-{number}" for number in range(CODES_MAX))


def test_the_code_that_was_tried_first_is_forgotten_if_too_much_was_tried():
    before = EpisodeBlocked(
        step_no=1,
        reason=BlockReason.NONDETERMINISTIC_REPLAY,
        fingerprint="",
        wait=Wait(ref="", expires_at=CLOCK.now(), on_expiry=OnExpiry.FAIL),
        parked=Parked(number=1, how="", codes=CODES),
    )
    again = block(Episode(parked=before), "", code="newest", at=CLOCK.now(), park_s=1.0)
    assert again.parked.codes == (*CODES[1:], "newest")
