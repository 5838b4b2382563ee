// A minimal proxy on node:http alone, which verifies nothing. `minimal-http-proxy.ts <port> <upstream>`
import { Agent, createServer, request } from 'node:http';

const [port = '0', upstream = ''] = process.argv.slice(2);
const agent = new Agent({ keepAlive: true, maxSockets: 1000 });

const server = createServer((incoming, outgoing) => {
  const { method, url: path, headers } = incoming;
  const passed = request(upstream, { agent, method, path, headers }, (answer) => {
    outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(outgoing);
  });
  passed.on('error', () => outgoing.writeHead(502).end());
  incoming.pipe(passed);
});
server.keepAliveTimeout = 90_000;
server.listen(Number(port), '127.0.0.1', () => console.log(JSON.stringify({ ready: true })));
