"""Copies a model with new values in some of its fields."""

from typing import TypeVar

from pydantic import BaseModel

from signoff.formats.nearest_name import did_you_mean

_Model = TypeVar("_Model", bound=BaseModel)


def replace(model: _Model, /, **changes: object) -> _Model:
    """Copy `model` with new values in the named fields, without validation.

    Raises `TypeError` for a name that is no field, including aliases. `model_copy` would keep the unknown name and
    leave the intended field unchanged.
    """
    fields = type(model).__pydantic_fields__
    if not changes.keys() <= fields.keys():
        unknown = min(changes.keys() - fields.keys())
        raise TypeError(f"{type(model).__name__} has no field `{unknown}`{did_you_mean(unknown, fields)}")
    return model.model_copy(update=changes)
