import type { VerifierEvents } from './key-verifier.ts';

type Listener<E extends keyof VerifierEvents> = (event: VerifierEvents[E]) => void;

/** The listeners to a verifier's events. */
export class EventListeners {
  readonly #listeners: { [E in keyof VerifierEvents]: Set<Listener<E>> } = {
    live: new Set(),
    dropped: new Set(),
  };

  /** @returns a function that removes the listener */
  on<E extends keyof VerifierEvents>(event: E, listener: Listener<E>): () => void {
    const listeners: Set<Listener<E>> | undefined = Object.hasOwn(this.#listeners, event)
      ? this.#listeners[event]
      : undefined;
    if (!listeners) throw new TypeError(`event: must be ${Object.keys(this.#listeners).join(' or ')}`);
    if (typeof listener !== 'function') throw new TypeError('listener: must be a function');
    // A new function for each call, so that a listener added twice is called twice, and each can be removed
    // by itself.
    const own: Listener<E> = (detail) => listener(detail);
    listeners.add(own);
    return () => void listeners.delete(own);
  }

  /**
   * Calls the listeners asynchronously, in a microtask. An error in a listener is the application's fault and
   * stops nothing here.
   */
  emit<E extends keyof VerifierEvents>(event: E, detail: VerifierEvents[E]): void {
    for (const listener of this.#listeners[event]) queueMicrotask(() => listener(detail));
  }
}
