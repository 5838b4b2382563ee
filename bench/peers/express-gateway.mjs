// express-gateway's key-auth with its credentials in Redis; a good key is answered 200 without a service behind.
// `express-gateway.mjs <port> <redis port> <credentials>`; says the Authorization headers of its credentials.
import { cpSync, mkdtempSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const [port = '0', redisPort = '', count = '1'] = process.argv.slice(2);
const adminPort = Number(port) + 1;
const require = createRequire(import.meta.url);
const directory = mkdtempSync(join(tmpdir(), 'keyfence-bench-'));
cpSync(join(dirname(require.resolve('express-gateway')), 'config/models'), join(directory, 'models'), {
  recursive: true,
});
// YAML, of which JSON is a part.
writeFileSync(
  join(directory, 'gateway.config.yml'),
  JSON.stringify({
    http: { port: Number(port), hostname: '127.0.0.1' },
    admin: { port: adminPort, hostname: '127.0.0.1' },
    apiEndpoints: { api: { host: '*' } },
    policies: ['key-auth', 'terminate'],
    pipelines: {
      checked: {
        apiEndpoints: ['api'],
        policies: [{ 'key-auth': null }, { terminate: [{ action: { statusCode: 200, message: 'valid' } }] }],
      },
    },
  }),
);
writeFileSync(
  join(directory, 'system.config.yml'),
  JSON.stringify({
    db: { redis: { host: '127.0.0.1', port: Number(redisPort) } },
    crypto: { cipherKey: 'bench', algorithm: 'aes256', saltRounds: 10 },
    session: { secret: 'bench', resave: false, saveUninitialized: false },
  }),
);
process.env['LOG_LEVEL'] = 'error';
await require('express-gateway')().load(directory).run();

const post = async (path, body) => {
  const answer = await fetch(`http://127.0.0.1:${adminPort}/${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return await answer.json();
};
await post('users', { username: 'bench', firstname: 'b', lastname: 'b' });
const headers = [];
while (headers.length < Number(count)) {
  const { keyId, keySecret } = await post('credentials', { consumerId: 'bench', type: 'key-auth' });
  headers.push(`apiKey ${keyId}:${keySecret}`);
}
console.log(JSON.stringify({ ready: true, headers }));
