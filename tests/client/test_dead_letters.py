"""Dead letters of a client: which of them a key names."""

from __future__ import annotations

import pytest

from tests.projections import lives
from tests.projections.lives import write_events
from vigil.errors import Mistake

ONE, OTHER = (lives.episode_id(number) for number in (7, 8))


async def put_letters(pool, stack, *causes):
    """Write letters of these episodes, or of messages of a stream that is called `episode`."""
    for cause in causes:
        await write_events(
            pool, lives.lettered(), stack=stack, subject=stack.dead("episode", cause)
        )


@pytest.mark.parametrize("key", ["episode.7", "episode.71"])
async def test_a_whole_key_names_its_letter_even_if_others_begin_so(pool, client, key):
    await put_letters(pool, client.stack, "7", "71")
    assert await client.dead_letters.find(key) == key


async def test_a_beginning_that_is_no_whole_key_of_several_is_refused(pool, client):
    await put_letters(pool, client.stack, ONE, OTHER)
    with pytest.raises(Mistake, match="begins the keys of several dead letters: "):
        await client.dead_letters.find("episode.0")


async def test_a_beginning_of_one_names_it(pool, client):
    await put_letters(pool, client.stack, "7", ONE)
    assert await client.dead_letters.find(f"episode.{ONE[:9]}") == f"episode.{ONE}"
