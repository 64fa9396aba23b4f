"""``POST /api/v1/tokenize`` and ``/api/v1/detokenize``: the questions."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from engine.inference.probes.limits import MAX_DECODED_IDS
from webapp.schemas.base import StrictModel
from webapp.schemas.live_requests import MAX_MESSAGES, ChatMessage, PromptText, TokenId

Messages = Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]


class TokenizeRequest(StrictModel):
    """Exactly one of ``text`` and ``messages``."""

    text: PromptText | None = None
    messages: Messages | None = None
    add_special: bool = Field(
        default=True, description="Of a text: the begin token first, where the model wants one."
    )
    add_generation_prompt: bool = Field(
        default=True, description="Of messages: end with what makes the model answer."
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.text is None) == (self.messages is None):
            raise PydanticCustomError("bad_combination", "Send either text or messages.")
        return self


class DetokenizeRequest(StrictModel):
    """Ids to text."""

    ids: Annotated[list[TokenId], Field(min_length=1, max_length=MAX_DECODED_IDS)]
    skip_special: bool = Field(default=False, description="Leave control tokens out of the text.")
