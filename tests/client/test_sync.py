"""The twin of the client for programs that do not wait."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest

from tests.client import synced
from vigil.client import SyncClient
from vigil.client.thread import LoopThread
from vigil.errors import Mistake, NotFound, Trouble


@pytest.fixture
def twin(nats, postgres, stack):
    """Ann's client of a stack of the test's own."""
    servers = {"nats_url": nats.url, "postgres_dsn": postgres.dsn}
    name = f"sync-{stack.name}"
    with SyncClient(**servers, stack=name, by="ann", create_stack=True) as client:
        yield client


def test_the_twin_is_made_of_the_client():
    written = synced.FILE.read_text()
    assert written == synced.text(), "write it anew: python -m tests.client.synced"


def test_calls_are_made_without_waiting_and_errors_are_the_same(twin):
    first = twin.publish("disk.measured", {"used": 1}, id="e1")
    again = twin.events.publish("disk.measured", {"used": 1}, id="e1")
    assert (first.is_new, again.is_new) == (True, False)
    assert twin.fire("monitor", "check_disk").obstacle == "no node that is up has it"
    with pytest.raises(NotFound, match="no finding 'disk' in stack"):
        twin.findings.clear("disk")
    with pytest.raises(Mistake, match="a name"):
        twin.findings.clear("disk", by=" ")


def test_what_is_awaited_one_by_one_is_iterated_over():
    async def count():
        for number in range(3):
            yield number

    thread = LoopThread()
    assert list(thread.iterate(count())) == [0, 1, 2]
    assert next(thread.iterate(count())) == 0
    thread.close()


def test_a_call_of_another_thread_ends_when_the_client_is_closed():
    thread, raised = LoopThread(), []

    def waits():
        try:
            thread.run(asyncio.sleep(600))
        except Trouble as error:
            raised.append(str(error))

    waiter = threading.Thread(target=waits)
    waiter.start()
    thread.run(asyncio.sleep(0))
    thread.close()
    waiter.join(10)
    assert raised == ["this client was closed before the call ended"]
    with pytest.raises(Mistake, match="this client is closed"):
        thread.run(asyncio.sleep(0))


def test_what_is_left_of_an_iteration_is_no_error_once_the_client_is_closed():
    async def count():
        for number in range(3):
            yield number

    thread = LoopThread()
    items = thread.iterate(count())
    assert next(items) == 0
    thread.close()
    items.close()


def test_a_call_from_the_thread_of_the_client_is_refused():
    thread = LoopThread()

    async def calls_itself():
        return thread.run(asyncio.sleep(0))

    with pytest.raises(Mistake, match="from its own thread"):
        thread.run(calls_itself())
    thread.close()


def test_a_client_does_not_outlive_a_fork(monkeypatch):
    thread = LoopThread()
    with monkeypatch.context() as forked:
        forked.setattr("vigil.client.thread.os.getpid", lambda: -1)
        with pytest.raises(Mistake, match="make another one"):
            thread.run(asyncio.sleep(0))
    thread.close()


def test_an_interrupted_call_has_ended_before_the_interruption_goes_on():
    thread, ended = LoopThread(), []

    async def waits():
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(True)

    begun = threading.Event()

    def interrupt():
        begun.wait()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    # What a shell starts in the background may ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            thread.run(waits())
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended == [True]
    thread.close()


async def test_it_works_where_a_loop_runs_already(twin):
    assert twin.publish("disk.measured", {}).is_new
    assert (await asyncio.to_thread(twin.publish, "disk.measured", {})).is_new


def test_the_thread_ends_with_the_client(nats, stack):
    with SyncClient(nats_url=nats.url, stack=f"sync-{stack.name}", create_stack=True) as client:
        client.publish("disk.measured", {})
        assert "vigil-client" in {each.name for each in threading.enumerate()}
    assert "vigil-client" not in {each.name for each in threading.enumerate()}
    client.close()


def test_events_are_followed_without_waiting(twin):
    twin.publish("disk.measured", {}, id="e1")
    twin.publish("disk.measured", {}, id="e2")
    assert [each.id for each in twin.events.tail(after=0, idle_s=0)] == ["e1", "e2"]
    for each in twin.events.tail(after=0):
        assert each.id == "e1"
        break
    assert twin.publish("disk.measured", {}, id="e3").is_new
