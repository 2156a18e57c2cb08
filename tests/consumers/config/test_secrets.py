"""Secrets in the settings: from variables and files, never printed, and certificates."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumers.config.document import SECRETS, settings_of
from consumers.config.settings import Settings, load, to_yaml
from consumers.errors import ConfigError
from tests.broker.secure import KEY_PASSWORD, Certificates
from tests.consumers.config.test_settings import SECRET, mistakes, write


def test_variables_are_taken_from_the_environment(tmp_path: Path) -> None:
    """`${NAME}` is filled in anywhere in a value, and text becomes a number where one belongs."""
    path = write(
        tmp_path,
        "source: file:${FOLDER}/a.jsonl\nhttp: {port: '${PORT}'}\nmodel: {classes: [\"${A}\", b]}\n"
        "labels: {mapping: {1: b}}\nkafka: {group_id: '$${plain}'}",
    )
    settings = load(path, {"FOLDER": "/data", "PORT": "9", "A": "x: y"})
    assert settings.source_address.path == Path("/data/a.jsonl")
    assert settings.http.port == 9
    assert settings.model.classes == ("x: y", "b")
    assert settings.kafka.group_id == "${plain}"


def test_variables_fill_numbers_beside_other_values(tmp_path: Path) -> None:
    """Also where a setting takes one of two numbers, or a number or a list; and what follows."""
    path = tmp_path / "config.yaml"
    path.write_text(
        "source: jetstream\njetstream: {version: '${V}', compress: true}\n"
        "model: {features: {x: {kind: categories, bins: '${B}'}, "
        "y: {kind: categories, bins: [1, '${V}']}}}\n",
        encoding="utf-8",
    )
    settings = load(path, {"V": "2", "B": "0.5"})
    assert settings.jetstream.version == 2
    assert settings.message.preset == "jetstream-v2"
    found = settings.model.features
    assert [getattr(found[name], "bins", None) for name in "xy"] == [0.5, (1.0, 2.0)]
    with pytest.raises(ConfigError, match=r"version: must be 1 or 2(.|\n)*bins: must be"):
        load(path, {"V": "3", "B": "many"})


def test_a_variable_that_is_not_set_is_named_with_its_key(tmp_path: Path) -> None:
    """A missing or misspelt variable is a mistake that names the key and the variable."""
    text = mistakes(tmp_path, "http:\n  port: ${PORT}\nkafka: {group_id: '${1}'}")
    assert "line 2: http.port: needs the variable PORT, which the environment does not" in text
    assert "kafka.group_id: has a ${ that is not ${NAME}" in text


def test_a_variable_that_is_no_utf_8_is_refused_and_not_shown(tmp_path: Path) -> None:
    """Or a client fails of it as it logs in, and says with which password."""
    text = mistakes(tmp_path, "kafka:\n  sasl_password: ${A}", A=SECRET + "\udce4")
    assert "line 2: kafka.sasl_password: needs UTF-8 in the variable A; its value is" in text
    assert SECRET not in text


@pytest.mark.parametrize("written", [SECRET, "${A}${B}", "x${A}", "12345", "$${A}"])
def test_a_password_in_the_file_is_refused_and_not_repeated(tmp_path: Path, written: str) -> None:
    """A password may come from the environment alone, and no message repeats one."""
    text = mistakes(tmp_path, f"kafka: {{sasl_password: '{written}', prot: 1}}", A="a", B="b")
    assert "write sasl_password: ${STREAMNB_KAFKA_PASSWORD} and set that variable" in text
    assert written not in text.replace("${STREAMNB_KAFKA_PASSWORD}", "")


def test_every_secret_setting_comes_from_the_environment() -> None:
    """Headers and the hash key may stand in a file, and are masked; no other secret may."""
    secret = {path for path, info in settings_of(Settings) if "SecretStr" in str(info.annotation)}
    assert secret - {"live.headers", "model.hash_key"} == {".".join(map(str, p)) for p in SECRETS}
    assert len(set(SECRETS.values())) == len(SECRETS)


@pytest.mark.parametrize("value", ["[{}]", "{{a: {}}}", "12345678"])
def test_a_header_is_not_repeated(tmp_path: Path, value: str) -> None:
    """A header may hold a secret: what stands in its place is not shown."""
    found = mistakes(tmp_path, f"live: {{headers: {{Authorization: {value.format(SECRET)}}}}}")
    assert "live.headers.Authorization: must be text" in found
    assert SECRET not in found
    assert "12345678" not in found


@pytest.mark.parametrize("path", SECRETS, ids=".".join)
def test_a_secret_in_the_file_is_refused_and_not_repeated(
    tmp_path: Path, path: tuple[str, ...]
) -> None:
    """Neither the secret nor a value of another type in its place is shown."""
    for written in (f"'{SECRET}'", f"[{SECRET}]", f"{{a: {SECRET}}}", "12345678"):
        found = mistakes(tmp_path, ": {".join(path) + f": {written}" + "}" * (len(path) - 1))
        assert ".".join(path) in found
        assert SECRET not in found
        assert "12345678" not in found
        if not written.startswith(("[", "{")):
            assert f"write {path[-1]}: ${{{SECRETS[path]}}} and set that variable" in found


def test_a_password_is_never_printed(tmp_path: Path) -> None:
    """Neither the settings, nor their YAML, nor a mistake elsewhere show a secret's value."""
    text = (
        "kafka: {security_protocol: SASL_SSL, sasl_mechanism: PLAIN, sasl_username: me,"
        " sasl_password: '${PW}'}\n"
    )
    settings = load(write(tmp_path, text), {"PW": SECRET})
    assert settings.kafka.sasl_password is not None
    assert settings.kafka.sasl_password.get_secret_value() == SECRET
    assert SECRET not in repr(settings) + str(settings) + to_yaml(settings)
    assert SECRET not in mistakes(tmp_path, text + "view: ${PW}", PW=SECRET)
    assert SECRET not in mistakes(tmp_path, "source: 'kafka://me:${PW}@h:1/t'", PW=SECRET)
    at = mistakes(tmp_path, f"source: 'kafka://me:{SECRET}@h:1/t'")
    assert "must not hold a user or a password" in at
    assert SECRET not in at


@pytest.mark.parametrize(
    "text",
    [
        "kafka: {servers: ['${PW}']}",
        "labels: {mapping: {a: '${PW}'}}",
        "labels: {mapping: {a: 'prefix-${PW}'}}",
        "http: {allowed_hosts: ['${PW}']}",
        "model: {classes: ['${PW}', '${PW}']}",
    ],
)
def test_a_mistake_shows_the_name_of_a_variable(tmp_path: Path, text: str) -> None:
    """Whichever check finds the mistake, the value that a variable had is not in its message."""
    found = mistakes(tmp_path, text, PW=f"{SECRET}'s \n")
    assert SECRET not in found
    assert "${PW}" in found


def test_a_list_without_end_is_refused_at_once(tmp_path: Path) -> None:
    """Aliases that make a billion entries of a few lines are a mistake, and are not spelt out."""
    lines = ["x0: &x0 [a, a, a, a, a, a, a, a, a, a]"]
    lines += [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]" for i in range(1, 9)]
    for key in ("labels: {kind: *x8}", "model: {class_prior: {fixed: *x8}}"):
        assert len(mistakes(tmp_path, "\n".join([*lines, key]))) < 10_000


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_secret_may_come_from_a_file(tmp_path: Path, end: str) -> None:
    """Password, key password and token are read from files, and shown by their path alone."""
    secret = tmp_path / "mounted"
    secret.write_text(f"{SECRET}{end}", newline="")
    settings = load(
        write(
            tmp_path,
            f"kafka: {{security_protocol: SASL_SSL, sasl_mechanism: PLAIN, sasl_username: me,"
            f" sasl_password_file: '{secret}'}}\nhttp: {{token_file: '${{FOLDER}}/mounted'}}",
        ),
        {"FOLDER": str(tmp_path)},
    )
    assert settings.kafka.password == settings.http.bearer_token == SECRET
    assert f"sasl_password_file: {secret}" in to_yaml(settings).replace("\n", " ")
    assert SECRET not in repr(settings) + str(settings) + to_yaml(settings)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "must be a file with the secret alone"),
        (b"marked-secret\nmarked-secret\n", "must be a file with the secret alone"),
        (b"marked-\xff", "must be a file of UTF-8 text"),
        (b"marked-" * 1000, "must be a file of at most 4096 bytes"),
        (b"marked", "must have at least 16 characters"),
        (b"marked-and-w\xc3\xa4re-long", "must be of letters, digits and signs of ASCII"),
    ],
)
def test_a_file_that_is_no_secret_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    """What stands in the file is a mistake of its path, and is not shown."""
    (tmp_path / "secret").write_bytes(content)
    text = mistakes(tmp_path, f"http: {{token_file: '{tmp_path / 'secret'}'}}")
    assert f"http.token_file: {expected}" in text
    assert "marked" not in text


@pytest.mark.parametrize(
    ("section", "key"),
    [("kafka", "sasl_password"), ("kafka", "ssl_key_password"), ("http", "token")],
)
def test_a_secret_comes_from_one_place(tmp_path: Path, section: str, key: str) -> None:
    """A secret from the environment and from a file at once is a mistake."""
    (tmp_path / "secret").write_text("marked, and long enough")
    text = mistakes(
        tmp_path,
        f"{section}: {{{key}: '${{A}}', {key}_file: '{tmp_path / 'secret'}'}}",
        A="marked, and long enough",
    )
    assert f"{section}: {key} and {key}_file are both given" in text
    assert "marked" not in text


def test_a_webhook_is_a_secret_address(tmp_path: Path) -> None:
    """Its path may be all that it asks for: it stands in the environment, and is shown nowhere."""
    inside = "https://hooks.example.org/marked"
    in_file = mistakes(tmp_path, f"alerts: {{webhook: '{inside}'}}")
    assert "STREAMNB_ALERTS_WEBHOOK" in in_file
    assert "webhook_file" not in in_file  # there is no such setting
    login = "https://me:marked@example.org/"
    ports = [f"https://marked.example.org:{port}/" for port in ("123456", "65536", "0", "")]
    for wrong in ("", "marked.example.org", login, *ports):
        refused = mistakes(tmp_path, "alerts: {webhook: '${A}'}", A=wrong)
        assert "alerts.webhook: must be an address as https://" in refused
        assert "marked" not in refused
    for address in (inside.replace("org", "org:65535"), inside):
        settings = load(write(tmp_path, "alerts: {webhook: '${A}'}"), {"A": address})
    assert settings.alerts.webhook is not None
    assert settings.alerts.webhook.get_secret_value() == inside
    assert "marked" not in repr(settings) + to_yaml(settings)


def test_a_certificate_must_fit_its_key(tmp_path: Path) -> None:
    """A key of another certificate, a locked key without its password, half a pair: mistakes."""
    files = Certificates(tmp_path / "certificates")
    secure = f"security_protocol: SSL, ssl_certfile: '{files.client}'"

    def refused(keys: str, **environ: str) -> str:
        return mistakes(tmp_path, f"kafka: {{{keys}}}", **environ)

    assert "do not fit each other" in refused(secure)
    assert "do not fit" in refused(f"{secure}, ssl_keyfile: '{files.authority}'")
    locked = f"{secure}, ssl_keyfile: '{files.locked_key}'"
    assert "ssl_key_password opens it" in refused(locked)
    assert "opens it" in refused(f"{locked}, ssl_key_password: '${{A}}'", A="wrong and marked")
    assert "marked" not in refused(f"{locked}, ssl_key_password: '${{A}}'", A="wrong and marked")
    assert "ssl_certfile must be given" in refused(f"ssl_keyfile: '{files.client_key}'")
    assert "needs security_protocol SSL" in refused(f"ssl_certfile: '{files.client}'")
    path = write(tmp_path, f"kafka: {{{locked}, ssl_key_password: '${{A}}'}}")
    assert load(path, {"A": KEY_PASSWORD}).kafka.key_password == KEY_PASSWORD
