// Asks a verifier again and again: node_clients.mjs <fetch|http> <verifyKey|authz> <base> <key> <count>
import { Agent, request } from 'node:http';

const [client, endpoint, base, key, count] = process.argv.slice(2);
const asks = endpoint === 'verifyKey';
const url = base + (asks ? '/v1/keys.verifyKey' : '/authz/forward-auth');
const options = asks
  ? { method: 'POST', headers: { 'content-type': 'application/json' } }
  : { method: 'GET', headers: { authorization: `Bearer ${key}` } };
const body = asks ? JSON.stringify({ key }) : undefined;
const agent = new Agent({ keepAlive: true });

const ways = {
  async fetch() {
    const answer = await fetch(url, { ...options, body });
    await answer.arrayBuffer();
    return answer.status;
  },
  http: () =>
    new Promise((resolve, reject) => {
      request(url, { ...options, agent }, (answer) => {
        answer.resume().once('end', () => resolve(answer.statusCode));
      })
        .once('error', reject)
        .end(body);
    }),
};
for (let i = 0; i < Number(count); i++) {
  const status = await ways[client]();
  if (status !== 200) throw new Error(`status ${status}`);
}
agent.destroy();
