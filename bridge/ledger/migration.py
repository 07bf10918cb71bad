"""Brings a database to the schema that this program writes, or refuses it in one sentence.

`meta.schema_version` is the truth; Alembic is told it before each run. Everything happens inside the caller's write
transaction, under a lock that other starting bridges wait for: two of them migrate once, and a step that fails leaves
the database as it was.
"""

from pathlib import Path

from sqlalchemy import Connection, insert, inspect, select

from bridge.errors import InvalidInputError
from bridge.ledger import schema


def is_current(connection: Connection) -> bool:
    """Return whether there is nothing to do; asked without a lock, so that a start never waits for a writer."""
    return inspect(connection).has_table(schema.meta.name) and stored(connection) == str(schema.VERSION)


def ensure(connection: Connection, *, migrate: bool = True) -> None:
    """Create the tables in an empty database, lead an older one forward, refuse a newer or foreign one."""
    found = set(inspect(connection).get_table_names())
    if schema.meta.name not in found:
        if found & set(schema.metadata.tables):
            raise InvalidInputError(
                f"the ledger's database has tables {', '.join(sorted(found))} but no schema version: it is not one of "
                "the bridge's; give another ledger_url"
            )
        if not migrate:
            raise InvalidInputError("there is no ledger in this database; give the ledger_url of the bridge")
        schema.create(connection)
        connection.execute(insert(schema.meta).values(key="schema_version", value=str(schema.VERSION)))
        return
    version = stored(connection)
    if version == str(schema.VERSION):
        return
    if version is None or not version.isdecimal() or int(version) > schema.VERSION or int(version) < 1:
        raise InvalidInputError(
            f"the ledger's database has schema version {version}, this bridge knows {schema.VERSION}: "
            "run the bridge that wrote it, or a newer one"
        )
    if not migrate:
        raise InvalidInputError(
            f"the ledger's database has schema version {version}, this program knows {schema.VERSION}: start the "
            "bridge of this version first (it migrates), or use the program of the bridge that runs"
        )
    upgrade(connection, version)


def stored(connection: Connection) -> str | None:
    """Return the schema version that a database says it has."""
    return connection.scalar(select(schema.meta.c.value).where(schema.meta.c.key == "schema_version"))


def upgrade(connection: Connection, version: str | None, target: str = "head") -> None:
    """Run the steps from a version (None: an empty database) to another, in the caller's transaction."""
    from alembic import command  # slow to import, and most starts need no step
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.attributes["connection"] = connection
    if version is not None:
        command.stamp(config, version, purge=True)
    command.upgrade(config, target)
