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

# libraries fetches what pom.xml names, once.
libraries() {
	[ -f "$dir/lib.done" ] && cmp -s "$here/services.d/mongodb/pom.xml" "$dir/lib.done" && return 0
	say "fetching mongo-java-server through Maven"
	rm -rf "${dir:?}/lib"
	mvn -q -B -f "$here/services.d/mongodb/pom.xml" dependency:copy-dependencies -DoutputDirectory="$dir/lib" >>"$dir/log" 2>&1 </dev/null &&
		cp "$here/services.d/mongodb/pom.xml" "$dir/lib.done"
}

native_start() {
	local p
	if ! { server_pid >/dev/null && answers "$(url)"; }; then
		native_stop || return 1
		libraries || return 1
		mkdir -p "$dir/data"
		p=$(free_port "$(recalled port | grep . || echo "$port")")
		printf '%s\n' "$p" >"$dir/port"
		(
			cd "$dir" || exit 1
			nohup java -Xmx256m -cp "$dir/lib/*" "$here/services.d/mongodb/Launcher.java" "$p" "$dir/data/db" >>"$dir/log" 2>&1 </dev/null &
			echo $! >"$dir/pid"
		)
		wait_until 300 answers "$(url)" || return 1
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
