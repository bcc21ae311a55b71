"""Forms, as browsers send them."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

FIELDS_MAX: Final = 200
"""Most fields of a form."""

TYPE: Final = "application/x-www-form-urlencoded"


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form that are not empty. Of what stands twice, the last counts.

    Raises:
        HTTPException: it is no form, or has too many fields.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != TYPE:
        raise HTTPException(415, f"a form is sent as {TYPE}")
    try:
        text = (await request.body()).decode()
        fields = parse_qsl(text, max_num_fields=FIELDS_MAX)
    except (UnicodeDecodeError, ValueError) as error:
        raise HTTPException(400, "the form cannot be read") from error
    return dict(fields)
