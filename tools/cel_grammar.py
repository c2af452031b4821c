"""Writes the tables of CEL's grammar: `python -m tools.cel_grammar`, after a new release of lark or celpy."""

import json
from pathlib import Path
from typing import Final

from signoff.policy.cel_grammar import TABLES, make_tables

FILE: Final = Path("src/signoff/policy") / TABLES


def main() -> None:
    FILE.write_text(json.dumps(make_tables(), separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
