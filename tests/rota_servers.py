"""Servers of rotas: an iCal file, and PagerDuty and Opsgenie as strict as their documentation."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

PAGERDUTY_TOKEN = "u+wxyz"
OPSGENIE_TOKEN = "eb243592-faa2-4ba2-a551q-1afdf565c889"


def shift_event(number: int, name: str, since: datetime, until: datetime) -> tuple[str, ...]:
    times = (f"DTSTART:{since:%Y%m%dT%H%M%SZ}", f"DTEND:{until:%Y%m%dT%H%M%SZ}")
    named = f"ATTENDEE;CN=On call:mailto:{name}" if "@" in name else f"SUMMARY:{name}"
    return "BEGIN:VEVENT", f"UID:{number}@rota.example", *times, named, "END:VEVENT"


def rota_file(*shifts: tuple[str, datetime, datetime]) -> bytes:
    events = (line for number, shift in enumerate(shifts) for line in shift_event(number, *shift))
    lines = ("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Rota//EN", *events, "END:VCALENDAR", "")
    return "\r\n".join(lines).encode()


@dataclass
class RotaServer:
    """`/rota.ics` is `content`."""

    content: bytes = rota_file()
    on_calls: list[dict[str, Any]] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    more: bool = False
    status: int = 200
    requests: list[Request] = field(default_factory=list)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/rota.ics", self._file),
                Route("/oncalls", self._pagerduty),
                Route("/v2/schedules/{schedule}/on-calls", self._opsgenie),
            ]
        )

    async def _file(self, request: Request) -> Response:
        self.requests.append(request)
        return Response(self.content, self.status, media_type="text/calendar")

    async def _pagerduty(self, request: Request) -> Response:
        self.requests.append(request)
        if request.headers["authorization"] != f"Token token={PAGERDUTY_TOKEN}":
            return JSONResponse({"error": {"code": 2006, "message": "Unauthorized"}}, 401)
        query = request.query_params
        since, until = (datetime.fromisoformat(query[name]) for name in ("since", "until"))
        if request.headers["accept"] != "application/vnd.pagerduty+json;version=2" or not since < until:
            return JSONResponse({"error": {"code": 2001, "message": "Invalid Input Provided"}}, 400)
        schedules, whole = query.getlist("schedule_ids[]"), "users" in query.getlist("include[]")
        shown = [_entry(each, whole=whole) for each in self.on_calls if each["schedule"] in schedules]
        body = {"oncalls": shown, "limit": int(query["limit"]), "offset": 0, "more": self.more, "total": None}
        return JSONResponse(body, self.status)

    async def _opsgenie(self, request: Request) -> Response:
        self.requests.append(request)
        if request.headers["authorization"] != f"GenieKey {OPSGENIE_TOKEN}":
            return JSONResponse({"message": "Could not authenticate", "took": 0.003, "requestId": "r"}, 422)
        schedule = request.path_params["schedule"]
        if schedule != "d875-4c" or request.query_params.get("flat") != "true":
            return JSONResponse({"message": "No schedule exists", "took": 0.003, "requestId": "r"}, 404)
        parent = {"id": schedule, "name": "payments", "enabled": True}
        data = {"_parent": parent, "onCallRecipients": self.recipients}
        return JSONResponse({"data": data, "took": 0.107, "requestId": "r"}, self.status)


def _entry(given: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    user = {"id": "PT23IWX", "summary": "On Call", "self": "https://api.pagerduty.com/users/PT23IWX"}
    user |= {"type": "user", "name": "On Call", "email": given["email"]} if whole else {"type": "user_reference"}
    policy = {"id": "PT20YPA", "type": "escalation_policy_reference", "summary": "Another Escalation Policy"}
    schedule = {"id": given["schedule"], "type": "schedule_reference", "summary": "Daily Engineering Rotation"}
    times = {"start": given.get("start"), "end": given.get("end")}
    return {"user": user, "schedule": schedule, "escalation_policy": policy, "escalation_level": 2, **times}
