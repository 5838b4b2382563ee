import type { Session } from './redis-port.ts';

/** Names that are kept for another attempt to leave. A fence removes those that do not fit here. */
const NAMES_MAX = 16;

/** Names of a follower that may still be registered although nothing is remembered under them. */
export class FormerNames {
  readonly #names = new Set<string>();

  /** Takes out every former name, and `latest` with them. Only where nothing is remembered under any of them. */
  async leave(session: Session, latest: string): Promise<void> {
    if (latest && this.#names.size < NAMES_MAX) this.#names.add(latest);
    const departures = [...this.#names].map((name) =>
      session.leave(name).then(() => this.#names.delete(name)),
    );
    await Promise.allSettled(departures);
  }
}
