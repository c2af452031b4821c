"""The description of the API at `/openapi.json`. Public, as it shows no data of the installation."""

from collections.abc import Collection
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from signoff.contracts.requests import ApprovalResponseBody, DecisionDraft
from signoff.contracts.responses import ApprovalRequestPart
from signoff.gateway.auth.dependencies import OPEN, TokenAccess
from signoff.gateway.auth.route_table import RouteTable

router = APIRouter(include_in_schema=False)
_BODIES: Final[tuple[type[BaseModel], ...]] = (
    DecisionDraft,
    ApprovalResponseBody,
    ApprovalRequestPart,
)
_REFERENCE = "#/components/schemas/{model}"


@router.get("/openapi.json", dependencies=[OPEN])
async def show_description(request: Request) -> JSONResponse:
    """Return the description as OpenAPI."""
    app: FastAPI = request.app
    return JSONResponse(app.openapi())


def describe(app: FastAPI, routes: RouteTable, bodies: Collection[type[BaseModel]] = ()) -> dict[str, Any]:
    """Describe each operation once, with its scope. Plugins read the bodies of `bodies` themselves."""
    if app.openapi_schema is None:
        described = FastAPI.openapi(app)
        # Decisions are read as bytes, not by FastAPI, to refuse duplicate fields. To FastAPI, parts are any JSON.
        for model in (*_BODIES, *bodies):
            schema = model.model_json_schema(ref_template=_REFERENCE)
            described["components"]["schemas"] |= {**schema.pop("$defs", {}), model.__name__: schema}
        for path, operations in described["paths"].items():
            for method, operation in operations.items():
                access = routes.find(path, method.upper())
                if isinstance(access, TokenAccess) and access.scope is not None:
                    operation["security"] = [{name: [access.scope] for name in each} for each in operation["security"]]
    return app.openapi_schema or {}
