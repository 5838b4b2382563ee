import type { VerifierEvents } from './key-verifier.ts';

type Listener<E extends keyof VerifierEvents> = (event: VerifierEvents[E]) => void;

/** Listeners to a verifier's events. */
export class EventListeners {
  readonly #listeners: { [E in keyof VerifierEvents]: Set<Listener<E>> } = {
    live: new Set(),
    dropped: new Set(),
  };

  /** @returns what ends it */
  on<E extends keyof VerifierEvents>(event: E, listener: Listener<E>): () => void {
    const listeners: Set<Listener<E>> | undefined = Object.hasOwn(this.#listeners, event)
      ? this.#listeners[event]
      : undefined;
    if (!listeners) throw new TypeError(`event: must be ${Object.keys(this.#listeners).join(' or ')}`);
    if (typeof listener !== 'function') throw new TypeError('listener: must be a function');
    // Its own function, so that who listens twice is told twice, and ends each by itself.
    const own: Listener<E> = (detail) => listener(detail);
    listeners.add(own);
    return () => void listeners.delete(own);
  }

  /** Tells the listeners soon. One that throws is the application's own fault and holds nothing up here. */
  emit<E extends keyof VerifierEvents>(event: E, detail: VerifierEvents[E]): void {
    for (const listener of this.#listeners[event]) queueMicrotask(() => listener(detail));
  }
}
