import yaml
from documents import ROOT, blocks, names, tables
from mail_servers import mail_servers

from signoff.channels.mail.options import EmailOptions

PAGE = "docs/email.md"


def test_documented_mail_servers_are_tested_with_their_options() -> None:
    rows = tables(PAGE, "Who proves the sender")
    listed = {row[0]: [yaml.safe_load(option) for option in names(row[1])] for row in rows}
    tried = {server.server: [server.options] if server.options else [] for server in mail_servers()}
    assert listed == tried


def test_documented_postfix_example_is_valid() -> None:
    shown = blocks(ROOT / PAGE)
    [declared] = [block for block in shown if block.language == "yml"]
    options = yaml.safe_load(declared.text)["channels"]["mail"]
    assert options.pop("kind") == "email"
    read = EmailOptions.model_validate(options)
    assert read.inbound is not None
    assert read.inbound.lmtp is not None
    settings = [block.text for block in shown if block.language == "ini"]
    assert len(settings) == 3
    assert all(read.authserv_id in text for text in settings)
    assert f"lmtp:inet:127.0.0.1:{read.inbound.lmtp.port}" in settings[0]
