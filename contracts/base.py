"""The base of every shape that crosses a process border or lies in a workflow history."""

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    """A frozen record. Shapes grow by fields with defaults only: histories of years ago must load."""

    model_config = ConfigDict(frozen=True, extra="ignore")
