# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # read by, and set by, scripts/services
# SQS: ElasticMQ, which speaks its protocol. No Debian package has it: it is fetched through Maven. It keeps queues and
# messages in a database of its own, which writes each down at once: they outlive it.

variable=EVERONCE_TEST_SQS_URL
port=22324
# Private ones, of tests that start at the same time, would all find the same port free.
[ -z "${EVERONCE_SERVICES_DIR:-}" ] || port=$((port + 100 + RANDOM % 1000))
native_packages='maven default-jdk-headless'

native_find() { command -v java >/dev/null && command -v mvn >/dev/null; }

server_pid() { running "$dir/pid" "$dir/elasticmq.conf"; }

configure() { # port
	cat >"$dir/elasticmq.conf" <<-TEXT
		include classpath("application.conf")
		node-address { protocol = http, host = "127.0.0.1", port = $1, context-path = "" }
		rest-sqs { enabled = true, bind-hostname = "127.0.0.1", bind-port = $1, sqs-limits = strict }
		rest-stats { enabled = false }
		queues-storage { enabled = true, path = "$dir/data/queues.conf" }
		messages-storage { enabled = true, uri = "jdbc:h2:$dir/data/messages;WRITE_DELAY=0" }
	TEXT
}

native_start() {
	local p
	if ! { server_pid >/dev/null && answers "$(url)"; }; then
		native_stop || return 1
		maven_libraries ElasticMQ || return 1
		mkdir -p "$dir/data"
		take_port
		configure "$p"
		launch java -Xmx256m "-Dconfig.file=$dir/elasticmq.conf" -cp "$dir/lib/*" org.elasticmq.server.Main || return 1
	fi
	url
}

url() { printf 'http://127.0.0.1:%s\n' "$(cat "$dir/port")"; }

native_stop() { end_server; }

compose_inner() { echo 9324; }

compose_url() {
	local address
	read -r address && [ -n "$address" ] && printf 'http://%s\n' "$address"
}

# answers knocks.
answers() { listens "$(address "$1" 9324)"; }
