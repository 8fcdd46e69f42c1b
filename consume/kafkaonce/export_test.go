package kafkaonce

// Shape is tested alone: the tests' broker has no others, and a topic one replica.
var Shape = shape
