import pytest
from cli_kit import Cli, assert_one_sentence
from served_stack import MANIFEST


@pytest.fixture
def served_cli(cli: Cli, clean_env: pytest.MonkeyPatch) -> Cli:
    clean_env.setenv("SIGNOFF_MANIFEST", str(MANIFEST))
    return cli


async def test_token_is_shown_once(served_cli: Cli) -> None:
    made = await served_cli("token", "create", "approver", "--scope", "read", "--scope", "decide", "--expires", "12h")
    assert made.code == 0, made.err
    secret, found = made.out.splitlines()
    assert secret.startswith("sgf_")
    assert "of approver may read, decide until" in found
    listed = await served_cli("token", "list", "--json")
    assert secret not in listed.out
    [token] = listed.data
    assert (token["person"], token["scopes"], token["used_at"]) == ("approver", ["read", "decide"], None)
    shown = await served_cli("token", "list")
    assert token["id"] in shown.out
    assert "for another 12 h" in shown.out


async def test_token_is_revoked(served_cli: Cli) -> None:
    made = (await served_cli("token", "create", "guest", "--scope", "start", "--json")).data
    assert made["token"].startswith("sgf_")
    revoked = await served_cli("token", "revoke", made["id"])
    assert revoked.out == f"token {made['id']} of guest is revoked\n"
    assert "revoked" in (await served_cli("token", "list")).out
    assert "there is no token `nope`" in assert_one_sentence(await served_cli("token", "revoke", "nope"))


async def test_empty_token_list_explains_how_to_create_one(served_cli: Cli) -> None:
    assert "signoff token create" in (await served_cli("token", "list")).out
    assert (await served_cli("token", "list", "--json")).data == []


async def test_invalid_token_options_are_refused(served_cli: Cli) -> None:
    assert "did you mean `approver`" in assert_one_sentence(
        await served_cli("token", "create", "aprover", "--scope", "read")
    )
    for wrong in (
        ["--scope", "all"],
        [],
        ["--scope", "read", "--expires", "never"],
        ["--scope", "read", "--expires", "9999d"],
    ):
        assert (await served_cli("token", "create", "guest", *wrong)).code == 2
