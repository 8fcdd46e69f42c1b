import java.util.Map;

import io.debezium.transforms.outbox.EventRouter;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.storage.StringConverter;

/** Debezium's outbox event router, on rows of its default table, with the string converters that its documentation uses. */
class Debezium {
    public static void main(String[] args) throws Exception {
        var router = new EventRouter<SourceRecord>();
        router.configure(Map.of("route.topic.replacement", "fw.debezium"));
        var keys = new StringConverter();
        keys.configure(Map.of(), true);
        var values = new StringConverter();
        values.configure(Map.of(), false);
        var headers = new SimpleHeaderConverter();
        headers.configure(Map.of());
        String brokers = System.getenv("EVERONCE_TEST_KAFKA_URL").replace("kafka://", "");
        try (var producer = new KafkaProducer<>(Map.<String, Object>of("bootstrap.servers", brokers), new ByteArraySerializer(), new ByteArraySerializer())) {
            for (String id : new String[] {"7e570000-0000-4000-8000-000000000001", "7e570000-0000-4000-8000-000000000002", "7e570000-0000-4000-8000-000000000001"}) {
                SourceRecord routed = router.apply(inserted(id));
                var record = new ProducerRecord<>(routed.topic(), null, routed.timestamp(),
                    keys.fromConnectData(routed.topic(), routed.keySchema(), routed.key()),
                    values.fromConnectData(routed.topic(), routed.valueSchema(), routed.value()));
                routed.headers().forEach(h -> record.headers().add(h.key(), headers.fromConnectHeader(routed.topic(), h.key(), h.schema(), h.value())));
                producer.send(record).get();
            }
        }
    }

    /** The change event of a row that was inserted. */
    static SourceRecord inserted(String id) {
        Schema row = SchemaBuilder.struct().name("outbox.Value").field("id", Schema.STRING_SCHEMA).field("aggregatetype", Schema.STRING_SCHEMA)
            .field("aggregateid", Schema.STRING_SCHEMA).field("type", Schema.STRING_SCHEMA).field("payload", Schema.STRING_SCHEMA).build();
        Schema source = SchemaBuilder.struct().name("source").field("ts_ms", Schema.INT64_SCHEMA).build();
        Schema envelope = SchemaBuilder.struct().name("outbox.Envelope").field("before", SchemaBuilder.struct().optional().build()).field("after", row)
            .field("source", source).field("op", Schema.STRING_SCHEMA).field("ts_ms", Schema.INT64_SCHEMA).build();
        Struct after = new Struct(row).put("id", id).put("aggregatetype", "order").put("aggregateid", "order-1").put("type", "OrderPlaced")
            .put("payload", "{\"order\":\"order-1\",\"cents\":1200}");
        Struct value = new Struct(envelope).put("after", after).put("source", new Struct(source).put("ts_ms", 1L)).put("op", "c").put("ts_ms", 1L);
        return new SourceRecord(Map.of(), Map.of(), "db.outbox", 0, Schema.STRING_SCHEMA, id, envelope, value);
    }
}
