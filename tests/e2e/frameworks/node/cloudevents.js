// The CloudEvents SDK writes an event for Kafka in binary and in structured mode. scripts/record-frameworks runs it.
const { CloudEvent, Kafka: binding } = require("cloudevents");
const { Kafka, logLevel } = require("kafkajs");

const brokers = process.env.EVERONCE_TEST_KAFKA_URL.replace("kafka://", "").split(",");
const producer = new Kafka({ brokers, logLevel: logLevel.NOTHING }).producer();

(async () => {
  await producer.connect();
  for (const id of ["order-1", "order 2", "order-1"]) {
    const event = new CloudEvent({ id, source: "/shop", type: "order.placed", data: { cents: 1200 }, datacontenttype: "application/json" });
    const { headers, value, key } = JSON.parse(JSON.stringify(binding.binary(event))); // kafkajs refuses the headers that are undefined
    await producer.send({ topic: "fw.cloudevents", messages: [{ headers, key, value: typeof value === "string" ? value : JSON.stringify(value) }] });
  }
  await producer.disconnect();
})();
