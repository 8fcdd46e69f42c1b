// Sends one request: client.mjs NAME METHOD URL KEY [warm]. With warm, a GET goes before, over the same connection.
import { createRequire } from 'node:module';
const require = createRequire(process.env.MODULES + '/'); // this file is not beside them
const [name, method, url, key, warm] = process.argv.slice(2);

const fetched = (fetch) => async (o) => (await fetch(url, o)).text();
const clients = {
  fetch: () => fetched(fetch),
  undici: async () => (o) => require('undici').request(url, o).then((r) => r.body.text()),
  'fetch-retry': async () => fetched(require('fetch-retry')(fetch)),
  'axios-retry': async () => {
    const axios = require('axios').create();
    require('axios-retry').default(axios);
    return ({ method, headers, body }) => axios({ url, method, headers, data: body });
  },
  ofetch: async () => (o) => require('ofetch').ofetch(url, { ...o, retry: 2 }),
  got: async () => (o) => require('got').default(url, o),
  ky: async () => (o) => require('ky').default(url, o).text(),
  superagent: async () => ({ method, headers, body }) => require('superagent')(method, url).set(headers).send(body).retry(2),
};

const send = await clients[name]();
if (warm) {
  await send({ method: 'GET', headers: {} });
  await new Promise((done) => setTimeout(done, 50)); // until the connection is idle
}
const body = method === 'DELETE' ? undefined : '{"amount":100}';
await send({ method, headers: { 'Idempotency-Key': key, 'Content-Type': 'application/json' }, body });
process.exit(0); // idle connections would keep the process
