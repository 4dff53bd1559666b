"""The config providers: what each reads, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.config.errors import ConfigError
from barnabas.config.secrets.providers import PACKAGE, ConfigProvider, make_providers


def provider(kind: str, environment: dict[str, str] | None = None, **parameters: str) -> ConfigProvider:
    """A provider by the first word of its class."""
    properties = {"config.providers": "p", "config.providers.p.class": f"{PACKAGE}.{kind}ConfigProvider"}
    for name, value in parameters.items():
        properties[f"config.providers.p.param.{name.replace('_', '.')}"] = value
    return make_providers(properties, environment or {})["p"]


def test_a_file_gives_the_values_of_its_keys(tmp_path: Path) -> None:
    file = tmp_path / "secrets.properties"
    file.write_text("a = one\nb: two \\\n   lines\n")
    found = provider("File").get(str(file), "b")
    assert (found.value, found.file) == ("two lines", file)


def test_a_directory_gives_the_contents_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    assert provider("Directory").get(str(tmp_path), "token") == ("s3cret\n", tmp_path / "token")


def test_the_environment_gives_its_variables() -> None:
    assert provider("EnvVar", {"KEY": "v"}).get("", "KEY") == ("v", None)
    allowed = provider("EnvVar", {"MY_KEY": "v", "KEY": "w"}, allowlist_pattern="MY_.*")
    assert allowed.get("", "MY_KEY").value == "v"
    with pytest.raises(ConfigError, match=r"KEY is not allowed to be accessed \(allowlist.pattern\)"):
        allowed.get("", "KEY")


@pytest.mark.parametrize(
    ("kind", "path", "key", "reason"),
    [
        ("File", "", "a", "it names no file"),
        ("File", "{tmp}/absent", "a", "Could not read properties from file .*: No such file or directory"),
        ("File", "{tmp}/binary", "a", "it is not UTF-8 text"),
        ("File", "{tmp}/file", "b", "/file has no key b"),
        ("Directory", "", "a", "it names no directory"),
        ("Directory", "{tmp}/file", "a", "is not a directory"),
        ("Directory", "{tmp}", "absent", "has no file absent"),
        ("Directory", "{tmp}", "../{name}/file", "has no file"),
        ("Directory", "{tmp}", "", "has no file"),
        ("Directory", "{tmp}", "binary", "Could not read file .*: it is not UTF-8 text"),
        ("EnvVar", "", "ABSENT", "the environment has no variable ABSENT"),
        ("EnvVar", "/p", "KEY", "Path is not supported for EnvVarConfigProvider, invalid value '/p'"),
    ],
)
def test_what_is_not_there_is_an_error(tmp_path: Path, kind: str, path: str, key: str, reason: str) -> None:
    (tmp_path / "file").write_text("a=1")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    names = {"tmp": str(tmp_path), "name": tmp_path.name}
    with pytest.raises(ConfigError, match=reason):
        provider(kind, {"KEY": "v"}).get(path.format(**names), key.format(**names))


@pytest.mark.parametrize("kind", ["File", "Directory"])
def test_a_provider_reads_allowed_paths_only(tmp_path: Path, kind: str) -> None:
    for name in ("allowed", "allowed-not", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text("f=1")
    tail = "/f" if kind == "File" else ""
    some = provider(kind, allowed_paths=f"{tmp_path}/allowed,{tmp_path}/other/f")
    assert some.get(f"{tmp_path}/allowed{tail}", "f").value in ("1", "f=1")
    for path in ("allowed-not", "allowed/../allowed-not"):
        with pytest.raises(ConfigError, match=r"is not allowed to be accessed \(allowed.paths\)"):
            some.get(f"{tmp_path}/{path}{tail}", "f")
    assert provider(kind, allowed_paths="/").get(f"{tmp_path}/other{tail}", "f")


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"config.providers": "a"}, "config.providers names a, but config.providers.a.class is missing"),
        (
            {"config.providers": "a", "config.providers.a.class": "org.example.Vault"},
            "Invalid value org.example.Vault for configuration config.providers.a.class: this class cannot be loaded",
        ),
        (
            {
                "config.providers": "a",
                "config.providers.a.class": f"{PACKAGE}.FileConfigProvider",
                "config.providers.a.param.allowed.paths": "relative",
            },
            "config.providers.a: Path relative is not absolute",
        ),
        (
            {
                "config.providers": "a",
                "config.providers.a.class": f"{PACKAGE}.DirectoryConfigProvider",
                "config.providers.a.param.allowed.paths": "/absent/path",
            },
            "config.providers.a: Path /absent/path does not exist",
        ),
        (
            {
                "config.providers": "a",
                "config.providers.a.class": f"{PACKAGE}.EnvVarConfigProvider",
                "config.providers.a.param.allowlist.pattern": "(",
            },
            r"config.providers.a: allowlist.pattern=\( is not a pattern",
        ),
    ],
)
def test_a_provider_that_cannot_work_is_refused(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        make_providers(properties, {})


def test_without_config_providers_there_are_none() -> None:
    assert make_providers({"config.providers.a.class": "x"}, {}) == {}
