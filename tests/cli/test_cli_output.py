import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from cli_kit import Cli
from served_stack import MANIFEST

from signoff.cli.terminal.log_setup import log_to_file

NOISY = """
import os, sys
from signoff.cli.terminal.output import run

async def body(out):
    print("a library talks")
    os.write(1, b"so does its C part")
    out.show({"text": "é", "n": 1}, "words for people")
    out.say("more words")
    print("and goes on")
    return int(sys.argv[1])

run(body, as_json=True)
"""


def test_json_output_is_undisturbed_by_printing_libraries() -> None:
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import typer\ntry:\n    exec({NOISY!r})\nexcept typer.Exit as e:\n    sys.exit(e.exit_code)",
            "1",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(ran.stdout) == {"text": "é", "n": 1}
    assert all(words in ran.stderr for words in ("a library talks", "so does its C part", "and goes on"))
    assert ran.returncode == 1


async def test_text_is_printed_without_markup(cli: Cli, tmp_path: Path) -> None:
    manifest = tmp_path / "signoff.yaml"
    text = MANIFEST.read_text().replace('"Look at {place}"', '"Look [bold]at[/bold] {place} :smile:"')
    manifest.write_text(f"path: ['{MANIFEST.parent}']\n{text}")
    ran = await cli("tools", "explain", "look")
    assert "Look [bold]at[/bold] {place} :smile:" in ran.out


def test_program_exits_with_the_code_of_its_command(tmp_path: Path) -> None:
    codes = [
        subprocess.run(
            [sys.executable, "-m", "signoff.cli.main", *arguments], cwd=tmp_path, capture_output=True, check=False
        ).returncode
        for arguments in (["--version"], ["tools", "list"], ["nonsense"])
    ]
    assert codes == [0, 1, 2]


def test_requested_urls_are_not_logged(tmp_path: Path) -> None:
    http = [logging.getLogger(name) for name in ("httpx2", "httpcore2", "httpcore2.http11")]
    with log_to_file(tmp_path, "gateway.log") as path:
        for log in http:
            log.info("HTTP Request: POST https://vendor.example/bot123:SECRET/send")
            log.warning("a connection broke")
    written = path.read_text(encoding="utf-8")
    assert "SECRET" not in written
    assert written.count("a connection broke") == 3
    assert logging.getLogger("httpx2").level == logging.NOTSET


def test_traceback_goes_to_the_file_and_not_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("signoff.gateway.transport.middleware")
    with log_to_file(tmp_path, "gateway.log") as path:
        try:
            raise LookupError("what nobody expected")
        except LookupError as error:
            log.error("GET / failed, id 0a1b")
            log.debug("id 0a1b", exc_info=error)
    assert capsys.readouterr().err == "error: GET / failed, id 0a1b\n"
    written = path.read_text(encoding="utf-8")
    assert "Traceback" in written
    assert "what nobody expected" in written
    assert path.stat().st_mode & 0o077 == 0


def test_message_with_line_breaks_stays_one_log_line(tmp_path: Path) -> None:
    """A library may log a stranger's input. An entry was forged with the plain formatter."""
    with log_to_file(tmp_path, "gateway.log") as path:
        logging.getLogger("elsewhere").warning("a request for %s", "/x\n2026-11-22 ERROR forged\x1b[2J\u2028end")
        written = path.read_text(encoding="utf-8")
    assert written.count("\n") == 1
    assert r"/x\n2026-11-22 ERROR forged\x1b[2J\u2028end" in written


def test_error_with_line_breaks_starts_no_log_entry(tmp_path: Path) -> None:
    with log_to_file(tmp_path, "gateway.log") as path:
        try:
            raise ValueError("/x\n2026-11-22 ERROR forged\x1b[2J\u2028end")
        except ValueError as error:
            logging.getLogger("signoff.gateway.transport.middleware").debug("id 0a1b", exc_info=error)
        first, *below = path.read_text(encoding="utf-8").splitlines()
    assert first.endswith("DEBUG signoff.gateway.transport.middleware: id 0a1b")
    assert all(line.startswith("  ") and line.isprintable() for line in below)
    assert "  2026-11-22 ERROR forged\\x1b[2J" in below
