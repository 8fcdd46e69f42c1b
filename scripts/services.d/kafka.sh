# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # read by, and set by, scripts/services
# Kafka: one node that is broker and controller. No Debian package has it: it is fetched through Maven.

variable=EVERONCE_TEST_KAFKA_URL
port=21092
# Private ones, of tests that start at the same time, would all find the same port free.
[ -z "${EVERONCE_SERVICES_DIR:-}" ] || port=$((port + 100 + RANDOM % 1000))
native_packages='maven default-jdk-headless'

native_find() { command -v java >/dev/null && command -v mvn >/dev/null; }

server_pid() { running "$dir/pid" "$dir/server.properties"; }

# configure writes down where it listens, and makes its folder the first time. Users are at a listener of their own, of which a test learns
# from the broker; a password is asked for again every two seconds. Rebalances need not wait for members that may come, nor a
# broker that was killed for the end of its own session.
configure() {
	printf '%s\n' \
		process.roles=broker,controller node.id=1 "controller.quorum.voters=1@127.0.0.1:$2" \
		"listeners=PLAINTEXT://127.0.0.1:$1,USERS://127.0.0.1:$3,CONTROLLER://127.0.0.1:$2" \
		"advertised.listeners=PLAINTEXT://127.0.0.1:$1,USERS://127.0.0.1:$3" controller.listener.names=CONTROLLER \
		listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,USERS:SASL_PLAINTEXT \
		listener.name.users.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512 listener.name.users.connections.max.reauth.ms=2000 \
		'listener.name.users.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_plain="plain-secret";' \
		'listener.name.users.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;' \
		'listener.name.users.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;' \
		"log.dirs=$dir/data" auto.create.topics.enable=false num.partitions=1 \
		offsets.topic.replication.factor=1 offsets.topic.num.partitions=4 \
		transaction.state.log.replication.factor=1 transaction.state.log.min.isr=1 transaction.state.log.num.partitions=4 \
		share.coordinator.state.topic.replication.factor=1 share.coordinator.state.topic.min.isr=1 \
		broker.heartbeat.interval.ms=500 broker.session.timeout.ms=2000 \
		group.initial.rebalance.delay.ms=0 group.min.session.timeout.ms=1000 log.cleaner.dedupe.buffer.size=16777216 \
		authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer allow.everyone.if.no.acl.found=true \
		super.users=User:admin >"$dir/server.properties"
	[ -f "$dir/data/meta.properties" ] ||
		java -cp "$dir/lib/*" kafka.tools.StorageTool format -t ZXZlcm9uY2UtdGVzdHMtMQ -c "$dir/server.properties" >>"$dir/log" 2>&1 </dev/null
}

native_start() {
	local p
	if ! { server_pid >/dev/null && answers "$(url)"; }; then
		native_stop || return 1
		maven_libraries Kafka || return 1
		mkdir -p "$dir/data"
		take_port
		configure "$p" "$(free_port "$((p + 2000))")" "$(free_port "$((p + 4000))")" || return 1
		launch java -Xmx512m -cp "$dir/lib/*" kafka.Kafka "$dir/server.properties" || return 1
	fi
	url
}

url() { printf 'kafka://127.0.0.1:%s\n' "$(cat "$dir/port")"; }

native_stop() { end_server; }

compose_inner() { echo 9092; }

compose_url() {
	local address
	read -r address && [ -n "$address" ] && printf 'kafka://%s\n' "$address"
}

# answers knocks.
answers() { listens "$(address "$1" 9092)"; }
