import grp
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from signoff.temporal.embedded_server import free_port

PASSWORD = "of-the-mailbox"
_CONFIG = """
base_dir = {folder}/run
state_dir = {folder}/run
log_path = {folder}/log
protocols = imap lmtp
imap_capability = {capability}
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
default_internal_user = {user}
default_internal_group = {group}
default_login_user = {user}
first_valid_uid = 1
mail_location = maildir:{folder}/mail/%n
recipient_delimiter = +
auth_username_format = %Ln
auth_failure_delay = 0
mail_max_userip_connections = 100
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={user} gid={group} home={folder}/mail/%n allow_all_users=yes
}}
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
service stats {{
  chroot =
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service lmtp {{
  inet_listener lmtp {{
    port = {lmtp}
  }}
}}
"""


@dataclass(frozen=True)
class Dovecot:
    imap: int
    lmtp: int


@contextmanager
def dovecot(capability: str = "+") -> Iterator[Dovecot]:
    """As root it runs its services as `nobody`, because it refuses to store root's mail."""
    # Socket paths must be short.
    folder = Path(tempfile.mkdtemp(prefix="signoff-mail-"))
    user = "nobody" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    group = grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name
    for name in ("run", "mail"):
        (folder / name).mkdir()
        shutil.chown(folder / name, user, group)
    folder.chmod(0o755)
    made = Dovecot(free_port(), free_port())
    config = folder / "dovecot.conf"
    config.write_text(
        _CONFIG.format(
            folder=folder,
            user=user,
            group=group,
            password=PASSWORD,
            imap=made.imap,
            lmtp=made.lmtp,
            capability=capability,
        )
    )
    server = subprocess.Popen(("/usr/sbin/dovecot", "-F", "-c", str(config)), stderr=subprocess.DEVNULL)
    try:
        _wait(made, folder / "log")
        yield made
    finally:
        server.terminate()
        server.wait(timeout=20)
        shutil.rmtree(folder, ignore_errors=True)


def _wait(server: Dovecot, log: Path) -> None:
    end = time.monotonic() + 30
    for port in (server.imap, server.lmtp):
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < end, log.read_text() if log.exists() else "Dovecot does not start"
                time.sleep(0.05)
