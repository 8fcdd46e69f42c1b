import java.net.URI;
import java.util.Map;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.retry.RepublishMessageRecoverer;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.support.KafkaHeaders;
import org.springframework.messaging.support.MessageBuilder;

/** Spring AMQP and Spring for Apache Kafka: publish an operation, publish it again, and let it become a dead letter. */
class Spring {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("amqp")) {
            amqp();
        } else {
            kafka();
        }
    }

    static void amqp() {
        var connections = new CachingConnectionFactory(URI.create(System.getenv("EVERONCE_TEST_RABBITMQ_URL").replaceAll("/$", "")));
        var template = new RabbitTemplate(connections);
        for (String id : new String[] {"order-1", "order-2", "order-1"}) {
            template.convertAndSend("", "fw.spring_amqp", "\"" + id + "\"", message -> {
                message.getMessageProperties().setMessageId(id);
                message.getMessageProperties().setContentType("application/json");
                return message;
            });
        }
        Message failed = null;
        for (int i = 0; i < 3; i++) {
            Message received = template.receive("fw.spring_amqp", 10_000);
            template.send("", "fw.spring_amqp", received);
            failed = received.getMessageProperties().getMessageId().equals("order-1") ? received : failed;
        }
        new RepublishMessageRecoverer(template, "", "fw.spring_amqp").recover(failed, new IllegalStateException("no answer"));
        connections.destroy();
    }

    static void kafka() throws Exception {
        String topic = "fw.spring_kafka";
        String brokers = System.getenv("EVERONCE_TEST_KAFKA_URL").replace("kafka://", "");
        var template = new KafkaTemplate<String, String>(new DefaultKafkaProducerFactory<>(
            Map.of("bootstrap.servers", brokers), new StringSerializer(), new StringSerializer()));
        for (String id : new String[] {"order-1", "order-2", "order-1"}) {
            template.send(MessageBuilder.withPayload("\"" + id + "\"")
                .setHeader(KafkaHeaders.TOPIC, topic).setHeader(KafkaHeaders.KEY, "customer-1").setHeader("ce_id", id).build()).get();
        }
        ConsumerRecord<String, String> failed;
        try (var consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", brokers), new StringDeserializer(), new StringDeserializer())) {
            var partition = new TopicPartition(topic, 0);
            consumer.assign(java.util.List.of(partition));
            consumer.seekToBeginning(java.util.List.of(partition));
            failed = consumer.poll(java.time.Duration.ofSeconds(20)).iterator().next();
        }
        new DeadLetterPublishingRecoverer(template, (record, cause) -> new TopicPartition(topic, 0))
            .accept(failed, new IllegalStateException("no answer"));
        template.destroy();
    }
}
