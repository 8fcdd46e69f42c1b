#!/usr/bin/env bash
# Software: the Python package pyturso 0.8.3, the driver of the Turso database, beside Python's own sqlite3.
# Expected: Cursor.execute runs a statement. In sqlite3, which has the same interface, PRAGMA journal_mode = 'wal' has its effect
#   whether its row is fetched or not.
# Seen: in pyturso a PRAGMA that sets something and returns a row does nothing until its row is fetched. No error is raised, and the
#   database stays in the mode that it had. A program that switches a mode so believes that it is on.
# What to do: fetch what a PRAGMA returns, and look at it.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pyturso==0.8.3
cat >"$dir/run.py" <<'PY'
import sqlite3
import sys

import turso


def mode(connect, path, wanted, fetch):
    c = connect(path)
    cursor = c.cursor()
    cursor.execute("PRAGMA journal_mode='%s'" % wanted)
    if fetch:
        cursor.fetchall()
    cursor.close()
    after = c.cursor()
    after.execute("PRAGMA journal_mode")
    found = after.fetchall()[0][0]
    c.close()
    return found


dir = sys.argv[1]
print("sqlite3, wal, not fetched:", mode(sqlite3.connect, dir + "/a", "wal", False))
print("turso, mvcc, not fetched:", mode(turso.connect, dir + "/b", "mvcc", False))
print("turso, mvcc, fetched:", mode(turso.connect, dir + "/c", "mvcc", True))
PY
seen=$("$dir/venv/bin/python" "$dir/run.py" "$dir")
want='sqlite3, wal, not fetched: wal
turso, mvcc, not fetched: wal
turso, mvcc, fetched: mvcc'
printf '%s\n' "$seen"
if [ "$seen" != "$want" ]; then
	echo "it has changed; this was seen before:"
	printf '%s\n' "$want"
	exit 1
fi
