"""A password in a URL is told to nobody but the server."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import event, make_url

from broker import Broker, Options, schema
from broker.connections import connect
from broker.database_url import database_url
from broker.errors import BrokerError, ConfigurationError, DatabaseUnavailable
from broker.moving import move
from broker.postgresql.engine import make_engine
from tests.cli.support import run
from tests.migrations.support import run_alembic
from tests.places import PostgresPlace, url_of
from tests.security.support import PASSWORD, Told, with_password

NOWHERE = "127.0.0.1:1/nowhere"  # a port where nobody listens
SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key")


def test_a_store_that_is_open_shows_no_password(place: PostgresPlace, told: Told) -> None:
    with Broker.open(url_of(with_password(place))) as store:
        told.add(store, store.engine, store.engine.url, store.engine.pool, store._connections)
        assert schema.upgrade(store.engine) == []  # the engine's URL is as good as the one given
    assert told.secrets() == set()


@pytest.mark.parametrize("option", SECRETS)
def test_what_is_secret_among_a_urls_options_is_not_shown(told: Told, option: str) -> None:
    url = database_url(f"postgresql://user@{NOWHERE}?{option}={PASSWORD}&application_name=mine")
    engine = make_engine(url)
    told.add(engine, engine.url)
    given: dict[str, object] = {}

    def connect_to(_dialect: object, _record: object, _: object, arguments: object) -> None:
        assert isinstance(arguments, dict)
        given.update(arguments)
        raise ConnectionAbortedError

    event.listen(engine, "do_connect", connect_to)
    with pytest.raises(ConnectionAbortedError):
        engine.connect()
    assert (given[option], given["application_name"]) == (PASSWORD, "mine")
    assert told.secrets() == set()


URLS = [
    f"postgresql://user:{PASSWORD}@{NOWHERE}",
    f"postgresql://user@{NOWHERE}?password={PASSWORD}",
    f"postgresql://user:part@{PASSWORD}@{NOWHERE}",
    f"postgresql://user:{PASSWORD}@127.0.0.1:port/nowhere",
    f"postgresql://user:{PASSWORD}@{NOWHERE}?nonsense=1",
    f"postgresql+nonsense://user:{PASSWORD}@{NOWHERE}",
    f"mysql://user:{PASSWORD}@{NOWHERE}",
    f"sqlite://user:{PASSWORD}@host/nowhere.db",
    f"postgresql//user:{PASSWORD}@{NOWHERE}",
]
ROADS: dict[str, Callable[[str], object]] = {
    "Broker.open": Broker.open,
    "schema.upgrade": schema.upgrade,
    "move": lambda url: move(url, url),
}


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("road", ROADS)
def test_a_url_that_leads_nowhere_is_refused_without_its_password(
    told: Told, url: str, road: str
) -> None:
    told.refusal(BrokerError, ROADS[road], url)
    assert told.secrets() == set()


def test_two_signs_in_a_url_are_told_of_and_not_taken_for_a_host() -> None:
    with pytest.raises(ConfigurationError, match="as %40"):
        Broker.open("postgresql://user:p@ss@host/name")
    assert make_url("postgresql://user:p%40ss@host/name").password == "p@ss"  # noqa: S105


# ------------------------------------------------------------------------------------- the commands

URL = URLS[0]
COMMANDS = [
    ("check", "--url", URL),
    ("check", "--json", "--url", URL),
    ("upgrade", "--url", URL),
    ("upgrade", "--json", "--url", URL),
    ("apply", "-", "--url", URL),
    ("move", URL, URL),
    ("move", "--json", URL, "sqlite:///broker.db"),
    # and where a URL has no business
    ("upgrade", URL),
    ("check", URL),
    ("apply", URL),
    ("schemas", URL),
    ("demo", "--db", URL),
    (URL,),
    ("check", "--schema", URL),
    ("check", "--json", "--schema", URL),
    ("upgrade", "--url", URLS[2]),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_command_prints_a_password(
    told: Told,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))
    monkeypatch.delenv("BROKER_DATABASE_URL", raising=False)
    code, out, err = run(capsys, *arguments)
    told.texts += [out, err]
    assert code == 2
    assert told.secrets() == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ("-x", f"url={URL}", "upgrade", "head"),
        ("-x", URL, "upgrade", "head"),
        ("upgrade", URL),
        ("-x", f"schema={URL}", "-x", "url=sqlite:///nowhere.db", "current"),
        ("stamp", URL),
    ],
    ids=" ".join,
)
def test_alembic_prints_no_password(told: Told, arguments: tuple[str, ...]) -> None:
    done = run_alembic(*arguments)
    told.texts += [done.stdout, done.stderr]
    assert done.returncode != 0
    assert told.secrets() == set()


def test_a_pool_that_cannot_connect_any_more_shows_no_password(told: Told) -> None:
    options = Options(busy_timeout_ms=0)
    connections = connect(database_url(URL), options)
    store = Broker(connections, options)
    told.refusal(DatabaseUnavailable, store.get_lease, {"actorId": "actor"})
    told.add(store, store.engine)
    store.close()
    assert told.secrets() == set()
