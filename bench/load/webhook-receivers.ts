// Receives webhooks on several ports, and says how many came and how old they were. Prints its ports as JSON.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

const receivers = Number(process.argv[2]);
let count = 0;
let ages: number[] = [];

/** Starts a server; returns its port. */
async function start(): Promise<number> {
  const server = createServer((request, response) => {
    if (request.url === '/counts') {
      response.end(JSON.stringify({ count, ages }));
      count = 0;
      ages = [];
      return;
    }
    let body = '';
    request.setEncoding('utf8').on('data', (chunk) => {
      body += chunk;
    });
    request.on('end', () => {
      count++;
      if (count % 16 === 0) ages.push(Date.now() - Date.parse(JSON.parse(body).timestamp));
      response.writeHead(204).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

const ports = await Promise.all(Array.from({ length: receivers }, start));
console.log(JSON.stringify({ ports }));
