"""SCRAM: the vectors of RFC 5802's successor RFC 7677, every wrong message, and users that do not exist.

Tests scram/formulas.py, scram/messages.py, scram/server.py and scram/client.py.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.security.sasl.mechanism import AuthenticationError, InvalidCredentialsError, SaslError
from barnabas.security.sasl.scram.client import ScramClient
from barnabas.security.sasl.scram.formulas import Looks, base36, fake_looks, fake_salt, looks_of, make_credential
from barnabas.security.sasl.scram.messages import escape, parse_client_final, parse_client_first, unescape
from barnabas.security.sasl.scram.server import ScramServer, TokenLogin
from barnabas.security.values import ScramCredential, ScramMechanism
from tests.support.cpu_time import least_cpu_s

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SECRET = b"secret of the cluster"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


class Users:
    """Credentials and tokens in memory."""

    def __init__(self, mechanism: ScramMechanism = SHA_256, **passwords: str) -> None:
        self.credentials = {user: make_credential(mechanism, text) for user, text in passwords.items()}
        self.tokens: dict[str, TokenLogin] = {}

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self.credentials.get(user)

    def token(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        return self.tokens.get(token_id)

    def looks(self, _mechanism: ScramMechanism) -> Counter[Looks]:
        return Counter(looks_of(credential) for credential in self.credentials.values())


def log_in(client: ScramClient, server: ScramServer) -> None:
    token: bytes | None = client.first()
    while token is not None:
        token = client.evaluate(server.evaluate(token))


def test_the_vector_of_rfc_7677() -> None:
    users = Users()
    users.credentials["user"] = make_credential(SHA_256, "pencil", 4096, base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    server = ScramServer(SHA_256, users, SECRET, nonce=lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    client = ScramClient(SHA_256, "user", "pencil", nonce=lambda: "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == CLIENT_FIRST
    assert server.evaluate(CLIENT_FIRST) == SERVER_FIRST
    assert client.evaluate(SERVER_FIRST) == CLIENT_FINAL
    assert server.evaluate(CLIENT_FINAL) == SERVER_FINAL
    assert client.evaluate(SERVER_FINAL) is None
    assert client.is_complete
    assert server.identity is not None
    assert server.identity.principal == "User:user"


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("user", ["alice", "a=b,c", "=2C"])
def test_logins(mechanism: ScramMechanism, user: str) -> None:
    users = Users(mechanism, **{user: "pässword,="})
    server = ScramServer(mechanism, users, SECRET)
    log_in(ScramClient(mechanism, user, "pässword,="), server)
    assert server.identity is not None
    assert server.identity.principal == f"User:{user}"
    assert not server.identity.is_token


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_a_wrong_password_and_an_unknown_user_end_alike(user: str) -> None:
    """Both get a first message and fail at the second one, with the same text."""
    server = ScramServer(SHA_256, Users(alice="right"), SECRET)
    client = ScramClient(SHA_256, user, "wrong")
    final = client.evaluate(server.evaluate(client.first()))
    assert final is not None
    with pytest.raises(InvalidCredentialsError, match="Invalid client credentials"):
        server.evaluate(final)
    assert server.identity is None


def test_an_unknown_user_has_the_same_salt_each_time() -> None:
    def salt(user: str, secret: bytes = SECRET) -> bytes:
        server = ScramServer(SHA_256, Users(), secret)
        message = server.evaluate(f"n,,n={user},r=abc".encode())
        return message.split(b",s=")[1]

    assert salt("nobody") == salt("nobody")
    assert salt("nobody") != salt("nobody2")
    assert salt("nobody") != salt("nobody", b"another cluster")


def test_a_false_salt_looks_like_a_real_one() -> None:
    real = make_credential(SHA_256, "x").salt.decode()
    false = fake_salt(SECRET, "nobody").decode()
    assert set(real + false) <= set("0123456789abcdefghijklmnopqrstuvwxyz")
    assert abs(len(real) - len(false)) <= 3


def test_no_proof_is_right_for_an_unknown_user() -> None:
    """Not even one that fits the keys of zeros behind the false salt."""
    server = ScramServer(SHA_256, Users(), SECRET)
    nonce = server.evaluate(b"n,,n=nobody,r=abc").split(b",")[0]
    with pytest.raises(InvalidCredentialsError):
        server.evaluate(b"c=biws," + nonce + b",p=" + base64.b64encode(bytes(32)))


def test_a_delegation_token() -> None:
    users = Users()
    users.tokens["id"] = TokenLogin("User:alice", 99, make_credential(SHA_256, "hmac"))
    server = ScramServer(SHA_256, users, SECRET)
    log_in(ScramClient(SHA_256, "id", "hmac", is_token=True), server)
    assert server.identity is not None
    assert server.identity == type(server.identity)("User:alice", 99, is_token=True)


def test_a_token_is_no_user_and_a_user_no_token() -> None:
    users = Users(alice="x")
    users.tokens["id"] = TokenLogin("User:alice", 99, make_credential(SHA_256, "hmac"))
    for client in (ScramClient(SHA_256, "id", "hmac"), ScramClient(SHA_256, "alice", "x", is_token=True)):
        with pytest.raises(InvalidCredentialsError):
            log_in(client, ScramServer(SHA_256, users, SECRET))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xfe",
        b"n,,n=user",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=us,er,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=abc,1=x",
        "n,,n=üser,r=abc".encode(),
    ],
)
def test_malformed_first_messages(message: bytes) -> None:
    with pytest.raises(InvalidCredentialsError):
        ScramServer(SHA_256, Users(user="x"), SECRET).evaluate(message)


def test_another_authorization_id_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="authorization id that is different from username"):
        ScramServer(SHA_256, Users(user="x"), SECRET).evaluate(b"n,a=admin,n=user,r=abc")
    assert ScramServer(SHA_256, Users(user="x"), SECRET).evaluate(b"n,a=user,n=user,r=abc")


@pytest.mark.parametrize("change", ["nonce", "short proof", "flipped proof", "no proof", "garbage", "channel"])
def test_wrong_final_messages(change: str) -> None:
    server, client = ScramServer(SHA_256, Users(user="x"), SECRET), ScramClient(SHA_256, "user", "x")
    final = client.evaluate(server.evaluate(client.first()))
    assert final is not None
    changed = {
        "nonce": final.replace(b",r=", b",r=x"),
        "short proof": final[:-5] + b"=",
        "flipped proof": final[:-4] + (b"A" if final[-4:-3] != b"A" else b"B") + final[-3:],
        "no proof": final.split(b",p=")[0],
        "garbage": b"\0" * 100,
        "channel": final.replace(b"c=biws", b"c=eSws"),
    }[change]
    with pytest.raises(InvalidCredentialsError):
        server.evaluate(changed)
    assert server.identity is None
    with pytest.raises(SaslError):
        server.evaluate(final)


def test_too_few_iterations_are_refused() -> None:
    users = Users()
    users.credentials["user"] = make_credential(SHA_256, "x", 4095)
    with pytest.raises(InvalidCredentialsError, match="4096"):
        ScramServer(SHA_256, users, SECRET).evaluate(b"n,,n=user,r=abc")


@pytest.mark.parametrize(
    "message",
    [
        b"r=other,s=AAAA,i=4096",
        b"r=nonceX,s=AAAA,i=0",
        b"r=nonceX,s=AAAA,i=4095",
        b"r=nonceX,s=AAAA,i=999999999",
        b"r=nonceX,s=A,i=4096",
        b"",
    ],
)
def test_a_client_refuses_false_servers(message: bytes) -> None:
    with pytest.raises(SaslError):
        ScramClient(SHA_256, "user", "x", nonce=lambda: "nonce").evaluate(message)


@pytest.mark.parametrize("message", [b"v=AAAA", b"e=other-error", b"", SERVER_FINAL])
def test_a_client_refuses_a_server_that_does_not_know_the_password(message: bytes) -> None:
    client = ScramClient(SHA_256, "user", "pencil2", nonce=lambda: "rOprNGfwEbeRWgbNEkqO")
    client.evaluate(SERVER_FIRST)
    with pytest.raises(SaslError):
        client.evaluate(message)
    assert not client.is_complete


def test_names() -> None:
    for name in ("a", "a,b=c", "=2C", ",=,="):
        assert unescape(escape(name)) == name
    assert parse_client_first(b"n,,n=a=2Cb=3D,r=x,tokenauth=TRUE").is_token


def test_base36() -> None:
    assert [base36(number) for number in (0, 35, 36, 36**3)] == ["0", "z", "10", "1000"]


def test_a_long_message_is_refused_in_linear_time() -> None:
    for message in (b"n,,n=" + b"a" * 500_000, b"n,,n=a,r=" + b"x,a=" * 120_000 + b","):
        with pytest.raises(InvalidCredentialsError):
            parse_client_first(message)


@pytest.mark.parametrize(
    ("parse", "message"),
    [
        (parse_client_first, b"n,,n=" + b"a" * 500_000),
        (parse_client_first, b"n,a=" + b"=2C" * 160_000),
        (parse_client_first, b"n,,n=a,r=b" + b",a=b" * 120_000),
        (parse_client_first, b"n,,m=" + b"a," * 200_000),
        (parse_client_final, b"c=" + b"AAAA" * 120_000 + b"!"),
        (parse_client_final, b"c=biws,r=b" + b",a=b" * 120_000),
    ],
)
def test_half_a_megabyte_of_nonsense_costs_little(parse: Callable[[bytes], object], message: bytes) -> None:
    """A network thread reads it, of anybody."""

    def refused() -> None:
        with pytest.raises(InvalidCredentialsError):
            parse(message)

    assert least_cpu_s(refused) < 0.05


def test_a_few_extensions_are_fine() -> None:
    first = parse_client_first(b"n,,n=a,r=b" + b",x=y" * 64)
    assert first.extensions == {"x": "y"}
    assert parse_client_final(b"c=biws,r=b,p=AAAA,x=y,p=BBBB").proof == b"\x04\x10\x41"
    with pytest.raises(InvalidCredentialsError):
        parse_client_first(b"n,,n=a,r=b" + b",x=y" * 65)


def first_answer(users: Users, user: str) -> tuple[bytes, str]:
    """The salt and the iterations that anybody is told."""
    answer = ScramServer(SHA_256, users, SECRET, nonce=lambda: "").evaluate(f"n,,n={user},r=x".encode()).decode()
    _, salt, iterations = answer.split(",")
    return base64.b64decode(salt[2:]), iterations


def test_users_that_do_not_exist_look_like_those_that_do() -> None:
    """Else a number of iterations that an administrator chose, or a client's own salts, would tell who exists."""
    users = Users()
    users.credentials = {f"u{n}": make_credential(SHA_256, "x", 8192, bytes([n]) * 64) for n in range(3)}
    users.credentials["odd"] = make_credential(SHA_256, "x", 4096)
    told = [first_answer(users, f"nobody{number}") for number in range(200)]
    assert {(len(salt), iterations) for salt, iterations in told if len(salt) > 26} == {(64, "i=8192")}
    assert 100 < sum(len(salt) == 64 for salt, _ in told) < 190
    assert len({salt for salt, _ in told}) == 200
    assert told == [first_answer(users, f"nobody{number}") for number in range(200)]


def test_few_users_that_do_not_exist_change_when_one_is_added() -> None:
    before, after = ({Looks(8192, 0, True): 100, Looks(4096, 0, True): count} for count in (20, 21))
    changed = sum(fake_looks(SECRET, str(n), before) != fake_looks(SECRET, str(n), after) for n in range(1000))
    assert changed < 30
    assert fake_looks(SECRET, "x", {}).iterations == 4096


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("iterations", [4096, 10_000])
@pytest.mark.parametrize("is_token", [False, True])
def test_a_failed_login_takes_the_same_steps_for_users_that_do_not_exist(
    mechanism: ScramMechanism, iterations: int, is_token: bool
) -> None:
    """The same hashes and HMACs of texts of about the same sizes, and no key is derived; so the time shows nothing."""
    credential = make_credential(mechanism, "right", iterations, b"s" * 24)
    users = Users()
    users.credentials["known"] = credential
    users.tokens["known"] = TokenLogin("User:owner", 1, credential)
    known = steps_of(users, mechanism, "known", is_token)
    other = steps_of(users, mechanism, "other", is_token)
    assert [step[:2] for step in known] == [step[:2] for step in other]
    assert len(known) > 4
    assert max(abs(a[2] - b[2]) for a, b in zip(known, other, strict=True)) <= 4, (
        "salts of text differ in size by chance"
    )


def steps_of(users: Users, mechanism: ScramMechanism, user: str, is_token: bool) -> list[tuple[str, int, int]]:
    """The hashes and HMACs of a server in a login with a wrong password: the sizes of their keys and texts."""
    steps: list[tuple[str, int, int]] = []
    real_hmac, real_hash = hmac.digest, hashlib.new

    def counted_hmac(key: bytes, message: bytes, name: str) -> bytes:
        steps.append(("hmac", len(key), len(message)))
        return real_hmac(key, message, name)

    def counted_hash(name: str, data: bytes = b"") -> Any:
        steps.append(("hash", 0, len(data)))
        return real_hash(name, data)

    def forbidden(*_: Any) -> bytes:
        raise AssertionError("a server derives no key from a password")

    client = ScramClient(mechanism, user, "wrong", is_token=is_token, nonce=lambda: "c" * 24)
    server = ScramServer(mechanism, users, SECRET, nonce=lambda: "s" * 24)
    first = client.first()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hmac, "digest", counted_hmac)
        patch.setattr(hashlib, "new", counted_hash)
        patch.setattr(hashlib, "pbkdf2_hmac", forbidden)
        challenge = server.evaluate(first)
    final = client.evaluate(challenge)
    assert final is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hmac, "digest", counted_hmac)
        patch.setattr(hashlib, "new", counted_hash)
        with pytest.raises(InvalidCredentialsError):
            server.evaluate(final)
    return steps
