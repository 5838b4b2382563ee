// Asks verifyKey at a fixed rate over 32 connections: `open-loop.ts <port> <keys file> <requests/s> <seconds>`. The
// latency counts from when a request was due, not from when it could be sent (Tene, "How NOT to Measure Latency"), so
// a server that stalls is charged for everyone who had to wait. The first second warms up and is not counted. It spins on its core, for timers are too coarse.
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { percentile } from './harness.ts';

const CONNECTIONS = 32;
const WARM_UP_S = 1;
const [port = '', keysFile = '', rate = '', seconds = ''] = process.argv.slice(2);
const requests = readFileSync(keysFile, 'utf8')
  .split('\n')
  .map((key) => {
    const body = JSON.stringify({ key });
    return Buffer.from(
      `POST /v1/keys.verifyKey HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
  });

interface Connection {
  readonly socket: Socket;
  dueMs: number;
  answer: string;
}
const total = Number(rate) * (WARM_UP_S + Number(seconds));
const idle: Connection[] = [];
const latencies: number[] = [];
let valid = 0;
let open = 0;
let sent = 0;

for (let i = 0; i < CONNECTIONS; i++) {
  const connection: Connection = {
    socket: connect({ port: Number(port), host: '127.0.0.1' }),
    dueMs: 0,
    answer: '',
  };
  connection.socket.setNoDelay(true);
  connection.socket.on('connect', () => {
    idle.push(connection);
    if (++open === CONNECTIONS) send(performance.now());
  });
  connection.socket.on('data', (chunk) => receive(connection, chunk.toString('latin1')));
  connection.socket.on('close', () => {
    console.error('a connection was closed');
    process.exit(1);
  });
}

function send(startMs: number): void {
  const due = Math.min(total, ((performance.now() - startMs) * Number(rate)) / 1000);
  for (; sent < due; sent++) {
    const connection = idle.pop();
    if (!connection) break;
    connection.dueMs = startMs + (sent * 1000) / Number(rate);
    const request = requests[Math.floor(Math.random() * requests.length)];
    if (request) connection.socket.write(request);
  }
  if (sent < total || idle.length < CONNECTIONS) setImmediate(send, startMs);
  else finish();
}

function receive(connection: Connection, chunk: string): void {
  connection.answer += chunk;
  const head = connection.answer.indexOf('\r\n\r\n');
  if (head < 0) return;
  const length = Number(/\r\ncontent-length: (\d+)/i.exec(connection.answer)?.[1]);
  if (connection.answer.length < head + 4 + length) return;
  latencies.push(performance.now() - connection.dueMs);
  if (connection.answer.includes('"valid":true')) valid++;
  connection.answer = '';
  idle.push(connection);
}

function finish(): void {
  latencies.splice(0, Number(rate) * WARM_UP_S);
  const seen = {
    p50: percentile(latencies, 0.5),
    p99: percentile(latencies, 0.99),
    valid,
    all: total,
  };
  console.log(JSON.stringify(seen));
  process.exit(0);
}
