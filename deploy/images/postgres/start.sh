#!/bin/sh
# Makes the database at the first start, then becomes the server (so that signals reach it).
set -eu
if [ "$(id -u)" = 0 ]; then  # a fresh volume belongs to root
  chown postgres:postgres "$PGDATA"
  exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  : "${POSTGRES_PASSWORD:?set POSTGRES_PASSWORD for the user bridge}"
  chmod 700 "$PGDATA"
  made="$PGDATA/made"  # moved into place whole: a start that was killed half-way begins again
  rm -rf "$made"
  initdb --pgdata="$made" --auth=scram-sha-256 --username=postgres --pwfile=/dev/stdin --encoding=UTF8 --locale=C.UTF-8 \
    <<PASSWORD >/dev/null
$POSTGRES_PASSWORD
PASSWORD
  echo "host all all all scram-sha-256" >> "$made/pg_hba.conf"
  printf 'CREATE ROLE bridge LOGIN PASSWORD :%s;\n' "'password'" > "$made/role.sql"
  pg_ctl --pgdata="$made" --options="-c listen_addresses=''" --silent --wait start >/dev/null
  export PGPASSWORD="$POSTGRES_PASSWORD"
  psql --quiet --username=postgres --set=ON_ERROR_STOP=1 --set="password=$POSTGRES_PASSWORD" --file="$made/role.sql"
  createdb --username=postgres --owner=bridge bridge
  pg_ctl --pgdata="$made" --silent --wait stop
  rm "$made/role.sql"
  for file in "$made"/*; do [ "${file##*/}" = PG_VERSION ] || mv "$file" "$PGDATA/"; done
  mv "$made/PG_VERSION" "$PGDATA/" && rmdir "$made"
  unset PGPASSWORD
fi
exec postgres -c listen_addresses='*' "$@"
