#!/usr/bin/env bash
# Software: the npm packages cloudevents 10.0.0 and kafkajs 2.2.4.
# Expected: Kafka.binary(event) of the CloudEvents SDK returns headers that a Kafka client can send: the SDK has a binding for Kafka,
#   and kafkajs is the client that its documentation names.
# Seen: for each optional attribute that the event does not have, the headers have a member with the value undefined (ce_subject,
#   ce_dataschema, ...). kafkajs encodes header values with Buffer.from, which throws ERR_INVALID_ARG_TYPE, so no event without a
#   subject can be sent. In structured mode there are no such members.
# What to do: drop the undefined members, for example by JSON.parse(JSON.stringify(headers)).
# kafkajs needs a broker only to send; its encoder for a record is called here without one.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm init -y >/dev/null
npm install --silent --no-audit --no-fund cloudevents@10.0.0 kafkajs@2.2.4
cat >run.js <<'JS'
const { CloudEvent, Kafka } = require("cloudevents");
const Record = require("kafkajs/src/protocol/recordBatch/record/v0");
const event = new CloudEvent({ id: "1", source: "/shop", type: "order.placed", data: { cents: 1200 } });
const encoded = (headers) => {
  try {
    Record({ offsetDelta: 0, timestampDelta: 0, key: null, value: "{}", headers });
    return "encoded";
  } catch (e) {
    return e.code;
  }
};
const { headers } = Kafka.binary(event);
const missing = Object.keys(headers).filter((name) => headers[name] === undefined).sort();
console.log("undefined headers:", missing.join(" "));
console.log("as they are:", encoded(headers));
console.log("without them:", encoded(JSON.parse(JSON.stringify(headers))));
console.log("structured:", encoded(Kafka.structured(event).headers));
JS
seen=$(node run.js)
want='undefined headers: ce_datacontentencoding ce_datacontenttype ce_dataschema ce_schemaurl ce_subject content-type
as they are: ERR_INVALID_ARG_TYPE
without them: encoded
structured: encoded'
printf '%s\n' "$seen"
if [ "$seen" != "$want" ]; then
	echo "it has changed; this was seen before:"
	printf '%s\n' "$want"
	exit 1
fi
