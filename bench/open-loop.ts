// Asks verifyKey at a fixed rate over 32 connections: `open-loop.ts <port> <keys file> <requests/s> <seconds>`. The
// latency counts from when a request was due, not from when it could be sent (Tene, "How NOT to Measure Latency"), so
// a server that stalls is charged for everyone who had to wait. The first second warms up and is not counted. It spins on
// its core, for timers are too coarse, and makes little garbage, for its own pauses would be the server's.
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
}
const total = Number(rate) * (WARM_UP_S + Number(seconds));
const idle: Connection[] = [];
const latencies = new Float64Array(total);
let received = 0;
let valid = 0;
let open = 0;
let sent = 0;

for (let i = 0; i < CONNECTIONS; i++) {
  const buffer = Buffer.alloc(4096);
  const onread = {
    buffer,
    callback(length: number) {
      receive(connection, buffer, length);
      return true;
    },
  };
  const connection: Connection = {
    socket: connect({ port: Number(port), host: '127.0.0.1', onread }),
    dueMs: 0,
  };
  connection.socket.setNoDelay(true);
  connection.socket.on('connect', () => {
    idle.push(connection);
    if (++open === CONNECTIONS) send(performance.now());
  });
  connection.socket.resume().on('close', () => fail('a connection was closed'));
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

const [BODY, VALID, LAST] = [Buffer.from('\r\n\r\n{'), Buffer.from('"valid":true'), '}'.charCodeAt(0)];

/** An answer comes in one piece: it is short, and was written as one. */
function receive(connection: Connection, bytes: Buffer, length: number): void {
  const body = bytes.indexOf(BODY);
  if (body < 0 || body > length || bytes[length - 1] !== LAST) fail('half an answer');
  latencies[received++] = performance.now() - connection.dueMs;
  const at = bytes.indexOf(VALID, body);
  if (at >= 0 && at < length) valid++;
  idle.push(connection);
}

function fail(why: string): never {
  console.error(why);
  process.exit(1);
}

function finish(): void {
  const counted = [...latencies.subarray(Number(rate) * WARM_UP_S)];
  const seen = {
    p50: percentile(counted, 0.5),
    p99: percentile(counted, 0.99),
    valid,
    all: total,
  };
  console.log(JSON.stringify(seen));
  process.exit(0);
}
