// NestJS emits an event and sends a request, each twice, and another one. scripts/record-frameworks runs it.
require("reflect-metadata");
const { ClientProxyFactory, Transport } = require("@nestjs/microservices");
const { lastValueFrom, timeout, catchError, of } = require("rxjs");

const client = ClientProxyFactory.create({
  transport: Transport.RMQ,
  options: { urls: [process.env.EVERONCE_TEST_RABBITMQ_URL], queue: "fw.nestjs", queueOptions: { durable: true } },
});

(async () => {
  await client.connect();
  for (const id of ["order-1", "order-2", "order-1"]) {
    await lastValueFrom(client.emit("charge", { id, cents: 1200 }), { defaultValue: null });
  }
  // nobody answers the request
  for (const id of ["order-3", "order-3"]) {
    await lastValueFrom(client.send("charge", { id, cents: 1200 }).pipe(timeout(500), catchError(() => of(null))));
  }
  await client.close();
})();
