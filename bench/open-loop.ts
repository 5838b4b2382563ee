// Asks verifyKey at fixed rates: `open-loop.ts <port> <seconds> <keys file> <requests/s> [<keys file> <requests/s>]`;
// each stream of requests has 32 connections, and prints a line. The latency counts from when a request was due, not
// from when it could be sent (Tene, "How NOT to Measure Latency"), so a server that stalls is charged for everyone who
// had to wait. The first second warms up and is not counted. It spins on its core, for timers are too coarse, and makes
// little garbage, for its own pauses would be the server's; all streams are one process, for two would spin by turns.
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { percentile } from './harness.ts';

const CONNECTIONS = 32;
const WARM_UP_S = 1;
const [port = '', seconds = '', ...args] = process.argv.slice(2);
const [BODY, VALID, LAST] = [Buffer.from('\r\n\r\n{'), Buffer.from('"valid":true'), '}'.charCodeAt(0)];

interface Connection {
  readonly socket: Socket;
  dueMs: number;
}

class Stream {
  readonly #requests: readonly Buffer[];
  readonly #rate: number;
  readonly #total: number;
  readonly #latencies: Float64Array;
  readonly #idle: Connection[] = [];
  #sent = 0;
  #received = 0;
  #valid = 0;

  constructor(keysFile: string, rate: number) {
    this.#requests = readFileSync(keysFile, 'utf8').split('\n').map(requestOf);
    this.#rate = rate;
    this.#total = rate * (WARM_UP_S + Number(seconds));
    this.#latencies = new Float64Array(this.#total);
  }

  async open(): Promise<void> {
    await Promise.all(Array.from({ length: CONNECTIONS }, () => this.#connect()));
  }

  #connect(): Promise<void> {
    const buffer = Buffer.alloc(4096);
    const callback = (length: number) => {
      this.#receive(connection, buffer, length);
      return true;
    };
    const connection: Connection = {
      socket: connect({ port: Number(port), host: '127.0.0.1', onread: { buffer, callback } }),
      dueMs: 0,
    };
    connection.socket.setNoDelay(true).resume();
    connection.socket.on('close', () => fail('a connection was closed'));
    return new Promise((resolve) => {
      connection.socket.on('connect', () => {
        this.#idle.push(connection);
        resolve();
      });
    });
  }

  /** Sends what is due. @returns whether anything is still to be sent or answered */
  send(startMs: number): boolean {
    const due = Math.min(this.#total, ((performance.now() - startMs) * this.#rate) / 1000);
    for (; this.#sent < due; this.#sent++) {
      const connection = this.#idle.pop();
      if (!connection) break;
      connection.dueMs = startMs + (this.#sent * 1000) / this.#rate;
      const request = this.#requests[Math.floor(Math.random() * this.#requests.length)];
      if (request) connection.socket.write(request);
    }
    return this.#received < this.#total;
  }

  /** An answer comes in one piece: it is short, and was written as one. */
  #receive(connection: Connection, bytes: Buffer, length: number): void {
    const body = bytes.indexOf(BODY);
    if (body < 0 || body > length || bytes[length - 1] !== LAST) fail('half an answer');
    this.#latencies[this.#received++] = performance.now() - connection.dueMs;
    const at = bytes.indexOf(VALID, body);
    if (at >= 0 && at < length) this.#valid++;
    this.#idle.push(connection);
  }

  get seen() {
    const counted = [...this.#latencies.subarray(this.#rate * WARM_UP_S)];
    return {
      p50: percentile(counted, 0.5),
      p99: percentile(counted, 0.99),
      valid: this.#valid,
      all: this.#total,
    };
  }
}

function requestOf(key: string): Buffer {
  const body = JSON.stringify({ key });
  return Buffer.from(
    `POST /v1/keys.verifyKey HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
}

function fail(why: string): never {
  console.error(why);
  process.exit(1);
}

const streams: Stream[] = [];
for (let i = 0; i < args.length; i += 2) streams.push(new Stream(args[i] ?? '', Number(args[i + 1])));
await Promise.all(streams.map((stream) => stream.open()));
const startMs = performance.now();
const spin = () => {
  let busy = false;
  for (const stream of streams) busy = stream.send(startMs) || busy;
  if (busy) return void setImmediate(spin);
  for (const { seen } of streams) console.log(JSON.stringify(seen));
  process.exit(0);
};
spin();
