"""Publishes measurements of this machine as domain events, every few seconds.

A program of its own, in any language you like: it publishes JSON objects to `<stack>.event.<name>`,
with ids so that a repeat is dropped. It never shows arguments of processes, which may be secret.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import nats
import nats.errors
import nats.js.errors
import psutil
from nats.aio.client import Client
from nats.js import JetStreamContext

DISK_MEASURED: Final = "host.disk.measured"

DISKS_MAX: Final = 16

PROCESSES_SHOWN: Final = 5
CONNECT_S_MAX: Final = 10.0
PUBLISH_S_MAX: Final = 2.0
"""Longest wait for one acknowledgement; a measurement without one is dropped."""


class Measurement(NamedTuple):
    """A domain event, before it has an id."""

    name: str
    about: str
    """What was measured, such as a mount; makes the id unique within one round."""
    payload: dict[str, Any]


def disks() -> Iterator[Measurement]:
    """Yield how full each disk is; a disk mounted more than once counts once."""
    mounts: dict[str, str] = {"": "/"}
    for partition in psutil.disk_partitions():
        mounts.setdefault(partition.device, partition.mountpoint)
    if "/" in list(mounts.values())[1:]:
        del mounts[""]
    for device, mount in list(mounts.items())[:DISKS_MAX]:
        try:
            usage = psutil.disk_usage(mount)
        except OSError:  # Not every mount lets everyone look.
            continue
        payload = {
            "mount": mount,
            "device": device,
            "total_bytes": usage.total,
            "free_bytes": usage.free,
            "used_fraction": round(usage.percent / 100, 4),
        }
        yield Measurement(DISK_MEASURED, mount, payload)


def memory() -> Measurement:
    """Return how much memory programs use."""
    usage = psutil.virtual_memory()
    payload = {
        "total_bytes": usage.total,
        "available_bytes": usage.available,
        "used_fraction": round(usage.percent / 100, 4),
    }
    return Measurement("host.memory.measured", "memory", payload)


def load() -> Measurement:
    """Return how many programs want to run, and how many can."""
    cpus = psutil.cpu_count() or 1
    last_1m, last_5m, last_15m = psutil.getloadavg()
    payload = {
        "cpus": cpus,
        "load_1m": round(last_1m, 2),
        "load_5m": round(last_5m, 2),
        "load_15m": round(last_15m, 2),
        "load_per_cpu": round(last_1m / cpus, 4),
    }
    return Measurement("host.load.measured", "load", payload)


def processes() -> Measurement:
    """Return the processes that use most, by memory and by processor."""
    seen = [
        {
            "pid": process.info["pid"],
            "name": process.info["name"] or "",
            "memory_fraction": round((process.info["memory_percent"] or 0.0) / 100, 4),
            "cpu_fraction": round((process.info["cpu_percent"] or 0.0) / 100, 4),
        }
        for process in psutil.process_iter(["pid", "name", "memory_percent", "cpu_percent"])
    ]
    payload = {
        f"by_{what}": sorted(seen, key=lambda one: -one[f"{what}_fraction"])[:PROCESSES_SHOWN]
        for what in ("memory", "cpu")
    }
    return Measurement("host.processes.measured", "processes", {**payload, "running": len(seen)})


def measure() -> list[Measurement]:
    """Return one round of measurements."""
    return [*disks(), memory(), load(), processes()]


async def publish(stream: JetStreamContext, stack: str, measurement: Measurement) -> None:
    """Publish one measurement, and wait until it is stored; `nats.errors.Error`: it may not be."""
    host, at = platform.node(), datetime.now(UTC).isoformat()
    body = {"host": host, "measured_at": at, **measurement.payload}
    await stream.publish(
        f"{stack}.event.{measurement.name}",
        json.dumps(body).encode(),
        headers={"Nats-Msg-Id": f"{host}/{measurement.name}/{measurement.about}/{at}"},
        timeout=PUBLISH_S_MAX,
    )


async def publish_round(stream: JetStreamContext, stack: str) -> None:
    """Publish one round of measurements; print on stderr what could not be published."""
    for measurement in await asyncio.to_thread(measure):
        try:
            await publish(stream, stack, measurement)
        except nats.js.errors.NoStreamResponseError:
            print(f"no stream takes {stack}.event.>; is a node up?", file=sys.stderr)
        except nats.errors.Error as error:
            print(f"{measurement.name}: not published: {error!r}", file=sys.stderr)


async def run(url: str, stack: str, *, interval_s: float, rounds: int) -> None:
    """Publish rounds of measurements until told to stop, or `rounds` times if that is not 0.

    Raises `OSError` if there is no server within `CONNECT_S_MAX`.
    """
    client = await connect(url)
    stop = asyncio.Event()
    for signal_ in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signal_, stop.set)
    try:
        done = 0
        while not stop.is_set():
            await publish_round(client.jetstream(), stack)
            done += 1
            if done == rounds:
                break
            await wait_until(stop, seconds=interval_s)
    finally:
        await client.close()


async def connect(url: str) -> Client:
    """Return a connection that comes back by itself; `OSError`: none within `CONNECT_S_MAX`."""
    # Nothing is kept for later while the server is away: an old measurement helps nobody.
    lasting = nats.connect(url, max_reconnect_attempts=-1, pending_size=0, error_cb=say)
    try:
        return await asyncio.wait_for(lasting, CONNECT_S_MAX)
    except (TimeoutError, nats.errors.Error) as error:
        raise OSError(f"no NATS server at {url}") from error


async def say(error: Exception) -> None:
    """Print what the connection goes through."""
    print(f"connection: {error!r}", file=sys.stderr)


async def wait_until(stop: asyncio.Event, *, seconds: float) -> None:
    """Wait for `stop`, at most `seconds`."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


def positive_s(text: str) -> float:
    """Return a number of seconds over zero, or raise `ValueError`."""
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(text)
    return seconds


def arguments() -> argparse.Namespace:
    """Return what was typed."""
    parser = argparse.ArgumentParser(description="Publish measurements of this machine.")
    parser.add_argument("--url", default="nats://127.0.0.1:4222", help="the NATS server")
    parser.add_argument("--stack", default="vigil", help="first word of every subject")
    parser.add_argument("--interval", type=positive_s, default=2.0, help="seconds between rounds")
    parser.add_argument("--count", type=int, default=0, help="rounds to publish; 0 for ever")
    return parser.parse_args()


def main() -> None:
    """Run from the command line."""
    told = arguments()
    try:
        with asyncio.Runner() as runner:
            runner.run(run(told.url, told.stack, interval_s=told.interval, rounds=told.count))
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
