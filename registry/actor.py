"""An actor: a model with instructions and the tools it may use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from signoff.contracts.steps import TurnLimits


@dataclass(frozen=True, kw_only=True)
class Actor:
    """A declared actor. `tools` None means every tool, `()` means none (N04); its order is what the model sees.

    `model` names provider and model (`openai:gpt-5`, `scripted:module:attr`); `model_settings` go to it as they are.
    """

    name: str
    model: str
    description: str = ""
    instructions: str = ""
    tools: tuple[str, ...] | None = None
    limits: TurnLimits = field(default_factory=TurnLimits)
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
