import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { connect, type Socket } from 'node:net';
import type { Callers } from '../../verifier/core/callers.ts';
import type { ClientIps, CredentialSource } from '../../verifier/doors/http/credentials.ts';
import type { HttpLimits, Listener } from '../../verifier/doors/http/server.ts';
import { createVerifierServer, type VerifierServer } from '../../verifier/verifier-server.ts';
import { limits, ScriptedAnswers } from './scripted-answers.ts';

/** Everything that a client can learn of a server by sending it some bytes. */
export interface Outcome {
  /** Bytes that came back; dates and made request ids are replaced, and nothing else. */
  readonly answered: string;
  /** State of the connection at the end; `closed` = by the server, though the client had not ended its side. */
  readonly left: 'open' | 'closed';
  /** Answer to one more request on an open connection, which the client then ended. */
  readonly probed: string;
  /** The questions that were decided, as `key of API`. */
  readonly asked: readonly string[];
  /** Requests that arrived behind it; made request ids are replaced. */
  readonly seen: readonly string[];
}

/** Server behind a proxy, in the hands of the test. */
export interface Behind {
  /** Bytes that arrived so far, on either side. */
  readonly moved: number;
  /** True if all that was written has arrived. */
  readonly calm: boolean;
  /** Does the next thing that is to be done; false = there is none. */
  goOn(): boolean;
  /** Everything that arrives from now on belongs to the `round`th write of the client. */
  begin(round: number): void;
  /** Requests that arrived since the last call, each with its round in front, sorted. */
  take(): string[];
}

/** The request that shows what is left on the wire: a parser in the middle of something reads it as that. */
const PROBE =
  'POST /v1/keys.verifyKey HTTP/1.1\r\nHost: probe\r\nX-Request-Id: probe\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{"key":"rich"}';

/** Turns of the event loop without a moving byte, after which no more bytes are expected. */
const CALM_TURNS = 8;
/** Turns after which a server that has not read what was sent is taken to have stopped reading. */
const READ_TURNS_MAX = 20;

/**
 * A verifier that gateways may ask, too.
 * @param more.callers undefined = it asks nobody for a root key
 * @param more.clientIps undefined = it knows no address of a client
 */
export function verifierSubject(
  changed: Partial<HttpLimits>,
  {
    callers,
    clientIps,
    sources = ['bearer', 'x-api-key'],
  }: { callers?: Callers; clientIps?: ClientIps; sources?: readonly CredentialSource[] } = {},
): Subject<VerifierServer> {
  const answers = new ScriptedAnswers();
  const server = createVerifierServer({
    verifier: answers,
    callers,
    limits: { ...limits, ...changed },
    log: { error: () => undefined },
    authz: {
      sources,
      withMeta: true,
      stamps: ['X-Key-Token'],
      allowPreflight: true,
      needsApi: false,
      clientIps,
    },
  });
  return new Subject(server, answers, PROBE);
}

/** A listener, and the means to say anything to it and to know when it has nothing more to say. */
export class Subject<Server extends Listener> {
  readonly server: Server;
  readonly #answers: ScriptedAnswers;
  readonly #probe: string;
  readonly #behind: Behind | undefined;
  /** The server's ends of the connections, by the client's port. */
  readonly #sockets = new Map<number, Socket>();
  #port = 0;

  /** @param behind what the listener is a proxy for, if it is one */
  constructor(server: Server, answers: ScriptedAnswers, probe: string, behind?: Behind) {
    this.server = server;
    this.#answers = answers;
    this.#probe = probe;
    this.#behind = behind;
  }

  async start(): Promise<void> {
    subscribe('net.server.socket', this.#onSocket);
    this.#port = Number(new URL(await this.server.listen('127.0.0.1', 0)).port);
  }

  async stop(): Promise<void> {
    unsubscribe('net.server.socket', this.#onSocket);
    await this.server.close(0);
  }

  /**
   * Says `writes` on a connection of its own. `patient`: the next is not sent before all answers to the one before
   * are there, and then comes one more request. `hurried`: none is waited for, the client ends its side at once, and no
   * slow look-up is done before that. To a proxy the end would mean that the client gives up, so that nothing is sure
   * any more: there it is left out, and nothing behind the proxy answers before all was said.
   */
  async hear(writes: readonly Buffer[], manner: 'patient' | 'hurried'): Promise<Outcome> {
    this.#answers.asked.length = this.#answers.askedApis.length = 0;
    const client = connect({ port: this.#port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true });
    let text = '';
    let ended = false;
    client.setEncoding('latin1').on('data', (part: string) => {
      text += part;
    });
    const end = () => {
      ended = true;
    };
    client.on('end', end).on('close', end).on('error', end);
    await new Promise((resolve) => client.once('connect', resolve));
    const server = await this.#accepted(client.localPort ?? 0);
    let sent = 0;
    let round = 0;
    const say = async (bytes: Buffer) => {
      sent += bytes.length;
      if (manner === 'patient') this.#behind?.begin(++round);
      client.write(bytes);
      if (manner === 'patient') await this.#calm(client, server, sent);
      else for (let i = 0; i < READ_TURNS_MAX && server.bytesRead < sent; i++) await turn();
    };
    for (const bytes of writes) if (!ended) await say(bytes);
    if (manner === 'hurried' && this.#behind !== undefined) {
      await this.#calm(client, server, sent);
    } else if (manner === 'hurried') {
      client.end();
      await turn();
      while (!ended) await this.#goOn();
    }
    const answered = plain(text);
    const left = ended ? 'closed' : 'open';
    text = '';
    if (left === 'open') {
      await say(Buffer.from(this.#probe));
      if (manner === 'hurried') await this.#calm(client, server, sent);
      client.end();
      // A server that waits for one of its answers to be read may have stopped reading, and never sees the end.
      while (!ended && !(this.#behind && server.isPaused())) await this.#goOn();
    }
    client.destroy();
    server.destroy();
    const seen = await this.#seen();
    return { answered, left, probed: plain(text), asked: this.#asked(), seen };
  }

  /** Requests that arrived behind, once those that the client gave up are given up there too. */
  async #seen(): Promise<string[]> {
    if (this.#behind === undefined) return [];
    while (this.server.requestsInFlight > 0 || !this.#behind.calm) await this.#goOn();
    return this.#behind.take().map((text) => text.replace(MADE_LINE, '$1made'));
  }

  #asked(): string[] {
    const { asked, askedApis } = this.#answers;
    return asked.map((key, i) => `${key} of ${askedApis[i]}`).toSorted();
  }

  readonly #onSocket = (message: unknown) => {
    const { socket } = message as { socket: Socket };
    if (socket.localPort !== this.#port || socket.remotePort === undefined) return;
    const port = socket.remotePort;
    this.#sockets.set(port, socket);
    socket.once('close', () => this.#sockets.delete(port));
  };

  async #accepted(port: number): Promise<Socket> {
    for (;;) {
      const socket = this.#sockets.get(port);
      if (socket !== undefined) return socket;
      await turn();
    }
  }

  /** Waits until the server has read all and its answers are here, and nothing moves any more. */
  async #calm(client: Socket, server: Socket, sent: number): Promise<void> {
    let before = -1;
    const behind = this.#behind;
    for (let calm = 0; calm < CALM_TURNS || behind?.goOn(); ) {
      await this.#goOn();
      const moved = server.bytesRead + server.bytesWritten + client.bytesRead + (behind?.moved ?? 0);
      const over = client.readableEnded || client.destroyed;
      const read =
        over ||
        ((server.bytesRead === sent || server.isPaused()) &&
          server.bytesWritten === client.bytesRead &&
          server.writableLength === 0);
      const idle = read && behind?.calm !== false;
      calm = idle && moved === before && !(server.writableEnded && !over) ? calm + 1 : 0;
      before = moved;
    }
  }

  /** Lets the look-ups go on that are held back, and a turn of the event loop pass. */
  #goOn(): Promise<void> {
    this.#answers.release();
    return turn();
  }
}

const turn = () => new Promise<void>((resolve) => void setImmediate(resolve));

const DATE = /\r\nDate: ([A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT)\r\n/g;
/** Largest distance of a `Date` from now, milliseconds. */
const DATE_OFF_MS_MAX = 5000;

const DURATION = /(\r\nServer-Timing: keyfence;dur=)\d+\.\d\d(?=\r\n)/g;

const MADE_ID = '[0-9a-f]{16}[0-9a-z]+';
const MADE_HEAD = new RegExp(
  `X-Request-Id: (${MADE_ID})\\r\\n((?:[^\\r\\n]+\\r\\n)*?)Content-Length: (\\d+)`,
  'g',
);
const MADE_LINE = new RegExp(`(\\r\\nX-Request-Id: )${MADE_ID}(?=\\r\\n)`, 'g');
const MADE_IN_BODY = new RegExp(`"requestId":"${MADE_ID}"`, 'g');

/** Returns what two servers must have in common: all but the times and the request ids they made. */
function plain(text: string): string {
  return text
    .replace(DATE, (line, date: string) =>
      Math.abs(Date.parse(date) - Date.now()) < DATE_OFF_MS_MAX ? '\r\nDate: now\r\n' : line,
    )
    .replace(DURATION, '$1some')
    .replace(MADE_HEAD, (_head, id: string, lines: string, length: string) => {
      const rest = length === '0' ? 0 : Number(length) - id.length;
      return `X-Request-Id: made\r\n${lines}Content-Length: ${rest}`;
    })
    .replace(MADE_IN_BODY, '"requestId":"made"');
}
