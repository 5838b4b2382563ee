import { exchange, type Route } from './exchange.ts';
import { OPERATION_KINDS, type Operations } from './interface.ts';

export { AdminError, type RefusedField } from './exchange.ts';
export type { Operations } from './interface.ts';

/** The name of an operation, such as `keys.createKey`. */
export type OperationName = keyof Operations;

type Arguments<Name extends OperationName> =
  Partial<Operations[Name]['input']> extends Operations[Name]['input']
    ? [input?: Operations[Name]['input'], options?: CallOptions]
    : [input: Operations[Name]['input'], options?: CallOptions];

/** The operations of a group as methods: `admin.keys.createKey({ apiId: 'shop' })`. */
type Groups = {
  readonly [Group in OperationName extends `${infer Group}.${string}` ? Group : never]: {
    readonly [Name in OperationName as Name extends `${Group}.${infer Method}` ? Method : never]: (
      ...request: Arguments<Name>
    ) => Promise<Operations[Name]['output']>;
  };
};

/** A client of the control plane: every operation of the reference, by its group, and the same by its name. */
export interface Admin extends Groups {
  /** Calls an operation by its name, such as `keys.createKey`. Rejects with AdminError. */
  call<Name extends OperationName>(
    name: Name,
    ...request: Arguments<Name>
  ): Promise<Operations[Name]['output']>;
}

export interface CallOptions {
  /** Ends the wait for the answer. A change may then take effect all the same. */
  readonly signal?: AbortSignal;
  /**
   * The header Idempotency-Key, your own name for a call that adds or creates: repeated with it within a day, it takes effect
   * once and gets the first answer.
   */
  readonly idempotencyKey?: string;
}

export interface AdminOptions {
  /** The address of the control plane, with the path that a proxy adds to it, if any. */
  readonly url: string | URL;
  /** A root key, or a function that returns the present one. */
  readonly rootKey?: string | (() => string | undefined | Promise<string | undefined>);
  /** Longest wait for an answer, in milliseconds; 75,000 by default, since a change may wait for 60 s. */
  readonly timeoutMs?: number;
  /** Sends the request; `fetch` by default. */
  readonly fetch?: Route['fetch'];
}

const TIMEOUT_MS = 75_000;
const OPTIONS = ['url', 'rootKey', 'timeoutMs', 'fetch'];

/**
 * Creates a client. It follows no redirect, so that the root key goes nowhere else, and repeats no call by itself. Throws a
 * TypeError for options that are wrong.
 */
export function createAdmin(options: AdminOptions): Admin {
  const { url, rootKey, timeoutMs = TIMEOUT_MS, fetch = globalThis.fetch } = options;
  const unknown = Object.keys(options).find((name) => !OPTIONS.includes(name));
  if (unknown !== undefined)
    throw new TypeError(`${unknown}: unknown option; there are ${OPTIONS.join(', ')}`);
  if (!URL.canParse(String(url))) throw new TypeError('url: must be an absolute URL');
  if (!(timeoutMs > 0)) throw new TypeError('timeoutMs: must be a number above 0');
  const base = new URL(url);
  const call = async (
    name: string,
    input: object = {},
    { signal, idempotencyKey }: CallOptions = {},
  ): Promise<unknown> => {
    const kind = Object.hasOwn(OPERATION_KINDS, name) ? OPERATION_KINDS[name as OperationName] : undefined;
    if (kind === undefined) throw new TypeError(`${name}: there is no such operation`);
    const key = typeof rootKey === 'function' ? await rootKey() : rootKey;
    return exchange(
      {
        ...{ base, fetch },
        headers: {
          ...(key ? { authorization: `Bearer ${key}` } : {}),
          ...(idempotencyKey === undefined ? {} : { 'idempotency-key': idempotencyKey }),
        },
        signal: AbortSignal.any([AbortSignal.timeout(timeoutMs), ...(signal ? [signal] : [])]),
      },
      ...([name, kind, input] as const),
    );
  };
  const groups: Record<string, Record<string, unknown>> = {};
  for (const name of Object.keys(OPERATION_KINDS)) {
    const [group = '', method = ''] = name.split('.');
    groups[group] = {
      ...groups[group],
      [method]: (...request: [object?, CallOptions?]) => call(name, ...request),
    };
  }
  return { ...groups, call } as unknown as Admin;
}
