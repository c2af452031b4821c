"""Defines the options of the email channel: sending, receiving answers, and the proof of their senders."""

from email.utils import parseaddr
from ipaddress import ip_address
from typing import Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from signoff.channels.base import ChannelOptions
from signoff.channels.mail.header import mailboxes
from signoff.formats.mail_address import plain_address

LOCAL_CHARS: Final = 14
"""The octets of a local part (64) that a token and its proof leave for the mailbox's name."""
# These servers replace message ids, so people's replies name unknown ids and cannot be matched with cards.
_REWRITING: Final = (".amazonaws.com", ".postmarkapp.com")


class SmtpOptions(ChannelOptions):
    """The server that takes our mail."""

    host: str = Field(min_length=1, description="The mail server, such as smtp.example.com.")
    port: int = Field(587, ge=1, le=65_535, description="587 with `starttls`, 465 with `tls`.")
    tls: Literal["starttls", "tls", "none"] = Field("starttls", description="How the connection is encrypted.")
    user: str = Field("", description="The user for the sign-in; empty for none.")
    password: str = Field("", description="The password of `user`, env:NAME.")
    rewrites_ids: bool = Field(
        False, description="Whether the server replaces our message ids, as Amazon's and Postmark's servers do."
    )
    # Below the 30 s limit of a whole delivery (`SEND_SECONDS`), so that the error names the silent server.
    timeout_seconds: float = Field(20.0, gt=0, le=25, description="How long to wait for the server.")

    @model_validator(mode="after")
    def _no_open_password(self) -> Self:
        _keep_secret(self.tls, self.password, self.host)
        return self

    @property
    def keeps_ids(self) -> bool:
        """Whether people's replies name our emails by the ids that we gave them."""
        return not self.rewrites_ids and not self.host.lower().endswith(_REWRITING)


class ImapOptions(ChannelOptions):
    """A mailbox for answers alone: unread emails in it are taken and marked as read."""

    host: str = Field(min_length=1, description="The IMAP server.")
    port: int = Field(993, ge=1, le=65_535, description="993 with `tls`, 143 with `starttls`.")
    tls: Literal["starttls", "tls", "none"] = Field("tls", description="How the connection is encrypted.")
    user: str = Field(min_length=1, description="The owner of the mailbox.")
    password: str = Field(min_length=1, description="The password of `user`, env:NAME.")
    folder: str = Field("INBOX", min_length=1, description="The folder with the answers.")
    timeout_seconds: float = Field(20.0, gt=0, le=60, description="How long to wait for the server.")

    @model_validator(mode="after")
    def _no_open_password(self) -> Self:
        _keep_secret(self.tls, self.password, self.host)
        return self


class LmtpOptions(ChannelOptions):
    """A port on which our own mail server delivers answers. Keep it private: any client can send anything to it."""

    host: str = Field("127.0.0.1", min_length=1, description="The address to listen on.")
    port: int = Field(ge=1, le=65_535, description="The port.")
    protocol: Literal["lmtp", "smtp"] = Field("lmtp", description="The protocol of the mail server.")


class MailWebhookOptions(ChannelOptions):
    """Answers to `/channels/<name>` by HTTP."""

    shape: Literal["raw", "postmark", "mailgun", "ses"] = Field(
        "raw", description="The sender: `raw` is the bare email, signed as Standard Webhooks."
    )
    secret: str = Field("", description="The secret for signatures or the sign-in, env:NAME; `ses` has none.")
    previous_secret: str = Field("", description="The secret before this one, while both are in use.")
    user: str = Field("signoff", description="The user for `secret` in the address that you give to Postmark.")
    topic: str = Field("", description="The ARN of the SNS topic, with `ses`.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.shape == "ses" and not self.topic.startswith("arn:"):
            raise ValueError("with shape `ses` it needs the `topic`, arn:aws:sns:...")
        if self.shape != "ses" and not self.secret:
            raise ValueError(f"with shape `{self.shape}` it needs a `secret`")
        return self


class InboundOptions(ChannelOptions):
    """The way of answers: exactly one of the three."""

    imap: ImapOptions | None = None
    lmtp: LmtpOptions | None = None
    webhook: MailWebhookOptions | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if sum(each is not None for each in (self.imap, self.lmtp, self.webhook)) != 1:
            raise ValueError("answers come in by exactly one of `imap`, `lmtp` and `webhook`")
        return self


class EmailOptions(ChannelOptions):
    """Without `inbound`, approvers can only decide through the link in an email."""

    smtp: SmtpOptions
    sender: str = Field(description="The sender of emails, such as `Signoff <approvals@example.com>`.")
    reply_to: str = Field("", description="The address for answers, if not the sender: approvals@replies.example.com.")
    bounces_come_back: bool = Field(
        True, description="Whether undeliverable emails bounce to the address for answers, so that Signoff knows."
    )
    inbound: InboundOptions | None = None
    authserv_id: str = Field(
        "", description="The name in our mail server's Authentication-Results; without it, DKIM is checked here."
    )
    received_by: str = Field("", description="The mail server's name in Received, if different.")

    @field_validator("sender")
    @classmethod
    def _one_sender(cls, sender: str) -> str:
        read = mailboxes(sender)
        if read.odd or len(read.addresses) != 1 or not sender.isprintable():
            raise ValueError("a sender looks like `Signoff <approvals@example.com>`")
        return sender

    @field_validator("reply_to")
    @classmethod
    def _bare_address(cls, address: str) -> str:
        if address and plain_address(address) != address:
            raise ValueError("an address looks like approvals@replies.example.com, in lower case")
        return address

    @model_validator(mode="after")
    def _check_addresses(self) -> Self:
        local = self.answered_at.partition("@")[0]
        # `ReplyAddresses.is_ours` cuts an address at its first `+`, so the mailbox's name must not have one.
        if self.inbound is not None and (len(local) > LOCAL_CHARS or "+" in local):
            raise ValueError(f"`{local}` of the address for answers is longer than {LOCAL_CHARS} letters, or has a `+`")
        if self.received_by and not self.authserv_id:
            raise ValueError("`received_by` says which server's results count, and without `authserv_id` none do")
        shape = self.inbound and self.inbound.webhook and self.inbound.webhook.shape
        if self.authserv_id and shape not in (None, "raw"):
            raise ValueError(f"`authserv_id` is of your own mail server, and with shape `{shape}` there is none")
        return self

    @property
    def address(self) -> str:
        """The bare address of the sender, in lower case."""
        return mailboxes(self.sender).addresses[0]

    @property
    def sender_name(self) -> str:
        """ "" without a name."""
        return parseaddr(self.sender)[0]

    @property
    def answered_at(self) -> str:
        """The address for answers, without a token."""
        return self.reply_to or self.address


def _keep_secret(tls: str, password: str, host: str) -> None:
    if tls == "none" and password and not is_here(host):
        raise ValueError("a password is not sent without TLS: set `tls`")


def is_here(host: str) -> bool:
    """Return whether `host` reaches only this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        # Any other name may lead to another machine later.
        return host == "localhost"
