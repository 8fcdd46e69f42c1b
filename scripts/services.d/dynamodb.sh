# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # read by, and set by, scripts/services
# DynamoDB Local, which AWS gives out for tests: a container, or else a Java program that is fetched through Maven. It
# takes any credentials.

variable=EVERONCE_TEST_DYNAMODB_URL
port=28917
# Private ones, of tests that start at the same time, would all find the same port free.
[ -z "${EVERONCE_SERVICES_DIR:-}" ] || port=$((port + RANDOM % 1000))
native_packages='maven default-jre-headless'

native_find() { command -v java >/dev/null && command -v mvn >/dev/null; }

server_pid() { running "$dir/pid" "$dir/data"; }

native_start() {
	local p
	if ! { server_pid >/dev/null && answers "$(url)"; }; then
		native_stop || return 1
		maven_libraries "DynamoDB Local" || return 1
		mkdir -p "$dir/data"
		take_port
		launch java -Xmx256m -Djava.library.path="$dir/lib" -cp "$dir/lib/*" com.amazonaws.services.dynamodbv2.local.main.ServerRunner \
			-port "$p" -dbPath "$dir/data" -sharedDb -disableTelemetry || return 1
	fi
	url
}

url() { printf 'http://127.0.0.1:%s\n' "$(cat "$dir/port")"; }

native_stop() { end_server; }

compose_inner() { echo 8000; }

compose_url() {
	local address
	read -r address && [ -n "$address" ] && printf 'http://%s\n' "$address"
}

# answers knocks.
answers() { listens "$(address "$1" 8000)"; }
