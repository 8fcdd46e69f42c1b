# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # read by, and set by, scripts/services
# RabbitMQ: a node of its own, with its own name, cookie and folders; epmd, which nodes share, is left running.

variable=EVERONCE_TEST_RABBITMQ_URL
port=21673
# Private ones, of tests that start at the same time, would all find the same port free.
[ -z "${EVERONCE_SERVICES_DIR:-}" ] || port=$((port + 100 + RANDOM % 1000))
native_packages=rabbitmq-server

native_find() {
	local d
	for d in "$(dirname "$(command -v rabbitmq-server || echo none/none)")" /usr/lib/rabbitmq/bin /usr/sbin /opt/homebrew/sbin /usr/local/sbin; do
		if [ -x "$d/rabbitmq-server" ] && [ -x "$d/rabbitmqctl" ]; then
			bin=$d
			return 0
		fi
	done
	return 1
}

# node runs one of RabbitMQ's programs for our node. Debian's wrappers change to the user rabbitmq; those of
# the library's folder do not.
node() {
	local program=$1 d=$bin
	shift
	[ -x /usr/lib/rabbitmq/bin/"$program" ] && d=/usr/lib/rabbitmq/bin
	env HOME="$dir/home" RABBITMQ_NODENAME="everonce-$(cat "$dir/port")@localhost" RABBITMQ_NODE_PORT="$(cat "$dir/port")" RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 \
		RABBITMQ_DIST_PORT="$(cat "$dir/dist_port")" RABBITMQ_MNESIA_BASE="$dir/data" RABBITMQ_LOG_BASE="$dir/logs" RABBITMQ_PID_FILE="$dir/pid" \
		RABBITMQ_CONFIG_FILE="$dir/rabbitmq" RABBITMQ_ENABLED_PLUGINS_FILE="$dir/plugins" RABBITMQ_CONF_ENV_FILE=/dev/null RABBITMQ_USE_LONGNAME=false \
		"$d/$program" "$@" >>"$dir/log" 2>&1 </dev/null
}

server_pid() { running "$dir/pid" "$dir/"; }

# boot starts a node at a port, with another one for what nodes say to each other. Both are below those that systems
# give to outgoing connections.
boot() {
	printf '%s\n' "$1" >"$dir/port"
	if ! [ -s "$dir/dist_port" ] || ! free "$(cat "$dir/dist_port")"; then
		free_port "$(($1 + 2000))" >"$dir/dist_port"
	fi
	rm -f "$dir/pid"
	node rabbitmq-server -detached &&
		wait_until 150 test -s "$dir/pid" && node rabbitmqctl --timeout 120 wait --timeout 120 "$dir/pid" && node rabbitmqctl await_startup --timeout 120 &&
		wait_until 100 answers "$(url)"
}

free() { ! listens "127.0.0.1:$1"; }

native_start() {
	local p tries=0
	if ! { server_pid >/dev/null && answers "$(url)"; }; then
		native_stop || return 1
		p=$(recalled port)
		if [ -n "$p" ] && [ -d "$dir/data/everonce-$p@localhost" ]; then # a node's data is under its name
			wait_until 100 free "$p" || { say "port $p, whose node has the data, is taken: free it, or remove the data by scripts/services down rabbitmq" && return 1; }
		else
			p=$(free_port "${p:-$port}")
		fi
		mkdir -p "$dir/data" "$dir/logs" "$dir/home"
		[ -s "$dir/password" ] || (umask 077 && od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$dir/password")
		(
			umask 077
			printf '%s\n' 'loopback_users = none' "default_user = everonce" "default_pass = $(cat "$dir/password")" \
				'vm_memory_high_watermark.absolute = 512MB' 'disk_free_limit.absolute = 50MB' >"$dir/rabbitmq.conf"
		)
		printf '[].\n' >"$dir/plugins"
		until boot "$p"; do
			tries=$((tries + 1))
			[ "$tries" -lt 4 ] || return 1
			say "a node did not start at port $p; trying another"
			native_stop || return 1
			rm -f "$dir/dist_port"
			[ -d "$dir/data/everonce-$p@localhost" ] || p=$(free_port "$((p + 1 + RANDOM % 100))")
		done
	fi
	url
}

url() { printf 'amqp://everonce:%s@127.0.0.1:%s/\n' "$(cat "$dir/password")" "$(cat "$dir/port")"; }

native_stop() {
	local pid
	pid=$(server_pid) || return 0
	native_find && node rabbitmqctl stop --timeout 30 && wait_until 100 gone "$pid" && return 0
	kill -9 "$pid" && wait_until 100 gone "$pid"
}

compose_inner() { echo 5672; }

compose_url() {
	local address
	read -r address && [ -n "$address" ] && printf 'amqp://everonce:everonce@%s/\n' "$address"
}

# answers knocks: a broker that listens greets whoever speaks AMQP.
answers() {
	local at greeting
	at=$(address "$1" 5672)
	# The broker answers a wrong protocol header with the right one, and closes.
	greeting=$( (exec 3<>"/dev/tcp/${at%:*}/${at##*:}" && printf 'AMQP\0\0\0\0' >&3 && head -c 4 <&3) 2>/dev/null) || return 1
	[ "$greeting" = AMQP ]
}
