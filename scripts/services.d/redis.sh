# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # read by, and set by, scripts/services
# Redis: a server of its own that writes every command to its log before it answers, and evicts nothing.

variable=EVERONCE_TEST_REDIS_URL
port=26379
native_packages=redis-server

native_find() { command -v redis-server >/dev/null && command -v redis-cli >/dev/null; }

server_pid() { running "$dir/pid" redis-server ":$(recalled port)"; }

native_start() {
	local p tries=0
	if ! { server_pid >/dev/null && answers "redis://127.0.0.1:$(cat "$dir/port")/0"; }; then
		native_stop || return 1
		mkdir -p "$dir/data"
		p=$(free_port "$(recalled port | grep . || echo "$port")")
		# shellcheck disable=SC2094 # the server and its starter both append to the log
		until printf '%s\n' "$p" >"$dir/port" &&
			redis-server --bind 127.0.0.1 --port "$p" --daemonize yes --pidfile "$dir/pid" --logfile "$dir/log" --dir "$dir/data" \
				--appendonly yes --appendfsync always --maxmemory-policy noeviction --save '' >>"$dir/log" 2>&1 </dev/null &&
			wait_until 50 answers "redis://127.0.0.1:$p/0" && server_pid >/dev/null; do
			native_stop
			tries=$((tries + 1))
			[ "$tries" -lt 5 ] || return 1
			p=$(free_port "$((p + 1))")
		done
	fi
	printf 'redis://127.0.0.1:%s/0\n' "$(cat "$dir/port")"
}

native_stop() { end_server; }

compose_inner() { echo 6379; }

compose_url() {
	local address
	read -r address && [ -n "$address" ] && printf 'redis://%s/0\n' "$address"
}

answers() {
	if command -v redis-cli >/dev/null; then
		quiet 5 redis-cli -u "$1" --no-auth-warning ping
	else
		listens "$(address "$1" 6379)"
	fi
}
