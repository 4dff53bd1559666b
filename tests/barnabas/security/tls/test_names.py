"""Distinguished names: what Java 17 prints for the same encoded names (X500Principal.getName())."""

from __future__ import annotations

import pytest

from barnabas.security.tls.names import distinguished_name

# Made by `cryptography`, printed by Java.
PRINTED = [
    (
        "3032310b300906035504061302444531133011060355040a0c0a41636d652c20496e632e310e300c06035504030c05616c696365",
        r"CN=alice,O=Acme\, Inc.,C=DE",
    ),
    (
        "30363119301706035504030c10206c65616420616e6420747261696c2031193017060355040b0c1023613b623c633e6422655c662b673d"
        "68",
        r"OU=\#a\;b\<c\>d\"e\\f\+g\=h,CN=\ lead and trail\ ",
    ),
    (
        "30573112301006035504030c09c3bce4b8adf09f98803114301206092a864886f70d01090116056140622e6331173015060a0992268993"
        "f22c64011916076578616d706c6531123010060a0992268993f22c6401010c027531",
        "UID=u1,DC=example,1.2.840.113549.1.9.1=#16056140622e63,CN=\u00fc\u4e2d\U0001f600",
    ),
    (
        "303d3114300806035504030c01613008060355040b0c0162310c300a06035504090c03732031310b300906035504080c027374310a3008"
        "06035504070c016c",
        "L=l,ST=st,STREET=s 1,CN=a+OU=b",
    ),
    (
        "3035310b3009060355040513023737310b3009060355040c0c024472310a300806035504030c0178310d300b06042a0304050c036f776e",
        "1.2.3.4.5=#0c036f776e,CN=x,2.5.4.12=#0c024472,2.5.4.5=#13023737",
    ),
    ("3011310f300d06035504031e060062006d0070", r"CN=\00b\00m\00p"),
    (
        "3025310c300a0603550403140374c3a931153013060355040a1c0c000000750000006e00000069",
        "O=#1c0c000000750000006e00000069,CN=t\u00e9",
    ),
    (
        "302a310e300c06035504030c05610d620a63310b3009060355040a0c022378310b300906035504070c022020",
        "L=\\ \\ ,O=\\#x,CN=a\rb\nc",
    ),
    ("3000", ""),
]


@pytest.mark.parametrize(("encoded", "printed"), PRINTED, ids=[printed for _, printed in PRINTED])
def test_names_are_written_as_java_writes_them(encoded: str, printed: str) -> None:
    assert distinguished_name(bytes.fromhex(encoded)) == printed


def test_a_malformed_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="DER"):
        distinguished_name(b"\x30\x05\x31")
