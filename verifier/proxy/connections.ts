import type { Client } from 'undici';
import type { Clock } from '#shared/process/clock.ts';

/** Time for which an idle connection is used again if the server does not tell its time, in milliseconds. */
export const IDLE_MS_MAX = 4000;
/** Margin below the time that the server tells in `Keep-Alive: timeout=`, in milliseconds. */
export const TOLD_MARGIN_MS = 1000;
/** The same for a request that cannot be sent again. */
const UNREPEATABLE_IDLE_MS_MAX = 1000;
/** Part of the shortest idle time after which the server closed a connection. */
const LEARNT_PART = 0.75;
/** Time after which the learnt time is forgotten: a server that restarts closes connections of any age. */
const LEARNT_FOR_MS = 600_000;

/** A connection to a server, for one request at a time. */
export class Connection {
  readonly client: Client;
  /** True = it has brought no response yet. */
  isNew = true;
  /** The end of the last response. */
  usedAtMs = 0;
  /** Time for which the server said that it keeps the connection, less the margin; undefined = it did not say. */
  toldMs: number | undefined;

  constructor(client: Client) {
    this.client = client;
  }

  /** Takes the time that the server tells from the header of a response. */
  noteKeepAlive(header: string | undefined): void {
    const seconds = /timeout=(\d+)/i.exec(header ?? '')?.[1];
    this.toldMs = seconds === undefined ? undefined : Number(seconds) * 1000 - TOLD_MARGIN_MS;
  }
}

/** Returns true if the error is that the other side closed the connection. */
export function isByServer(error: Error): boolean {
  return BY_SERVER.has('code' in error ? String(error.code) : '');
}

const BY_SERVER: ReadonlySet<string> = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE']);

/**
 * The connections to one server. An idle one is used again only while the server keeps it for certain, because a request
 * that arrives at a closing connection is lost.
 */
export class Connections {
  readonly #create: () => Client;
  readonly #clock: Clock;
  readonly #max: number;
  readonly #all = new Set<Connection>();
  /** By the end of their last response, the latest at the end. */
  readonly #idle: Connection[] = [];
  #learntMs = Infinity;
  #learntAtMs = 0;

  /** @param max maximum number of connections, used and idle */
  constructor(create: () => Client, clock: Clock, max: number) {
    this.#create = create;
    this.#clock = clock;
    this.#max = max;
  }

  /**
   * Returns a connection that nobody uses. The caller ends its use with `giveBack` or `drop`.
   * @param isRepeatable false = a request that must not be sent again
   */
  take(isRepeatable: boolean): Connection {
    const last = this.#idle.at(-1);
    const nowMs = this.#clock.monotonicMs();
    // The others have been idle for longer.
    if (last === undefined || nowMs - last.usedAtMs >= this.#idleMsMax(last, isRepeatable, nowMs))
      return this.open();
    this.#idle.pop();
    return last;
  }

  /** Returns a new connection, which opens with its first request. */
  open(): Connection {
    if (this.#all.size >= this.#max) {
      const [oldest] = this.#idle;
      if (oldest) this.drop(oldest);
    }
    const connection = new Connection(this.#create());
    this.#all.add(connection);
    connection.client.on('disconnect', (_url, _targets, error) => {
      // A client connects again for a request that it has not sent yet.
      connection.isNew = true;
      if (!this.#idle.includes(connection)) return;
      if (connection.toldMs === undefined && isByServer(error)) this.learn(connection);
      this.drop(connection);
    });
    return connection;
  }

  /** Takes a connection back that has brought a whole response. */
  giveBack(connection: Connection): void {
    connection.isNew = false;
    connection.usedAtMs = this.#clock.monotonicMs();
    this.#idle.push(connection);
  }

  /** Closes a connection. */
  drop(connection: Connection): void {
    const at = this.#idle.indexOf(connection);
    if (at >= 0) this.#idle.splice(at, 1);
    this.#all.delete(connection);
    void connection.client.destroy();
  }

  /** Notes that the server closed a connection that had been idle since its last response. */
  learn({ usedAtMs }: Connection): void {
    const nowMs = this.#clock.monotonicMs();
    const learntMs = (nowMs - usedAtMs) * LEARNT_PART;
    this.#learntMs = Math.min(learntMs, this.#learnt(nowMs));
    this.#learntAtMs = nowMs;
  }

  /** Closes all connections, and cuts the requests that are still running. */
  async close(): Promise<void> {
    await Promise.all([...this.#all].map(({ client }) => client.destroy()));
  }

  #learnt(nowMs: number): number {
    return nowMs - this.#learntAtMs < LEARNT_FOR_MS ? this.#learntMs : Infinity;
  }

  #idleMsMax({ toldMs = IDLE_MS_MAX }: Connection, isRepeatable: boolean, nowMs: number): number {
    return Math.min(toldMs, this.#learnt(nowMs), isRepeatable ? Infinity : UNREPEATABLE_IDLE_MS_MAX);
  }
}
