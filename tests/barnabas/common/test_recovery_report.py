"""Recovery reports survive the encoding; damaged ones are refused."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, replace

import pytest

from barnabas.common.recovery_report import (
    ConfigValue,
    LogState,
    PartitionState,
    Report,
    ReportedImage,
    ReportError,
    decode_report,
    encode_report,
)

REPORT = Report(
    broker_id=1,
    cluster_id="c",
    controller_epoch=4,
    metadata_offset=77,
    broker_epoch=5,
    highest_producer_id=999,
    image=ReportedImage(
        offset=70,
        features={"metadata.version": 25},
        topics={"t": ("0a" * 16, [PartitionState(0, 1, 2, [0, 1], [1])])},
        configs=[ConfigValue(2, "t", "retention.ms", "7"), ConfigValue(4, "", "ssl.keystore.key", None)],
    ),
    logs=[LogState("t", 0, "0a" * 16, 3, 100, 4, 5, [0, 1]), LogState("u", 1, None, -1, 0)],
)


OLDER = bytes.fromhex(  # a copy from an existing disk
    "359260ac789c4d8ec10e02210c44ff65ce78d08b09bf620c4128bb44b404ca69e3bf6f3762e26ddeeb64d20d8fc64f6a2e47"
    "d88b4128a3cb4404a8e0b7342e451d550e2bece96cf022f1d18b779c5227f9cab9f4575bf3b25217571bc711e6ec71a839c8"
    "6804bbe1b7703548e40fdb557f0c84b535b37e91f2a270bb2b159e71074ccc4111"
)


@pytest.mark.parametrize("report", [REPORT, Report(0, "c")])
def test_a_report_is_decoded_as_encoded(report: Report) -> None:
    def plain(value: object) -> object:
        return repr(value).replace("[", "(").replace("]", ")").replace(",)", ")")

    assert plain(decode_report(encode_report(report))) == plain(report)


def test_copies_on_existing_disks_are_decoded() -> None:
    assert decode_report(OLDER) == Report(2, "c", image=ReportedImage(7))


def test_every_flipped_bit_and_every_truncation_is_refused() -> None:
    data = encode_report(REPORT)
    for index in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[index] ^= 1 << bit
            with pytest.raises(ReportError):
                decode_report(bytes(damaged))
        with pytest.raises(ReportError):
            decode_report(data[:index])


def test_unexpected_content_with_a_valid_checksum_is_refused() -> None:
    import json
    import zlib

    import crc32c

    for text in ("[]", "{}", json.dumps({"picture": 3, "logs": []}), json.dumps({"picture": None, "logs": [[1]]})):
        data = zlib.compress(text.encode())
        with pytest.raises(ReportError):
            decode_report(crc32c.crc32c(data).to_bytes(4, "big") + data)


def test_the_text_is_one_json_value_in_the_order_of_the_fields() -> None:
    assert REPORT.image is not None
    topics = {name: ("0b" * 16, [PartitionState(0, 1, 2, [1], [1])]) for name in ("a", 'quoted"', "b")}
    report = replace(REPORT, image=replace(REPORT.image, topics=topics), logs=[])
    text = zlib.decompress(encode_report(report)[4:]).decode()
    values = asdict(report)
    values["picture"] = values.pop("image")
    assert text == json.dumps(values, separators=(",", ":"))
