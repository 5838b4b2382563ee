import { type Clock, pause } from '#shared/process/clock.ts';
import type { CertificateEnds } from '#shared/redis/certificate-ends.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';

const PERIOD_MS = 3_600_000;
const RETRY_MS = 60_000;

/**
 * Looks when the certificates of Redis and the Sentinels end. Opens connections for that, because those in use may be
 * older than the certificate. A server that nobody is connected to, as a replica, is not seen.
 */
export class CertificateWatch {
  readonly #open: (() => RedisNodes) | undefined;
  readonly #clock: Clock;
  readonly #stop = new AbortController();
  /** As the last look found them; empty without TLS. */
  ends: Readonly<CertificateEnds> = new Map();

  /** @param open connects anew; undefined = Redis has no certificate */
  constructor(open: (() => RedisNodes) | undefined, clock: Clock) {
    this.#open = open;
    this.#clock = clock;
  }

  /** Looks until `stop`; never rejects. */
  async run(): Promise<void> {
    while (this.#open && !this.#stop.signal.aborted) {
      const isDone = await this.#look(this.#open());
      await pause(this.#clock, isDone ? PERIOD_MS : RETRY_MS, this.#stop.signal);
    }
  }

  stop(): void {
    this.#stop.abort();
  }

  async #look(nodes: RedisNodes): Promise<boolean> {
    try {
      await nodes.primaries();
      this.ends = nodes.certificates;
      return true;
    } catch {
      return false; // others log that Redis is out of reach
    } finally {
      await nodes.close();
    }
  }
}
