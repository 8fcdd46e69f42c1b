# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # read by, and set by, scripts/services
# MongoDB: where an engine for containers answers, the real one. Else mongo-java-server, which speaks its protocol and
# knows the part of it that the store uses; no Debian package has the real one. It is fetched through Maven.

variable=EVERONCE_TEST_MONGODB_URL
port=27917
# Private ones, of tests that start at the same time, would all find the same port free.
[ -z "${EVERONCE_SERVICES_DIR:-}" ] || port=$((port + RANDOM % 1000))
native_packages='maven default-jdk-headless'

native_find() { command -v java >/dev/null && command -v mvn >/dev/null && command -v javac >/dev/null; }

server_pid() { running "$dir/pid" "$dir/data"; }

native_start() {
	local p
	if ! { server_pid >/dev/null && answers "$(url)"; }; then
		native_stop || return 1
		maven_libraries mongo-java-server || return 1
		mkdir -p "$dir/data"
		take_port
		launch java -Xmx256m -cp "$dir/lib/*" "$here/services.d/mongodb/Launcher.java" "$p" "$dir/data/db" || return 1
	fi
	url
}

url() { printf 'mongodb://127.0.0.1:%s/\n' "$(cat "$dir/port")"; }

native_stop() { end_server; }

compose_inner() { echo 27017; }

compose_url() {
	local address
	read -r address && [ -n "$address" ] && printf 'mongodb://%s/?directConnection=true\n' "$address"
}

# answers knocks.
answers() { listens "$(address "$1" 27017)"; }
