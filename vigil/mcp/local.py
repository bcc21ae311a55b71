"""Who has started a server, which asks nobody else who that is: by what was typed, or by a login.

A stack may want people to sign in before they order something, from one moment to the next. So each
call that acts looks whether it does.
"""

from __future__ import annotations

import msgspec

from engine.people.identity import Identity, Role
from vigil import logins
from vigil.client.client import Client
from vigil.settings import Config


class LocalCaller:
    """Who has started the server."""

    def __init__(
        self, client: Client, config: Config, identity: Identity, *, typed: str | None
    ) -> None:
        """Begin with who says so; `typed` is what was given as `--by`."""
        self.identity = identity
        self._client, self._config, self._typed = client, config, typed
        self._started = identity

    async def before_acting(self) -> None:
        """Know who acts: whoever has signed in, if the stack wants people to.

        Raises:
            NotSignedIn: nobody has signed in here, or the login is over.
            Trouble: it takes another role.
            Mistake: what was typed is somebody else.
        """
        name, is_agent = self._started.name, self._started.is_agent
        async with self._client.connections.log(is_reading=True) as ports:
            is_required = await logins.is_login_required(ports)
        if is_required:  # guard: local-agent-acts-as-login
            who = await logins.login_for(
                self._config,
                Role.OPERATOR,
                identify=self._client.people.identify,
                typed=self._typed,
            )
            name, is_agent = who.name, is_agent or who.is_agent
        self.identity = msgspec.structs.replace(self._started, name=name, is_agent=is_agent)
