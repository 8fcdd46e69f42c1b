# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # read by, and set by, scripts/services
# PostgreSQL: a cluster of its own, made by initdb, run by pg_ctl. Settings are the server's own but for what
# the tests need; fsync stays on, because durability is what the figures are about.

variable=EVERONCE_TEST_POSTGRES_URL
port=25432 # below those that systems give to outgoing connections
native_packages="postgresql pgbouncer" # a test goes through a pooler of its own

# native_find sets $bin. Debian keeps initdb and pg_ctl out of the PATH.
native_find() {
	local d
	# Whoever can install the pooler does. Without it that one test fails, and says so.
	command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || ! can_install || return 1
	for d in $(pg_config --bindir 2>/dev/null || true) $(dirname "$(command -v pg_ctl || echo none/none)") \
		$(printf '%s\n' /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin | sort -rV); do
		if [ -x "$d/initdb" ] && [ -x "$d/pg_ctl" ] && [ -x "$d/postgres" ]; then
			bin=$d
			return 0
		fi
	done
	return 1
}

# as_owner runs a command as the user that the server runs as: PostgreSQL refuses root.
as_owner() {
	if [ "$(id -u)" != 0 ]; then
		"$@"
	elif command -v runuser >/dev/null; then
		runuser -u postgres -- "$@"
	else
		su postgres -s /bin/sh -c 'exec "$@"' -- sh "$@"
	fi
}

server_pid() { running "$dir/data/postmaster.pid" "$dir/data"; }

# init_data makes the cluster aside and moves it into its place when it is whole, so that a run that was
# killed in between leaves nothing that looks like one.
init_data() {
	local secret=$dir/data.new.password
	rm -rf "$dir/data" "$dir/data.new" "$secret"
	mkdir -m 700 "$dir/data.new" &&
		(umask 077 && od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$dir/password" && cp "$dir/password" "$secret") || return 1
	if [ "$(id -u)" = 0 ]; then
		id postgres >/dev/null 2>&1 || {
			say "PostgreSQL does not run as root, and there is no user postgres: add one, or run this as another user"
			return 1
		}
		chown postgres "$dir/data.new" "$secret" "$dir/log"
		as_owner test -w "$dir/data.new" || {
			say "the user postgres cannot reach $dir: set EVERONCE_SERVICES_DIR to a folder that it can"
			return 1
		}
	fi
	as_owner "$bin/initdb" -D "$dir/data.new" -U everonce --pwfile="$secret" \
		--auth=scram-sha-256 --encoding=UTF8 --locale=C --no-sync >>"$dir/log" 2>&1 || return 1
	rm -f "$secret"
	printf '%s\n' "listen_addresses = '127.0.0.1'" "unix_socket_directories = ''" \
		'max_connections = 400' 'wal_level = logical' >>"$dir/data.new/postgresql.conf" &&
		mv "$dir/data.new" "$dir/data"
}

native_start() {
	local tries=0 p
	touch "$dir/log"
	if ! server_pid >/dev/null; then
		[ -f "$dir/data/PG_VERSION" ] && [ -s "$dir/password" ] || init_data || return 1
		if [ "$(cut -d. -f1 "$dir/data/PG_VERSION")" != "$("$bin/postgres" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')" ]; then
			say "the data is of another version of PostgreSQL; making it anew"
			init_data || return 1
		fi
		# A server that was killed may leave its file and, for a moment, its children.
		rm -f "$dir/data/postmaster.pid"
		p=$(free_port "$(recalled port | grep . || echo "$port")")
		# shellcheck disable=SC2094 # the server and pg_ctl both append to the log
		until as_owner "$bin/pg_ctl" start -s -w -t 60 -D "$dir/data" -l "$dir/log" -o "-p $p" >>"$dir/log" 2>&1 </dev/null; do
			tries=$((tries + 1))
			[ "$tries" -lt 10 ] || return 1
			sleep 1
			# After a kill it may be its own port, or memory, that is not let go yet: who talks to it must find it where it was.
			p=$(free_port "$((tries > 5 ? p + 1 : p))")
		done
		printf '%s\n' "$p" >"$dir/port"
	fi
	printf 'postgres://everonce:%s@127.0.0.1:%s/postgres?sslmode=disable\n' "$(cat "$dir/password")" "$(cat "$dir/port")"
}

native_stop() {
	server_pid >/dev/null || return 0
	native_find || {
		say "its programs are gone: stop process $(server_pid) yourself"
		return 1
	}
	as_owner "$bin/pg_ctl" stop -s -w -t 30 -m fast -D "$dir/data" >>"$dir/log" 2>&1 </dev/null ||
		as_owner "$bin/pg_ctl" stop -s -w -t 30 -m immediate -D "$dir/data" >>"$dir/log" 2>&1 </dev/null
}

compose_inner() { echo 5432; }

compose_url() {
	local address
	read -r address && [ -n "$address" ] && printf 'postgres://everonce:everonce@%s/postgres?sslmode=disable\n' "$address"
}

# answers asks the server itself where there is a client, and knocks at its port otherwise.
answers() {
	local client
	for client in psql "${bin:-/nowhere}/psql"; do
		if command -v "$client" >/dev/null; then
			PGCONNECT_TIMEOUT=5 quiet 10 "$client" -X -w -d "$1" -c 'SELECT 1'
			return
		fi
	done
	listens "$(address "$1" 5432)"
}
