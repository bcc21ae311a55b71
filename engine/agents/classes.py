"""Error classes of requests to models, beside those of tools."""

from __future__ import annotations

from typing import Final

MISCONFIGURED: Final = "model_misconfigured"
"""A request that cannot be made on this machine: of the model's name, its key or its packages."""

REFUSED: Final = "model_refused"
"""A prompt that a model, or the filter of its provider, does not answer."""

INVALID_ANSWER: Final = "invalid_answer"
"""An answer that is none of the type that was asked for."""

OUTPUT_TOO_LONG: Final = "output_too_long"
"""An answer that ends at the limit of output tokens."""

CONTEXT_TOO_LONG: Final = "context_too_long"
"""A prompt that is longer than the model reads."""

QUOTA_EXCEEDED: Final = "model_quota_exceeded"
"""A request for which the provider's account has no money left."""
