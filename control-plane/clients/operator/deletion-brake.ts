import { hash } from 'node:crypto';
import type { Clock } from '#shared/process/clock.ts';
import type { Kube } from './kube.ts';
import { type ApiKey, CONFIRM, type KeyApi, keyApis } from './objects.ts';
import type { Report } from './reporter.ts';

const WINDOW_MS = 600_000;
const DELETED_MIN = 10;
const DELETED_SHARE = 0.2;
const TOKEN_MS = 3_600_000;
const TOKEN_LENGTH = 10;
const WAIT =
  'wait: too many are deleted within ten minutes. Their keys are accepted. To stop one key now, set spec.enabled: false of its object';

/** The deletions of an API within the present window. */
interface Window {
  readonly sinceMs: number;
  /** Number of the API's objects at the first of them. */
  readonly objects: number;
  count: number;
}

interface Braked {
  window: Window | undefined;
  /** Uids that may go, and those that wait. */
  readonly passed: Set<string>;
  readonly waiting: Set<string>;
  readonly confirmed: Set<string>;
  token: { readonly text: string; readonly ofMs: number } | undefined;
}

interface BrakeOptions {
  readonly kube: Kube;
  readonly clock: Clock;
  /** Called when an object waits. */
  readonly onWaiting: (apiId: string) => void;
  /** The KeyApi that declares an API, as it is now. */
  readonly declares: (apiId: string) => KeyApi | undefined;
  /** Uids of all objects of an API that are there. */
  readonly uids: (apiId: string) => readonly string[];
}

/**
 * Lets only some objects of an API delete their keys within ten minutes: a namespace or a set of files that is deleted by mistake
 * takes few keys with it. The KeyApi keeps the count, so a restart forgets nothing. A person confirms the others.
 */
export class DeletionBrake {
  readonly #options: BrakeOptions;
  readonly #apis = new Map<string, Braked>();
  /** The turn of each API: objects are worked on at the same time. */
  readonly #turns = new Map<string, Promise<unknown>>();

  constructor(options: BrakeOptions) {
    this.#options = options;
  }

  /** Resolves with why the keys of an object wait; undefined = they may be deleted. */
  hold(object: ApiKey): Promise<string | undefined> {
    const { api: apiId } = object.spec;
    const turn = (this.#turns.get(apiId) ?? Promise.resolve()).then(
      () => this.#hold(apiId, object.metadata.uid),
      () => this.#hold(apiId, object.metadata.uid),
    );
    this.#turns.set(apiId, turn);
    return turn;
  }

  /** The condition of the KeyApi of an API. */
  condition(apiId: string): Report['conditions'][number] {
    const type = 'DeletionsPass';
    const waiting = this.#waiting(apiId, this.#stateOf(apiId));
    if (waiting.length === 0)
      return { type, status: 'True', reason: 'Few', message: 'no object waits to be deleted' };
    return {
      type,
      status: 'False',
      reason: 'TooManyDeleted',
      message: this.#text(apiId, this.#stateOf(apiId)),
    };
  }

  async #hold(apiId: string, uid: string): Promise<string | undefined> {
    const { clock, declares, uids } = this.#options;
    const state = this.#stateOf(apiId);
    if (state.passed.has(uid)) return undefined;
    const nowMs = clock.wallMs();
    const isOver = !state.window || nowMs - state.window.sinceMs >= WINDOW_MS;
    const window =
      isOver || !state.window ? { sinceMs: nowMs, objects: uids(apiId).length, count: 0 } : state.window;
    const isConfirmed = this.#confirmed(declares(apiId), state, nowMs).has(uid);
    if (!isConfirmed && window.count >= Math.max(DELETED_MIN, Math.floor(DELETED_SHARE * window.objects))) {
      state.waiting.add(uid);
      this.#renewToken(apiId, state, nowMs);
      this.#options.onWaiting(apiId);
      return `objects ${WAIT}. DeletionsPass of the KeyApi has the command with which all of them go`;
    }
    const next = isConfirmed ? window : { ...window, count: window.count + 1 };
    // Before anything is deleted: a restart counts it too.
    await this.#store(apiId, next);
    state.window = next;
    state.passed.add(uid);
    state.waiting.delete(uid);
    return undefined;
  }

  #stateOf(apiId: string): Braked {
    const present = this.#apis.get(apiId);
    if (present) return present;
    const { since, objects, count } = this.#options.declares(apiId)?.status?.deletions ?? {};
    const sinceMs = Date.parse(since ?? '');
    const window = Number.isNaN(sinceMs) ? undefined : { sinceMs, objects: objects ?? 0, count: count ?? 0 };
    const state: Braked = {
      window,
      passed: new Set(),
      waiting: new Set(),
      confirmed: new Set(),
      token: undefined,
    };
    this.#apis.set(apiId, state);
    return state;
  }

  #waiting(apiId: string, state: Braked): string[] {
    const present = new Set(this.#options.uids(apiId));
    for (const uid of state.waiting) if (!present.has(uid)) state.waiting.delete(uid);
    for (const uid of state.passed) if (!present.has(uid)) state.passed.delete(uid);
    return [...state.waiting].sort();
  }

  /** A token stands for exactly those that wait, for an hour. */
  #renewToken(apiId: string, state: Braked, nowMs: number): void {
    const ofMs = state.token && nowMs - state.token.ofMs < TOKEN_MS ? state.token.ofMs : nowMs;
    const text = hash('sha256', [ofMs, ...this.#waiting(apiId, state)].join(' ')).slice(0, TOKEN_LENGTH);
    state.token = { text, ofMs };
  }

  #confirmed(api: KeyApi | undefined, state: Braked, nowMs: number): ReadonlySet<string> {
    const { token } = state;
    const isGood =
      token && nowMs - token.ofMs < TOKEN_MS && api?.metadata.annotations?.[CONFIRM] === token.text;
    if (isGood) for (const uid of state.waiting) state.confirmed.add(uid);
    return state.confirmed;
  }

  #text(apiId: string, state: Braked): string {
    const name = this.#options.declares(apiId)?.metadata.name ?? apiId;
    const count = this.#waiting(apiId, state).length;
    return `${count} objects of the API ${apiId} ${WAIT}. If all of them are to go: kubectl annotate --overwrite keyapi ${name} ${CONFIRM}=${state.token?.text ?? ''}`;
  }

  async #store(apiId: string, { sinceMs, objects, count }: Window): Promise<void> {
    const { kube, declares } = this.#options;
    const api = declares(apiId);
    if (!api) return;
    const deletions = { since: new Date(sinceMs).toISOString(), objects, count };
    await kube.patch(keyApis, api.metadata.name, { status: { deletions } }, 'status');
  }
}
