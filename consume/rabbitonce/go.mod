module github.com/everonce/everonce/consume/rabbitonce

go 1.26.0

require (
	github.com/cenkalti/backoff/v5 v5.0.3
	github.com/everonce/everonce v0.0.0
	github.com/rabbitmq/amqp091-go v1.16.0
)

require github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
