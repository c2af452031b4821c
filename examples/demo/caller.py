"""An agent of a few lines over plain HTTP: proposes a refund, makes it as approved, and reports it.

`python -m demo.caller KEY ORDER EURO`, with `SIGNOFF_PUBLIC_URL` and `SIGNOFF_TOKEN`. After a crash, a new start with
the same key continues the same call. Prints the call's id, its end state and its result, separated by tabs.
"""

import os
import sys
from typing import Any, Final

import httpx2

_WAIT_SECONDS: Final = 30


def main() -> None:
    """Propose, wait, use, refund, report."""
    key, order, euro = sys.argv[1:]
    headers = {"authorization": f"Bearer {os.environ['SIGNOFF_TOKEN']}", "idempotency-key": key}
    # Ignore the terminal's proxy, which cannot reach 127.0.0.1 here.
    with httpx2.Client(base_url=os.environ["SIGNOFF_PUBLIC_URL"], headers=headers, timeout=60, trust_env=False) as http:
        body = {"tool": "refund", "args": {"order": order, "euro": float(euro)}, "says": "charged twice"}
        call = _read(http.post("/v1/calls", json=body | {"wait": _WAIT_SECONDS}))
        while call["state"] == "waiting":
            call = _read(http.get(f"/v1/calls/{call['id']}", params={"wait": _WAIT_SECONDS}))
        if call["state"] == "permitted":
            permit = _read(http.post(f"/v1/calls/{call['id']}/use", json={}))
            # Another agent would call its bank here.
            result = f"refunded {permit['args']['euro']} EUR for {permit['args']['order']}"
            call = _read(http.post(f"/v1/calls/{call['id']}/outcome", json={"code": "ok", "result": result}))
        print(call["id"], call["state"], call.get("result", ""), sep="\t", flush=True)


def _read(answer: httpx2.Response) -> dict[str, Any]:
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


if __name__ == "__main__":
    main()
