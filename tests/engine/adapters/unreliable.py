"""SMTP servers that behave up to a point, each as `asyncio.start_server` wants it."""

from __future__ import annotations

from asyncio import StreamReader, StreamWriter

CONTENT_ENDS = b"\r\n.\r\n"


async def silent(reader: StreamReader, writer: StreamWriter) -> None:
    """Never greets."""
    await _say_no_more(reader, writer)


async def rude(reader: StreamReader, writer: StreamWriter) -> None:
    """Hangs up at once."""
    writer.close()


async def busy(reader: StreamReader, writer: StreamWriter) -> None:
    """Greets with a refusal."""
    await _say(writer, b"421 too busy")
    writer.close()


async def resets_in_the_content(reader: StreamReader, writer: StreamWriter) -> None:
    """Asks for the content, and is gone once it comes."""
    await _ask_for_content(reader, writer)
    await reader.readline()
    writer.transport.abort()


async def silent_in_the_content(reader: StreamReader, writer: StreamWriter) -> None:
    """Asks for the content, and never says whether it has it."""
    await _ask_for_content(reader, writer)
    await _say_no_more(reader, writer)


async def resets_after_the_content(reader: StreamReader, writer: StreamWriter) -> None:
    """Takes all of the content, and is gone before it says so."""
    await _ask_for_content(reader, writer)
    await reader.readuntil(CONTENT_ENDS)
    writer.transport.abort()


async def silent_at_the_end(reader: StreamReader, writer: StreamWriter) -> None:
    """Accepts the mail, and never says good-bye."""
    await _accept(reader, writer)
    await _say_no_more(reader, writer)


async def resets_at_the_end(reader: StreamReader, writer: StreamWriter) -> None:
    """Accepts the mail, and is gone when the client says good-bye."""
    await _accept(reader, writer)
    await reader.readline()
    writer.transport.abort()


async def _accept(reader: StreamReader, writer: StreamWriter) -> None:
    await _ask_for_content(reader, writer)
    await reader.readuntil(CONTENT_ENDS)
    await _say(writer, b"250 accepted")


async def _ask_for_content(reader: StreamReader, writer: StreamWriter) -> None:
    await _say(writer, b"220 mail.example")
    while not (await reader.readline()).upper().startswith(b"DATA"):
        await _say(writer, b"250 OK")
    await _say(writer, b"354 go on")


async def _say(writer: StreamWriter, line: bytes) -> None:
    writer.write(line + b"\r\n")
    await writer.drain()


async def _say_no_more(reader: StreamReader, writer: StreamWriter) -> None:
    """Listen until the client has gone."""
    await reader.read()
    writer.close()
