"""Open a broker by its URL: the embedded one for a folder, RabbitMQ for `amqp://` and `amqps://`."""
