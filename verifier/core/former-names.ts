import type { Session } from './redis-port.ts';

/** Maximum number of names that are kept to leave again later. A fence removes the others. */
const NAMES_MAX = 16;

/** Names of a follower that may still be registered, although the follower remembers nothing under them. */
export class FormerNames {
  readonly #names = new Set<string>();

  /**
   * Removes from Redis the follower's registration under the name `latest` and under every former name. Call it only if the follower
   * remembers nothing under any of these names.
   */
  async leave(session: Session, latest: string): Promise<void> {
    if (latest && this.#names.size < NAMES_MAX) this.#names.add(latest);
    const departures = [...this.#names].map((name) =>
      session.leave(name).then(() => this.#names.delete(name)),
    );
    await Promise.allSettled(departures);
  }
}
