# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # read by, and set by, scripts/services
# MariaDB: a server of its own, with its own data, socket and password. Its settings are its own but for the number of
# connections; every commit is flushed, because durability is what the figures are about.

variable=EVERONCE_TEST_MARIADB_URL
port=23306
native_packages=mariadb-server

# native_find sets $bin. Debian keeps the server out of the PATH.
native_find() {
	local d
	for d in "$(dirname "$(command -v mariadbd || echo none/none)")" /usr/sbin /usr/libexec /opt/homebrew/opt/mariadb/bin /usr/local/opt/mariadb/bin; do
		if [ -x "$d/mariadbd" ] && command -v mariadb-install-db >/dev/null && command -v mariadb >/dev/null; then
			bin=$d
			return 0
		fi
	done
	return 1
}

server_pid() { running "$dir/data/pid" "$dir/data"; }

# init_data makes the data aside and moves them into their place when they are whole, so that a run that was killed in
# between leaves nothing that looks like them.
init_data() {
	rm -rf "$dir/data" "$dir/data.new"
	mkdir -m 700 "$dir/data.new" || return 1
	(umask 077 && od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$dir/password") || return 1
	[ "$(id -u)" != 0 ] || chown mysql "$dir/data.new" || return 1
	mariadb-install-db --no-defaults --user="$(owner)" --datadir="$dir/data.new" --auth-root-authentication-method=normal \
		--skip-test-db >>"$dir/log" 2>&1 </dev/null || return 1
	printf "%s\n" "CREATE USER IF NOT EXISTS everonce@'%' IDENTIFIED BY '$(cat "$dir/password")';" \
		"GRANT ALL ON *.* TO everonce@'%' WITH GRANT OPTION;" "DROP USER IF EXISTS root@localhost, ''@localhost;" \
		"CREATE DATABASE IF NOT EXISTS everonce;" >"$dir/data.new/users.sql" &&
		mv "$dir/data.new" "$dir/data"
}

# owner is the user that the server runs as: it refuses root.
owner() { if [ "$(id -u)" = 0 ]; then echo mysql; else id -un; fi; }

native_start() {
	local p tries=0
	touch "$dir/log"
	if ! { server_pid >/dev/null && answers "$(url)"; }; then
		native_stop || return 1
		[ -d "$dir/data" ] && [ -s "$dir/password" ] || init_data || return 1
		p=$(free_port "$(recalled port | grep . || echo "$port")")
		until boot "$p"; do
			native_stop
			tries=$((tries + 1))
			[ "$tries" -lt 5 ] || return 1
			p=$(free_port "$((p + 1))")
		done
	fi
	url
}

boot() {
	printf '%s\n' "$1" >"$dir/port"
	rm -f "$dir/data/pid"
	# shellcheck disable=SC2094 # the server and this both append to the log
	(cd / && exec nohup "$bin/mariadbd" --no-defaults --user="$(owner)" --datadir="$dir/data" --bind-address=127.0.0.1 --port="$1" \
		--socket="$dir/data/socket" --pid-file="$dir/data/pid" --init-file="$dir/data/users.sql" --skip-name-resolve \
		--max-connections=400 --innodb-buffer-pool-size=64M --performance-schema=OFF >>"$dir/log" 2>&1 </dev/null &)
	wait_until 300 answers "$(url)" && server_pid >/dev/null
}

url() { printf 'mysql://everonce:%s@127.0.0.1:%s/everonce\n' "$(cat "$dir/password")" "$(cat "$dir/port")"; }

native_stop() { end_server; }

compose_inner() { echo 3306; }

compose_url() {
	local address
	read -r address && [ -n "$address" ] && printf 'mysql://root:everonce@%s/everonce\n' "$address"
}

# answers asks the server itself where there is a client, and knocks at its port otherwise.
answers() {
	local at rest=${1#*://}
	at=$(address "$1" 3306)
	if command -v mariadb >/dev/null; then
		MYSQL_PWD=$(printf '%s' "${rest%%@*}" | sed 's/^[^:]*:*//') quiet 5 mariadb --no-defaults --protocol=tcp -h "${at%:*}" -P "${at##*:}" -u "${rest%%[:@]*}" -e 'SELECT 1'
	else
		listens "$at"
	fi
}
