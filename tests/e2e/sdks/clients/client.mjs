// Sends one POST per line of standard input with the SDK that the argument names, and writes what the SDK made of the answer.
import { createInterface } from 'node:readline';

const sdks = {
  async stripe() {
    const { default: Stripe } = await import('stripe');
    return ({ base, key }) => {
      const { hostname: host, port } = new URL(base);
      const client = new Stripe('sk_test_1', { host, port, protocol: 'http', maxNetworkRetries: 2, telemetry: false });
      return client.charges.create({ amount: 100, currency: 'eur', source: 'tok_visa' }, { idempotencyKey: key });
    };
  },
  async openai() {
    const { default: OpenAI } = await import('openai');
    return ({ base, key }) => {
      const client = new OpenAI({ apiKey: 'k', baseURL: base + '/v1', logLevel: 'off' });
      return client.post('/charges', { body: { amount: 100 }, headers: { 'Idempotency-Key': key } });
    };
  },
  async anthropic() {
    const { default: Anthropic } = await import('@anthropic-ai/sdk');
    return ({ base, key }) => {
      const client = new Anthropic({ apiKey: 'k', baseURL: base, logLevel: 'off' });
      return client.post('/v1/charges', { body: { amount: 100 }, headers: { 'Idempotency-Key': key } });
    };
  },
  async dodopayments() {
    const { default: DodoPayments } = await import('dodopayments');
    return ({ base, key }) => {
      const client = new DodoPayments({ bearerToken: 'k', baseURL: base, logLevel: 'off' });
      return client.post('/v1/charges', { body: { amount: 100 }, headers: { 'Idempotency-Key': key } });
    };
  },
  async svix() {
    const { Svix } = await import('svix');
    return ({ base, key }) => {
      const client = new Svix('testsk_1', { serverUrl: base });
      return client.application.create({ name: 'charge' }, { idempotencyKey: key });
    };
  },
  async square() {
    const { SquareClient } = await import('square');
    return ({ base, key }) => {
      const client = new SquareClient({ token: 'k', environment: base });
      return client.payments.create(
        { sourceId: 's', idempotencyKey: key, amountMoney: { amount: BigInt(100), currency: 'EUR' } },
        { headers: { 'Idempotency-Key': key } },
      );
    };
  },
};

const send = await sdks[process.argv[2]]();
const calls = [];
for await (const line of createInterface({ input: process.stdin })) {
  const call = JSON.parse(line);
  const tell = (told) => process.stdout.write(JSON.stringify({ row: call.row, ...told }) + '\n');
  calls.push(
    send(call).then(
      (answer) => tell({ success: true, id: answer?.id ?? answer?.payment?.id ?? '' }),
      (e) => tell({ class: e.constructor.name, status: e.statusCode ?? e.status ?? e.code ?? 0, text: String(e.message) }),
    ),
  );
}
await Promise.all(calls);
process.stdout.write('', () => process.exit(0)); // idle connections would keep the process
