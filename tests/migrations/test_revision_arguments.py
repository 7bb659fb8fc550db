"""What may be given as a revision, and that nothing is opened or made for what may not."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import make_url

from broker import schema
from broker.errors import BrokerError, ConfigurationError, DatabaseUnavailable
from broker.schema import migrate
from tests.migrations.support import assert_one_line, looking, on, run_alembic, schema_of, url

NEVER = [
    "",
    " ",
    "x-y",
    "head@",
    "@head",
    "0002+",
    "+0",
    "0002+0",
    "+5",
    "-5",
    "0002+3",
    "0002-3",
    "heads-1",
    "base-1",
    "head+1",
    "nope",
    "00",
    "0005",
    "0001\n",
    "\u0660\u0660\u0660\u0661",
    "+" + "9" * 5_000,
    "a\nb",
]
#: Where each leads from 0002, in the direction that the command goes.
UPWARDS = {
    "head": "0004",
    "heads": "0004",
    "0003": "0003",
    "+1": "0003",
    "+2": "0004",
    "0002+1": "0003",
    "base+3": "0003",
    "head-1": "0003",
    "0004-1": "0003",
    "0001": "0002",
    "base": "0002",
}
DOWNWARDS = {
    "base": None,
    "0001": "0001",
    "-1": "0001",
    "-2": None,
    "0002-1": "0001",
    "0002-2": None,
    "base+1": "0001",
    "0001+1": "0002",
    "head-3": "0001",
    "0002": "0002",
}


@pytest.fixture
def missing(tmp_path: Path) -> Path:
    return tmp_path / "missing" / "new.db"


def at_0002(path: Path) -> Path:
    schema.upgrade(url(path), "0002")
    return path


@pytest.mark.parametrize("revision", [*NEVER, "-1", "0002-2", "a:b"])
def test_an_upgrade_to_what_is_no_revision_opens_nothing(revision: str, missing: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        schema.upgrade(url(missing), revision)

    assert len(refused.value.message.splitlines()) == 1
    assert len(refused.value.message) < 300
    assert not missing.parent.exists()


@pytest.mark.parametrize("revision", [*NEVER, "+1"])
def test_a_downgrade_to_what_is_no_revision_opens_nothing(revision: str, missing: Path) -> None:
    with pytest.raises(ConfigurationError):
        schema.downgrade(url(missing), revision)

    assert not missing.parent.exists()


@pytest.mark.parametrize(
    ("verb", "revision"),
    [
        ("upgrade", ""),
        ("downgrade", "0002+"),
        ("stamp", "+1"),
    ],
)
def test_the_command_answers_them_with_one_line_and_makes_no_file(
    verb: str, revision: str, missing: Path
) -> None:
    assert_one_line(on(missing, verb, revision), 1, "is not a revision")
    assert not missing.parent.exists()


@pytest.mark.parametrize(("revision", "reached"), UPWARDS.items())
def test_an_upgrade_understands_every_way_to_name_a_revision(
    revision: str, reached: str, tmp_path: Path
) -> None:
    path = at_0002(tmp_path / "new.db")

    schema.upgrade(url(path), revision)

    assert schema.current(url(path)).revision == reached


@pytest.mark.parametrize(("revision", "reached"), DOWNWARDS.items())
def test_a_downgrade_understands_every_way_to_name_a_revision(
    revision: str, reached: str | None, tmp_path: Path
) -> None:
    path = at_0002(tmp_path / "new.db")

    schema.downgrade(url(path), revision)

    assert schema.current(url(path)).revision == reached


@pytest.mark.parametrize(
    ("verb", "revision", "reached"),
    [
        ("upgrade", "+1", "0003"),
        ("downgrade", "-1", "0001"),
        ("downgrade", "0002-2", None),
    ],
)
def test_the_command_understands_them_too(
    verb: str, revision: str, reached: str | None, tmp_path: Path
) -> None:
    path = at_0002(tmp_path / "new.db")

    answer = on(path, verb, revision)

    assert (answer.returncode, answer.stderr) == (0, "")
    assert schema.current(url(path)).revision == reached


def test_more_steps_than_there_are_left_change_nothing(tmp_path: Path) -> None:
    path = at_0002(tmp_path / "new.db")
    before = path.read_bytes()

    with pytest.raises(ConfigurationError, match="3 migrations"):
        schema.upgrade(url(path), "+3")
    with pytest.raises(ConfigurationError, match="3 migrations"):
        schema.downgrade(url(path), "-3")
    with pytest.raises(ConfigurationError):
        schema.downgrade(url(path), "0004")

    assert path.read_bytes() == before


def test_a_missing_file_is_at_base_already(missing: Path) -> None:
    assert schema.upgrade(url(missing), "base") == []
    answer = on(missing, "upgrade", "base")

    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
    assert not missing.parent.exists()


@pytest.mark.parametrize("form", ["sqlite:///{}", "sqlite:///file:{}?uri=true"])
def test_only_an_upgrade_makes_a_file_and_its_folder(form: str, missing: Path) -> None:
    target = form.format(missing)

    for refused in (
        lambda: schema.current(target),
        lambda: schema.downgrade(target, "0001"),
        lambda: schema.downgrade(target, "base"),
        lambda: command.check(schema.check_config(target)),
    ):
        with pytest.raises(DatabaseUnavailable, match="no database at"):
            refused()
        assert not missing.parent.exists()

    schema.upgrade(target, "+1")
    assert schema.current(target).revision == "0001"


@pytest.mark.parametrize("form", ["sqlite:///file:{}?uri=true"])  # a plain name is the easier one
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["downgrade", "-1"], 1),
        (["downgrade", "base"], 1),
        (["stamp", "head"], 1),
        (["stamp", "base"], 1),
        (["ensure_version"], 1),
        (["current"], 1),
        (["check"], 2),
        (["history", "--indicate-current"], 1),
        (["show", "current"], 1),
    ],
)
def test_no_other_command_makes_a_file(
    arguments: list[str], code: int, form: str, tmp_path: Path
) -> None:
    path = tmp_path / "ghost.db"

    answer = run_alembic("-x", f"url={form.format(path)}", *arguments)

    assert_one_line(answer, code, f"there is no database at {path}")
    assert not path.exists()


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear Sir or Madam")

    with pytest.raises(DatabaseUnavailable, match="folder of"):
        schema.upgrade(url(tmp_path / "letter.txt" / "new.db"))


def test_a_name_that_the_file_system_refuses_is_explained(tmp_path: Path) -> None:
    for call in (schema.current, schema.upgrade, lambda target: schema.upgrade(target, "base")):
        with pytest.raises(DatabaseUnavailable):
            call(url(tmp_path / ("x" * 300)))


def test_stamping_to_where_the_database_is_not_says_what_to_do_instead(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    schema.upgrade(url(path))
    before = path.read_bytes()

    for lie in ("0002", "0003", "base"):
        answer = on(path, "stamp", lie)
        assert_one_line(answer, 1, "the database is at 0004")
        assert "use upgrade or downgrade" in answer.stderr
    purged = on(path, "stamp", "--purge", "0003")
    assert_one_line(purged, 1, "the database is at 0004")

    assert path.read_bytes() == before


def test_stamping_to_where_the_database_is_writes_the_table_as_we_make_it(tmp_path: Path) -> None:
    path, wanted = at_0002(tmp_path / "new.db"), at_0002(tmp_path / "other.db")
    with looking(path) as connection:
        connection.exec_driver_sql("DROP TABLE broker_alembic_version")
        connection.commit()

    answer = on(path, "stamp", "0002")

    assert (answer.returncode, answer.stderr) == (0, "")
    assert sorted(schema_of(path)) == sorted(schema_of(wanted))


@pytest.mark.parametrize(
    "secret",
    [
        "u:SECRET@h",
        "sqlite://u:SECRET@h/x.db",
        "sqlite://u:SECRET@h:SECRET/x.db",
        "postgresql+asyncpg://u:SECRET@h/db",
        "foo://u:SECRET@h/db",
        "://u:SECRET@h",
    ],
)
def test_a_password_in_a_url_is_never_shown(secret: str) -> None:
    with pytest.raises(BrokerError) as refused:
        migrate.database_url(secret)
    error: BaseException | None = refused.value
    while error is not None:
        assert "SECRET" not in f"{error!s} {error!r}"
        error = error.__cause__


@pytest.mark.parametrize("given", ["url=sqlite://u:SECRET@h:SECRET/x.db", "://u:SECRET@h"])
def test_the_command_shows_no_password_either(given: str) -> None:
    answer = run_alembic("-x", given, "current")

    assert answer.returncode == 1
    assert "SECRET" not in answer.stdout + answer.stderr


def test_a_backend_that_is_not_supported_is_named_as_the_engine_names_it() -> None:
    with pytest.raises(ConfigurationError, match=r"postgresql\+asyncpg is not supported"):
        migrate.database_url(make_url("postgresql+asyncpg://h/db"))
