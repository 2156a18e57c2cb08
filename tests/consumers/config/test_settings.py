"""Settings: defaults, mistakes, and what sections say of each other; secrets: test_secrets.py."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from consumers import reporter
from consumers.config.addresses import OWN_FILES, KafkaSettings, OutputAddress, SourceAddress
from consumers.config.model import WordsSettings
from consumers.config.settings import (
    Settings,
    load,
    message_names,
    placeholder,
    question,
    to_yaml,
    user_prefix,
)
from consumers.corrections import journal
from consumers.errors import ConfigError
from consumers.pipeline import checkpoint, erasure
from consumers.search import store

SECRET = "correct horse battery staple"


def write(folder: Path, text: str) -> Path:
    """Return a configuration file of this text."""
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def mistakes(folder: Path, text: str, **environ: str) -> str:
    """Return what is said of a wrong configuration."""
    with pytest.raises(ConfigError) as caught:
        load(write(folder, text), environ)
    assert caught.value.exit_code == 78
    return str(caught.value)


def test_no_output_is_a_file_that_is_read_by_another_name(tmp_path: Path) -> None:
    """A link would have the daemon read what it writes as well."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "in.jsonl")
    source = f"source: file:{tmp_path / 'in.jsonl'}\n"
    rejects = f"{source}rejects: {{to: 'file:{link}'}}"
    assert "the source's own file" in mistakes(tmp_path, rejects)


def test_the_daemon_s_own_files_are_known_by_their_names() -> None:
    """The settings name what five modules keep in the state folder, and cannot import them."""
    kept = {each.FILE_NAME for each in (checkpoint, store, journal, erasure)}
    assert set(OWN_FILES) == kept | {reporter.HISTORY_NAME}


EVEN = "class_prior: {fixed: {negative: 0.5, positive: 0.5}}"
SHARED_LABELS = "source: kafka://h:1/t\ncorrections: {to: 'kafka:c'}"


@pytest.mark.parametrize("text", ["", "# nothing\n", "kafka:\nmodel:\n  # classes: [a, b]\n"])
def test_an_empty_file_is_the_defaults(tmp_path: Path, text: str) -> None:
    """A file without keys, or with sections whose keys are all commented out, is the defaults."""
    assert load(write(tmp_path, text), {}) == Settings() == load(None, {})


def test_what_is_checked_once_mistakes_are_mended_is_told(tmp_path: Path) -> None:
    """Contradictions are listed together, and where they are not looked for yet it is said."""
    contradicting = "labels: {mapping: {x: foo}}\nmodel: {half_life_s: 100}\n"
    for more in ("sorce: generator\n", "http: {port: x}\n"):
        first = mistakes(tmp_path, contradicting + more).splitlines()
        assert first[0].endswith("1 mistake")
        assert first[-1] == (
            "  Whether settings contradict each other is checked once these are mended."
        )
    then = mistakes(tmp_path, contradicting).splitlines()
    assert then[0].endswith("3 mistakes")
    assert len(then) == 4


def test_every_mistake_is_listed_at_once(tmp_path: Path) -> None:
    """Each mistake has its line, its path, what was found and what is allowed."""
    text = mistakes(
        tmp_path,
        """\
kafka:
  group_idd: x
  max_poll_messages: 0
  retry_pause_max_s: .inf
http:
  port: 70000
view: window
quick: 3
port: 1
""",
    )
    lines = text.splitlines()
    assert lines[0].endswith("6 mistakes") or lines[0].endswith("7 mistakes")
    assert "  line 2: kafka.group_idd: is no known key; did you mean kafka.group_id?" in text
    assert "line 3: kafka.max_poll_messages: must be greater than or equal to 1; found '0'" in text
    assert "line 4: kafka.retry_pause_max_s: must be a finite number; found '.inf'" in text
    assert "line 6: http.port: must be less than or equal to 65535; found '70000'" in text
    assert "line 7: view: must be 'auto', 'live' or 'log'; found 'window'" in text
    assert "line 8: quick: is no known key; known here: source, generator" in text
    assert "line 9: port: is no known key; did you mean http.port?" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http: {port: true}", "http.port: must be a number; found 'true'"),
        ("model: {half_life_s: true}", "model.half_life_s: must be a number; found 'true'"),
        ("model: {prior_half_life: true}", "model.prior_half_life: must be a number"),
        ("jetstream: {start_at: false}", "jetstream.start_at: must be a number"),
        ("jetstream: {start_at: 1767225600}", "1767225600 looks like seconds"),
        ("jetstream: {start_at: 1767225600000}", "1767225600000 looks like milliseconds"),
        ("jetstream: {start_at: 1767225600000, version: 2}", "or a number of the host's"),
        ("live: {ssl_cafile: no.pem}", "live.ssl_cafile: must be a file of certificates (PEM) th"),
        ("live: {ssl_cafile: /etc/passwd}", "live.ssl_cafile: must be a file of certificates"),
        ("model: {costs: {negative: {positive: true}}}", "costs.negative.positive: must be a num"),
        ("http: {enabled: 3}", "http.enabled: must be true or false; found '3'"),
        ("http: 3", "http: must be a section of keys and values; found '3'"),
        ("model: {classes: [yes, no]}", "model.classes.0: must be text"),
        ("model: {classes: [a]}", "model.classes: must be at least 2 names; found ['a']"),
        ("model: {classes: [a, a]}", "'a' stands there more than once"),
        ("model: {features: {}}", "model.features: must hold at least one feature group"),
        ("model: {features: {text: {ngrams: [2, 1]}}}", "1 ≤ shortest ≤ longest"),
        ("model: {features: {text: {ngrams: [1, 9]}}}", "longest ≤ 8"),
        ("model: {features: {text: {ngrams: [1, 1], ends: true}}}", "two words or more"),
        (
            "model: {features: {text: {likelihood: bernoulli, counts: occurrence}}}",
            "take the multinomial",
        ),
        ("model: {features: {text: {likelihood: complement, alpha: 0}}}", "alpha must be above 0"),
        ("model: {features: {text: {normalise: true}}}", "normalise is for the complement"),
        ("model: {features: {text: {beta: [1]}}}", "model.features.text.beta.1: is missing"),
        ("model: {features: {text: {alfa: 1}}}", "did you mean model.features.text.alpha?"),
        ("model: {features: {title: {}}}", "add 'title' to message.fields"),
        ("message: {fields: [a, a]}", "message.fields: must be distinct"),
        ("message: {id: []}", "message.id: must be a field's name or path, or a list of them"),
        ("message: {id: 3}", "message.id: must be a field's name or path, or a list of them"),
        ("message: {id: [a, '']}", "message.id: must be a field's name or path, or a list of them"),
        ("message: {id: ''}", "message.id: must be a field's name or path, or a list of them"),
        ("message: {id: [a, b, a]}", "message.id: must be distinct"),
        ("message: {format: xml}", "message.format: must be 'json', 'text', 'avro'"),
        ("message: {format: avro}", "format avro needs registry.url"),
        ("message: {format: json-schema}", "is for topics and their recordings"),
        ("source: jetstream\nmessage: {format: text}", "has a format of its own"),
        ("source: file:x\nfile: {format: csv}\nmessage: {format: text}", "must be json with"),
        ("message: {format: text, text: body}", "format text needs text: text and no unwrap"),
        ("message: {registry: {user: u}}", "user and password (or password_file) belong together"),
        (
            "message: {registry: {password_file: /no/such}}",
            "a file that this user can read (No such file",
        ),
        (
            "message: {registry: {ssl_cafile: /no/such}}",
            "ssl_cafile must be a file of certificates",
        ),
        ("message: {registry: {url: 'http://u:p@h'}}", "registry.url: must be an address alone"),
        ("message: {registry: {url: 'http://h/?key=1'}}", "must be an address alone"),
        ("message: {registry: {url: 'ftp://h'}}", "must be an address such as https://"),
        ("message: {registry: {url: 'http://h:x'}}", "must be an address such as https://"),
        ("labels: {kind: stars}", "whose kind is field or emoticons"),
        ("labels: {signs: {}}", "labels.signs: is no known key"),
        ("labels: {mapping: {4: positve}}", "labels.mapping.4: names 'positve'"),
        ("labels: {mapping: {4: positve}}", "(did you mean 'positive'?)"),
        ("labels: {mapping: {on: positive}}", "put the key in quotes"),
        ("labels: {kind: emoticons, signs: {positive: ['']}}", "must not hold an empty sign"),
        ("labels: {kind: emoticons, signs: {positive: [x], negative: [x]}}", "'x' stands there"),
        ("labels: {kind: emoticons, signs: {positive: [x]}}", "it could never be learned"),
        ("kafka: {servers: [localhost]}", "must name each server as HOST:PORT"),
        ("kafka: {fetch_max_bytes: 1024}", "could never be fetched"),
        ("kafka: {transactions: true}", "transactions: needs a Kafka topic as the source"),
        ("kafka: {transactions: true}", "needs predictions.to or rejects.to to be kafka:TOPIC"),
        (
            "source: kafka://a:1/t\nkafka: {transactions: true, servers: [b:1]}",
            "transactions: needs outputs on the source's own brokers",
        ),
        (
            "source: kafka://a:1/t\nkafka: {transactions: true}\ngroup: {folder: shared}",
            "transactions: is for a single daemon",
        ),
        ("kafka: {security_protocol: SASL_SSL}", "sasl_mechanism, sasl_username, sasl_password"),
        ("kafka: {sasl_mechanism: PLAIN}", "needs security_protocol SASL_SSL"),
        ("kafka: {ssl_cafile: /no/such.pem}", "kafka.ssl_cafile: must be a file of certificates"),
        (
            "kafka: {ssl_keyfile: /no/such.key}",
            "kafka.ssl_keyfile: must be a file of a private key",
        ),
        ("kafka: {ssl_key_password_file: ''}", "must be the path of a file that holds the secret"),
        ("kafka: {sasl_password_file: /no/such}", "a file that this user can read (No such file"),
        (f"model: {{class_prior: {10**400}}}", "model.class_prior: must be a number of at least 0"),
        ("source: kafka://h:9092", "source: must end with /TOPIC"),
        ("source: kafka://h:0/t", "with a port of 1 to 65535"),
        ("source: 'file:'", "source: must name a file"),
        ("predictions: {to: 'kafka:t'}", "predictions.to: needs brokers: set kafka.servers"),
        ("predictions: {to: 'kafka://h:1/t'}", "must be kafka:TOPIC; the servers go to"),
        ("predictions: {labelled: true}", "labelled needs predictions.to, where the"),
        ("predictions: {to: stdout}", "must be none, file:PATH or kafka:TOPIC"),
        ("source: kafka://h:1/t\nrejects: {to: 'kafka:t'}", "it would read what it writes"),
        ("source: file:a\nrejects: {to: 'file:a'}", "it would read what it writes"),
        ("predictions: {to: 'file:a'}\nrejects: {to: 'file:a'}", "the records differ"),
        ("predictions: {to: 'file:a'}\nrejects: {to: 'file:./b/../a'}", "the records differ"),
        ("rejects: {to: 'file:state/model.nb.1'}", "a file that the daemon keeps in"),
        ("rejects: {to: 'file:./state/recent.db'}", "a file that the daemon keeps in"),
        ("corrections: {to: file}", "corrections.to: must be none, journal or kafka:TOPIC"),
        ("corrections: {to: 'kafka:t'}", "corrections.to: needs brokers"),
        ("source: kafka://h:1/t\ncorrections: {to: 'kafka:t'}", "corrections are no messages"),
        (
            "kafka: {servers: ['h:1']}\nrejects: {to: 'kafka:t'}\ncorrections: {to: 'kafka:t'}",
            "corrections.to: must not be where rejects.to goes",
        ),
        (
            "source: kafka://h:1/t\ngroup: {folder: shared}",
            "group.folder: needs corrections.to: kafka:TOPIC or none",
        ),
        (
            "group: {folder: s}\nlearned: {messages_max: 0}\n" + SHARED_LABELS,
            "group.folder: needs learned.messages_max above 0",
        ),
        (
            "model: {half_life_s: 60}",
            "model.half_life_s: needs learned.messages_max: 0, as decayed counts round",
        ),
        ("model: {half_life_s: 60}", "model.half_life_s: needs corrections.to: none"),
        (
            f"model: {{prior_half_life: 9, {EVEN}}}",
            "model.prior_half_life: must be null or 0 with a fixed class_prior",
        ),
        (
            f"model: {{prior_half_life: 9}}\nchallengers: {{a: {{{EVEN}}}}}",
            "challengers.a.prior_half_life: must be null or 0 with a fixed class_prior",
        ),
        ("model: {prior_half_life: -1}", "model.prior_half_life: must be"),
        (
            "labelling: {enabled: true}\ncorrections: {to: none}",
            "labelling.enabled: needs corrections.to: journal or kafka:TOPIC",
        ),
        (
            "labelling: {enabled: true}\nrecent: {enabled: false}",
            "labelling.enabled: needs recent.enabled: true",
        ),
        (
            "model: {half_life_s: 60, features: {text: {likelihood: complement, normalise: true}}}",
            "model.features.text.normalise: does not go with model.half_life_s",
        ),
        (
            "alerts: {queries: [obama]}\nrecent: {enabled: false}",
            "alerts.queries: needs recent.enabled: true",
        ),
        (
            "alerts: {queries: [obama]}\nhttp: {enabled: false}",
            "alerts.queries: needs http.enabled: true",
        ),
        ("alerts: {rise_min: 1}", "alerts.rise_min: must be"),
        ("challengers: {model: {}}", "challengers.model: is no name of a challenger"),
        (
            "challengers: {a: {hash_key: 'ab12'}}",
            "challengers.a.hash_key: is no known key; did you mean model.hash_key?",
        ),
        (
            "challengers: {a: {class_prior: {negative: 1}}}",
            "challengers.a.class_prior: must have a number for every class; 'positive' has none",
        ),
        (
            "challengers: {a: {features: {text: {alpha_by_class: {negative: 1}}}}}",
            "challengers.a.features.text.alpha_by_class: must name every class of model.classes",
        ),
        (
            "challengers: {a: {features: {lang: {kind: categories}}}}",
            "challengers.a: reads 'lang' as categories, and model.features does not",
        ),
        (
            "challengers: {a: {features: {text: {ngrams: [2, 1]}}}}",
            "challengers.a.features.text.ngrams: must be [shortest, longest]",
        ),
        ("challengers: {a: {}}\ngroup: {folder: s}", "challengers: must be empty with a group"),
        (
            "challengers: {a: {}}\nlearned: {messages_max: 0}",
            "challengers: needs learned.messages_max above 0 for corrections",
        ),
        ("per: {field: lang, values: [de, en-US]}", "per.values.1: must be 'en': of a language"),
        ("per: {field: lang, values: [DE]}", "per.values.0: must be 'de'"),
        ("per: {field: lang, values: [und]}", "per.values.0: is an unknown language"),
        (f"per: {{field: user, values: [{'ü' * 33}]}}", "per.values.0: has more than 64 bytes"),
        ("kafka: {fetch_max_bytes: 2147483648}", "kafka.fetch_max_bytes: must be less than 2147"),
        (
            "kafka: {fetch_max_bytes: 2000000000, message_max_bytes: 1000000001}",
            "kafka.message_max_bytes: must be less than or equal to 1000000000",
        ),
        ("kafka: {max_poll_messages: 1000001}", "kafka.max_poll_messages: must be less than or"),
        ("kafka: {bootstrap_timeout_s: 2147484}", "kafka.bootstrap_timeout_s: must be less than"),
        (
            "file: {batch_bytes: 100000000000}",
            "file.batch_bytes: must be less than or equal to 107",
        ),
        ("group: {interval_s: 1e10}", "group.interval_s: must be less than or equal to 4000000000"),
        ("promotion: {margin_nats: -1}", "promotion.margin_nats: must be greater than or equal"),
        ("http: {token: '0123456789abcdef'}", "write token: ${STREAMNB_TOKEN} and set that"),
        ("view: log\nview: live", "view: stands twice, in lines 1 and 2"),
        ("- source", "it must be keys and values"),
    ],
)
def test_a_mistake_says_what_is_allowed(tmp_path: Path, text: str, expected: str) -> None:
    """Whatever is wrong, the message names the place and the way out."""
    assert expected in mistakes(tmp_path, text)


def test_a_challenger_says_in_what_it_differs(tmp_path: Path) -> None:
    """What it leaves out of its section and of its groups is as in `model`."""
    text = """
model: {calibration: true, features: {text: {max_words: 500, ngrams: [1, 1]}}}
challengers:
  same:
  pairs: {features: {text: {ngrams: [1, 2]}}, calibration: false}
  bernoulli: {features: {text: {likelihood: bernoulli}}, class_prior: 2}
"""
    models = load(write(tmp_path, text), {}).models
    assert models["same"] == models["model"]
    pairs, bernoulli = models["pairs"].features["text"], models["bernoulli"].features["text"]
    assert isinstance(pairs, WordsSettings)
    assert isinstance(bernoulli, WordsSettings)
    assert (pairs.ngrams, pairs.max_words, pairs.hybrid) == ((1, 2), 500, True)
    assert (bernoulli.ngrams, bernoulli.max_words, bernoulli.hybrid) == ((1, 1), 500, False)
    assert [each.calibration for each in models.values()] == [True, True, False, True]
    assert [each.class_prior for each in models.values()] == [1.0, 1.0, 1.0, 2.0]
    made = load(tmp_path / "config.yaml", {})
    assert load(write(tmp_path, to_yaml(made)), {}).models == models
    shown = mistakes(tmp_path, "challengers: {a: {hash_key: 'ab12'}}")
    assert "ab12" not in shown


def test_classes_that_join_need_no_place_in_the_settings(tmp_path: Path) -> None:
    """A mapping may make new classes of labels; a prior of each class would lack theirs."""
    mapping = "labels: {mapping: {a: other}}"
    assert "is not in model.classes" in mistakes(tmp_path, mapping)
    path = write(tmp_path, f"model: {{new_classes: true}}\n{mapping}")
    assert load(path, {}).model.new_classes
    prior = "model: {new_classes: true, class_prior: {negative: 1, positive: 2}}"
    assert "model.class_prior: must be one number with new_classes" in mistakes(tmp_path, prior)


def test_a_short_token_is_refused(tmp_path: Path) -> None:
    """A token that could be guessed is a mistake, and is not shown."""
    text = mistakes(tmp_path, "http: {token: '${A}'}", A="hunter2")
    assert "http.token: must have at least 16 characters" in text
    assert "hunter2" not in text


@pytest.mark.parametrize("token", ["0123456789abcdéf", "0123456789abcdef "])
def test_a_token_that_no_header_carries_is_refused(tmp_path: Path, token: str) -> None:
    """A token that one client would send otherwise than another is a mistake, and is not shown."""
    text = mistakes(tmp_path, "http: {token: '${A}'}", A=token)
    assert "http.token: must be of letters, digits and signs of ASCII" in text
    assert "0123" not in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1\nb: }", "line 2, column 2"),
        ("a: b: c", "line 1, column 5"),
        ("a: 1\n---\nb: 2", "line 2, column 1"),
        ("[" * 5000, "nested too deeply"),
        ("a: \x00", "special characters are not allowed"),
    ],
)
def test_what_is_no_yaml_is_told_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    """A syntax error has its line and column."""
    assert expected in mistakes(tmp_path, text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file, and one in another encoding, are told by name."""
    with pytest.raises(ConfigError, match=r"nowhere.yaml cannot be read: No such file"):
        load(tmp_path / "nowhere.yaml", {})
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("source: file:caf\xe9".encode("latin-1"))
    with pytest.raises(ConfigError, match="is not UTF-8 at byte 16"):
        load(latin, {})


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    """What the command line says wins, and a mistake in it has no line of the file."""
    path = write(tmp_path, "source: stdin\nview: log")
    assert load(path, {}, {"source": "file:a"}).source_address.path == Path("a")
    with pytest.raises(ConfigError, match=r"\n  source: must be generator, .*; found 'b'") as both:
        load(path, {}, {"source": "b", "view": "log", "http.port": None})
    assert str(both.value).startswith(f"{path} with source and view of the command line cannot be")


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("view: log", "time_us"),
        ("message:", "time_us"),
        ("message: mastodon", "time_us"),
        ("message: {preset: mastodon, nfc: false}", "time_us"),
        ("message: {time: own}", "own"),
    ],
)
def test_a_preset_of_the_command_line_wins_over_the_files(
    tmp_path: Path, text: str, time: str
) -> None:
    """Also where the file names its own by one word; single settings beside it stay."""
    message = load(write(tmp_path, text), {}, {"message.preset": "jetstream"}).message
    assert (message.preset, message.user, message.time) == ("jetstream", "did", time)
    assert message.nfc == ("nfc" not in text)


@pytest.mark.parametrize(
    ("text", "servers", "topic"),
    [
        ("kafka://127.0.0.1:9092/tweets", ("127.0.0.1:9092",), "tweets"),
        ("kafka://a:1,b.c:2/t_1.x-y", ("a:1", "b.c:2"), "t_1.x-y"),
        ("kafka://[::1]:9092/t", ("[::1]:9092",), "t"),
    ],
)
def test_a_kafka_address_is_taken_apart(text: str, servers: tuple[str, ...], topic: str) -> None:
    """Brokers and topic are read off the address."""
    address = SourceAddress.parse(text)
    assert (address.kind, address.servers, address.topic) == ("kafka", servers, topic)


def test_outputs_go_to_their_own_servers_or_to_the_sources() -> None:
    """`kafka.servers` is where outputs go; without it, the brokers of the source."""
    source = "kafka://a:1,b:2/t"
    assert Settings(source=source).output_servers == ("a:1", "b:2")
    own = Settings(source=source, kafka=KafkaSettings(servers=("c:3",)))
    assert own.output_servers == ("c:3",)
    assert Settings().output_servers == ()
    assert OutputAddress.parse("kafka:out").topic == "out"


@given(st.text(max_size=40))
def test_any_address_is_taken_apart_or_refused(text: str) -> None:
    """No text, however odd, does anything but parse or raise ValueError."""
    for prefix in ("", "kafka://", "kafka://h:1/", "file:", "kafka:"):
        for kind in (SourceAddress, OutputAddress):
            said = "must"
            try:
                kind.parse(prefix + text)
            except ValueError as error:
                said = str(error)
            assert said.startswith("must")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: (
    st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from(["source", "kafka", "labels", "model", "text", "features"])
                      | st.text(max_size=5), inner, max_size=4)
)))  # fmt: skip
def test_any_yaml_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: object
) -> None:
    """Whatever a file holds, reading it ends in settings or in a ConfigError."""
    path = tmp_path_factory.mktemp("any") / "config.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    outcome: object
    try:
        outcome = load(path, {})
    except ConfigError as error:
        outcome = str(error)
    assert isinstance(outcome, Settings) or outcome


def test_what_is_in_force_can_be_read_back(tmp_path: Path) -> None:
    """The YAML that check-config prints is a configuration with the same meaning."""
    settings = load(None, {}, {"source": "kafka://h:1/t"})
    assert load(write(tmp_path, to_yaml(settings)), {}) == settings


@pytest.mark.parametrize(
    ("text", "names", "asked"),
    [
        ("{}", ("tweet", "tweets"), "Sentiment analysis for"),
        ("generator: {stream: loans}", ("application", "applications"), "Sentiment analysis for"),
        ("generator: {stream: sensors}", ("reading", "readings"), "Sentiment analysis for"),
        ("source: 'file:x'", ("message", "messages"), "Sentiment analysis for"),
        ("{source: 'file:x', message: mastodon}", ("post", "posts"), "Sentiment analysis for"),
        ("model: {classes: [calm, cross]}", ("tweet", "tweets"), "Predictions for"),
        ("page: {message_name: entry, message_name_plural: entries, question: Of}",
         ("entry", "entries"), "Of"),
    ],
)  # fmt: skip
def test_what_the_page_calls_things(
    tmp_path: Path, text: str, names: tuple[str, str], asked: str
) -> None:
    """A message is called as the configuration says, else by its source; so is the question."""
    settings = load(write(tmp_path, text), {})
    assert message_names(settings) == names
    assert question(settings) == asked


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("{}", "@"),
        ("source: 'file:x'", "@"),
        ("{source: 'file:x', message: mastodon}", "@"),
        ("{source: 'file:x', message: wikimedia}", ""),
        ("{source: 'file:x', message: {user: device}}", ""),
        ("generator: {stream: sensors}", ""),
    ],
)
def test_what_stands_before_a_user(tmp_path: Path, text: str, prefix: str) -> None:
    """Users of social streams, and those of the default field, are told by their handles."""
    assert user_prefix(load(write(tmp_path, text), {})) == prefix


def test_what_stands_in_the_empty_search_box(tmp_path: Path) -> None:
    """A tag is offered where there are words; what the configuration says wins."""
    settings = load(None, {})
    assert placeholder(settings, ["words", "flags"]) == 'words, "a phrase", -without, #tag'
    assert placeholder(settings, ["numbers"]) == "a value, -without, label:CLASS"
    own = load(write(tmp_path, "page: {placeholder: find}"), {})
    assert placeholder(own, ["numbers"]) == "find"


def test_classes_of_the_page(tmp_path: Path) -> None:
    """The page names classes of the model in colours that it has; with new classes any name."""
    own = "classes: {sad: {name: low}}"
    found = mistakes(tmp_path, f"page: {{{own}}}")
    assert "page.classes.sad: is not in model.classes: 'negative', 'positive'" in found
    assert "page.classes.positive.colour" in mistakes(
        tmp_path, "page: {classes: {positive: {colour: '#ffffff'}}}"
    )
    settings = load(write(tmp_path, f"page: {{{own}}}\nmodel: {{new_classes: true}}"), {})
    assert settings.page.classes["sad"].name == "low"


def test_the_source_alone_implies_how_its_messages_are_read() -> None:
    """`source: jetstream` brings the preset of its wire, and labels by emoticons; what is set wins,
    and other sources imply nothing.
    """
    first = Settings.model_validate({"source": "jetstream"})
    assert first.message.id == ("did", "commit.collection", "commit.rkey")
    assert first.labels.kind == "emoticons"
    second = {"source": "jetstream://example.org", "jetstream": {"version": 2}}
    assert Settings.model_validate(second).message.text == "payload.record.text"
    own = {"message": {"text": "t"}, "labels": {"field": "x"}, "model": {"classes": ["a", "b"]}}
    given = Settings.model_validate({"source": "jetstream", **own})
    assert (given.message.text, given.labels.kind) == ("t", "field")
    assert Settings().labels.kind == "field"
