// Sends verifyKey at fixed rates: `open-loop.ts <port> <seconds> <keys file> <requests/s> [<keys file>
// <requests/s>]…`. The first stream of requests always runs; the others take turns: a second without any,
// then a second of each, and so on. The latencies of the first stream are printed. Each stream has 32
// connections. A latency counts from the time when the request was due, not from when it could be sent (Tene,
// "How NOT to Measure Latency"), so a server that stalls is charged for every request that had to wait. The
// first turn warms up and is not counted. The process spins on its core, because timers are too coarse, and
// makes little garbage, because its own pauses would count as the server's. All streams share one process,
// because two processes would alternate on the core.
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { percentile } from '../harness.ts';

const CONNECTIONS = 32;
const [port = '', seconds = '', ...args] = process.argv.slice(2);
/** Time until all streams have had their turn, seconds. */
const turnS = args.length / 2;
const [BODY, VALID, LAST] = [Buffer.from('\r\n\r\n{'), Buffer.from('"valid":true'), '}'.charCodeAt(0)];

interface Connection {
  readonly socket: Socket;
  /** Number of the request in flight on this connection. */
  at: number;
}

class Stream {
  readonly #requests: readonly Buffer[];
  readonly #rate: number;
  readonly #place: number;
  readonly #total: number;
  readonly #latencies: Float64Array;
  readonly #idle: Connection[] = [];
  #sent = 0;
  #received = 0;
  #valid = 0;

  /** @param place 0 = always runs, else its second in each turn */
  constructor(keysFile: string, rate: number, place: number) {
    this.#requests = readFileSync(keysFile, 'utf8').split('\n').map(requestOf);
    this.#rate = rate;
    this.#place = place;
    this.#total = (rate * (turnS + Number(seconds))) / (place === 0 ? 1 : turnS);
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
      at: 0,
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

  /** The time at which a request is due, milliseconds from the start. */
  #dueMs(at: number): number {
    const runsMs = (at * 1000) / this.#rate;
    if (this.#place === 0) return runsMs;
    const turn = Math.floor(at / this.#rate);
    return (turn * (turnS - 1) + this.#place) * 1000 + runsMs;
  }

  /** Sends the requests that are due. @returns whether any request is still to be sent or answered */
  send(startMs: number): boolean {
    const nowMs = performance.now() - startMs;
    for (; this.#sent < this.#total && this.#dueMs(this.#sent) <= nowMs; this.#sent++) {
      // Use the connection that was idle longest, so that the server closes none.
      const connection = this.#idle.shift();
      if (!connection) break;
      connection.at = this.#sent;
      const request = this.#requests[Math.floor(Math.random() * this.#requests.length)];
      if (request) connection.socket.write(request);
    }
    return this.#received < this.#total;
  }

  /** Handles an answer, which arrives in one piece because it is short and was written as one. */
  #receive(connection: Connection, bytes: Buffer, length: number): void {
    const body = bytes.indexOf(BODY);
    if (body < 0 || body > length || bytes[length - 1] !== LAST) fail('half an answer');
    this.#latencies[connection.at] = performance.now() - startMs - this.#dueMs(connection.at);
    this.#received++;
    const at = bytes.indexOf(VALID, body);
    if (at >= 0 && at < length) this.#valid++;
    this.#idle.push(connection);
  }

  get seen() {
    const counted = [...this.#latencies.subarray(this.#rate * turnS)];
    const ofSecond = (i: number) => counted.slice(this.#rate * i, this.#rate * (i + 1));
    return {
      p50: percentile(counted, 0.5),
      p99: percentile(counted, 0.99),
      p99s: Array.from({ length: Number(seconds) }, (_, i) => percentile(ofSecond(i), 0.99)),
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
for (let i = 0; i < turnS; i++) streams.push(new Stream(args[2 * i] ?? '', Number(args[2 * i + 1]), i));
await Promise.all(streams.map((stream) => stream.open()));
const startMs = performance.now();
const spin = () => {
  let busy = false;
  for (const stream of streams) busy = stream.send(startMs) || busy;
  if (busy) return void setImmediate(spin);
  console.log(JSON.stringify(streams[0]?.seen));
  process.exit(0);
};
spin();
