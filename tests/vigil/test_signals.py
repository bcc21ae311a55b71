"""What programs do on signals, and with processes that have just ended."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

from vigil.serving.processes import _send
from vigil.serving.signals import run_program

STUBBORN = """
import asyncio, os, signal
from vigil.serving.signals import run_program, stopping

def fails():
    raise RuntimeError("what it is to end has ended")

async def main():
    with stopping(lambda: None, abandon=fails):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(300)

run_program(main())
"""

LOSES_A_CANCELLATION = """
import asyncio, os, signal
from vigil.asking.connect import run

async def work():
    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
    try:
        await asyncio.sleep(300)
    except asyncio.CancelledError:
        print("lost", flush=True)
    await asyncio.sleep(300)

run(work())
"""


def test_a_command_ends_on_an_interrupt_that_a_library_has_lost():
    done = subprocess.run(
        [sys.executable, "-c", LOSES_A_CANCELLATION], check=False, timeout=60, capture_output=True
    )
    assert done.stdout == b"lost\n"
    assert done.stderr.endswith(b"KeyboardInterrupt\n")


FAILS_AS_IT_IS_INTERRUPTED = """
import asyncio, os, signal
from vigil.asking.connect import run

async def work():
    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
    try:
        await asyncio.sleep(300)
    finally:
        raise OSError("the connection was closed")

run(work())
"""


def test_a_command_that_fails_because_it_was_interrupted_was_interrupted():
    done = subprocess.run(
        [sys.executable, "-c", FAILS_AS_IT_IS_INTERRUPTED],
        check=False,
        timeout=60,
        capture_output=True,
    )
    assert done.stderr.endswith(b"KeyboardInterrupt\n")


def test_a_second_signal_ends_the_program_whatever_fails():
    done = subprocess.run([sys.executable, "-c", STUBBORN], check=False, timeout=20)
    assert done.returncode in {128 + signal.SIGTERM, 128 + signal.SIGINT}


def test_a_process_that_has_just_ended_can_be_killed():
    async def main() -> int:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
        code = await process.wait()
        _send(process, signal.SIGKILL)
        return code

    assert run_program(main()) == 0
