# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # read by, and set by, scripts/services
# NATS with JetStream. Debian's nats-server is too old: Go builds a pinned one.

variable=EVERONCE_TEST_NATS_URL
port=24222
# Private ones, of tests that start at the same time, would all find the same port free.
[ -z "${EVERONCE_SERVICES_DIR:-}" ] || port=$((port + RANDOM % 1000))
native_packages=golang
version=v2.15.2

native_find() { command -v go >/dev/null; }

server_pid() { running "$dir/pid" "$dir/data"; }

# program builds the server once for all folders: it takes a while.
program() {
	local cache
	cache=${XDG_CACHE_HOME:-${HOME:-$dir}/.cache}/everonce/nats-$version
	bin=$cache/nats-server
	[ -x "$bin" ] && return 0
	say "building nats-server $version"
	(cd / && GOWORK=off GOFLAGS='' GOBIN="$cache" go install "github.com/nats-io/nats-server/v2@$version") >>"$dir/log" 2>&1 </dev/null
}

native_start() {
	local p
	if ! { server_pid >/dev/null && answers "$(url)"; }; then
		native_stop || return 1
		program || return 1
		take_port
		launch "$bin" -a 127.0.0.1 -p "$p" -js -sd "$dir/data" || return 1
	fi
	url
}

url() { printf 'nats://127.0.0.1:%s\n' "$(cat "$dir/port")"; }

native_stop() { end_server; }

compose_inner() { echo 4222; }

compose_url() {
	local address
	read -r address && [ -n "$address" ] && printf 'nats://%s\n' "$address"
}

# answers knocks: a server greets whoever connects with INFO.
answers() {
	local at greeting
	at=$(address "$1" 4222)
	greeting=$( (exec 3<>"/dev/tcp/${at%:*}/${at##*:}" && head -c 4 <&3) 2>/dev/null) || return 1
	[ "$greeting" = INFO ]
}
