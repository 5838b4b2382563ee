import { AdminError, exchange } from '../../client/exchange.ts';
import { OPERATION_KINDS, type Operations } from '../../client/interface.ts';

/** The response of each operation. */
type Responses = { [Name in keyof Operations]: Operations[Name]['output'] };

/** A key as getKey and listKeys return it. */
export type Key = Responses['keys.getKey'];
/** An identity as getIdentity returns it. */
export type Identity = Responses['identities.getIdentity'];
/** A role as listRoles returns it. */
export type Role = Responses['permissions.listRoles'][number];
/** Progress of a change. */
export type Propagation = Responses['keys.updateKey']['propagation'];
/** A management call, as the audit log lists it. */
export type AuditEvent = Responses['audit.listEvents']['events'][number];
/** A verifier's report about itself. */
export type Verifier = Responses['fleet.listVerifiers']['verifiers'][number];
/** A root key as listRootKeys returns it. */
export type RootKey = Responses['rootKeys.listRootKeys']['rootKeys'][number];
/** A webhook endpoint with the state of its queue. */
export type Endpoint = Responses['webhooks.getEndpoint'];
/** An attempt to deliver an event. */
export type Delivery = Responses['webhooks.listDeliveries']['deliveries'][number];
type Input = Readonly<Record<string, unknown>>;

/** Returns true if a change is complete at the verifiers, and only tokens from before it may still be valid. */
export const awaitsTokens = ({ state, tokens, by }: Propagation): boolean =>
  state === 'pending' && tokens === 'pending' && by !== undefined;

/** The reason why a call failed: the API's code, or UNREACHABLE if the API did not answer. */
export class Failure extends Error {
  readonly code: string;
  readonly requestId: string | undefined;
  /** The fields that it names, each with what is wrong with it. */
  readonly fields: ReadonlyMap<string, string>;

  constructor(code: string, message: string, requestId?: string, fields: Failure['fields'] = new Map()) {
    super(message);
    this.code = code;
    this.requestId = requestId;
    this.fields = fields;
  }

  /** True if the failure may pass soon without any action. */
  get passes(): boolean {
    return ['UNREACHABLE', 'SERVICE_UNAVAILABLE', 'RATE_LIMITED'].includes(this.code);
  }
}

/** Fields of a form that were not entered rightly. */
export class InvalidFields extends Failure {
  constructor(fields: ReadonlyMap<string, string>) {
    super('BAD_REQUEST', 'some fields are not right', undefined, fields);
  }
}

/** A field of a form that was not entered rightly. */
export class InvalidField extends Failure {
  constructor(field: string, rule: string) {
    super('BAD_REQUEST', `${field}: ${rule}`, undefined, new Map([[field, rule]]));
  }
}

/** Tells whether somebody else was faster. */
export const isConflict = (error: unknown): boolean => error instanceof Failure && error.code === 'CONFLICT';

const BASE = new URL('../', document.baseURI);
const SESSION = new URL('session', document.baseURI);
const HANDOVER = new URL('handover', document.baseURI);
const READ_MS_MAX = 15_000;
const CONNECTION_MS = 2000;
/** Longer than the 60 s for which the API may wait for a change. */
const CHANGE_MS_MAX = 75_000;

/** The session's token against CSRF; '' = nobody is signed in. The session itself is in a cookie. */
let csrfToken = '';
/** The permissions of the root key or the person with which the session began. */
let permissions: ReadonlySet<string> = new Set();
/** The root key or the person that is signed in, or was before the session was over. */
let signedIn: SignedIn = {};
let provider: string | undefined;
let clockAheadMs = 0;

/** Events of the session: begun, ended (with the reason), connection lost, connection restored, something changed (with the call). */
export const events = new EventTarget();
/** Tells whether there is a session. */
export const isSignedIn = () => csrfToken !== '';
/** Returns the root key or the person that is signed in. */
export const signedInAs = () => signedIn;
/** Returns the host of the identity provider; undefined = only root keys sign in. */
export const signInProvider = () => provider;
/**
 * Returns the server's clock, Unix milliseconds, at most a second late; times from the server are compared
 * with it.
 */
export const serverNow = () => Date.now() + clockAheadMs;

/**
 * Tells whether the signed-in root key or person has a permission, such as `api.shop.update_key` or `root.*.read_audit`. The
 * server decides; this only hides what it would refuse.
 */
export function may(permission: string): boolean {
  const [service, , action] = permission.split('.');
  const isOnAll = service === 'api' && permissions.has(`api.*.${action}`);
  return permissions.has('*') || permissions.has(permission) || isOnAll;
}

/** Goes on with the session that this browser has, if it has one; resolves with the reason if that cannot be known. */
export async function resume(): Promise<Failure | undefined> {
  try {
    const session = await currentSession();
    if (session) begin(session);
    return undefined;
  } catch (error) {
    return error instanceof Failure ? error : new Failure('INTERNAL', String(error));
  }
}

/** Returns the session that this browser has now; undefined = none. */
async function currentSession(): Promise<Session | undefined> {
  const session = await request(SESSION, { method: 'GET', waitMs: READ_MS_MAX });
  ({ provider } = session);
  return session.csrfToken === undefined ? undefined : session;
}

type SignedIn = Pick<AuditEvent['by'], 'rootKeyId' | 'person'> & { readonly sessionId?: string };

interface Session extends SignedIn {
  readonly csrfToken: string;
  readonly permissions: readonly string[];
}

function begin(session: Session): void {
  csrfToken = session.csrfToken;
  signedIn = session;
  permissions = new Set(session.permissions);
  events.dispatchEvent(new CustomEvent('session', { detail: '' }));
}

/**
 * Signs in with a root key. The server exchanges it for a session, and the browser forgets it. Rejects with a
 * Failure if the server refuses the key.
 */
export async function signIn(rootKey: string): Promise<void> {
  if (!/^[\x21-\x7e]{1,512}$/.test(rootKey)) throw new Failure('UNAUTHORIZED', 'this is not a root key');
  begin(await request(SESSION, { method: 'POST', body: { rootKey }, waitMs: READ_MS_MAX }));
}

/**
 * Ends the session, here and on the server. Resolves with the address that signs the person out at the identity
 * provider too; undefined = there is none.
 */
export async function signOut(): Promise<string | undefined> {
  const ending = request(SESSION, { method: 'DELETE', waitMs: READ_MS_MAX });
  leave('');
  return (await ending.catch(() => ({}))).signOutUrl;
}

function leave(reason: string): void {
  csrfToken = '';
  lastVerifiers = [];
  events.dispatchEvent(new CustomEvent('session', { detail: reason }));
}

/**
 * Calls the API in the session of the signed-in user; leaves the session if it is over.
 */
export async function call<Name extends keyof Responses>(
  operation: Name,
  input: Input = {},
): Promise<Responses[Name]> {
  const sentToken = csrfToken;
  const wasPerson = signedIn.person !== undefined;
  try {
    return await send(operation, input);
  } catch (error) {
    if (!(error instanceof Failure && error.code === 'UNAUTHORIZED')) throw error;
    // Another tab may have opened another session.
    const session = await currentSession();
    if (session === undefined || session.csrfToken === sentToken) {
      const reason = wasPerson ? 'sign in again' : 'or its root key is no longer accepted';
      leave(`The session is over, ${reason}.`);
      throw new Failure('SESSION_OVER', error.message);
    }
    begin(session);
    return send(operation, input);
  }
}

/** Stores an encrypted secret for an hour; returns the id under which it can be taken once. */
export async function putHandover(ciphertext: string): Promise<string> {
  return (await request(HANDOVER, { method: 'POST', body: { ciphertext }, waitMs: READ_MS_MAX })).id;
}

/** Takes an encrypted secret, which the server then forgets. Rejects with NOT_FOUND if it is gone. */
export async function takeHandover(id: string): Promise<string> {
  const url = new URL(`handover/${id}`, document.baseURI);
  return (await request(url, { method: 'POST', waitMs: READ_MS_MAX })).ciphertext;
}

/** Lists every verifier that reported itself; at most 1,000. */
export async function listVerifiers(): Promise<Verifier[]> {
  const verifiers: Verifier[] = [];
  for (let cursor: string | undefined, pages = 0; pages < 10; pages++) {
    const page = await call('fleet.listVerifiers', { cursor });
    verifiers.push(...page.verifiers);
    cursor = page.cursor;
    if (cursor === undefined) break;
  }
  return verifiers;
}

/** The verifiers as they last reported themselves to this page; `isSilent` if none of them does so any more. */
export interface Fleet {
  readonly verifiers: readonly Verifier[];
  readonly isSilent: boolean;
}

let lastVerifiers: readonly Verifier[] = [];

/** Lists the verifiers, or those that were there before all fell silent: after a stall of Redis, they may be well. */
export async function lastKnownFleet(): Promise<Fleet> {
  const verifiers = await listVerifiers();
  if (verifiers.length > 0) lastVerifiers = verifiers;
  return { verifiers: lastVerifiers, isSilent: verifiers !== lastVerifiers && lastVerifiers.length > 0 };
}

const EVENTS_LIMIT = 10;
/** Maximum number of calls for events; each examines 1,000. Only events of earlier releases need more than one. */
const EVENTS_CALLS_MAX = 20;

/** Lists the latest events that match a filter, at most 10; `isCut` if not all events were examined. */
export async function listEvents(filter: Input): Promise<{ events: AuditEvent[]; isCut: boolean }> {
  const events: AuditEvent[] = [];
  let cursor: string | undefined;
  for (let calls = 0; calls < EVENTS_CALLS_MAX; calls++) {
    const limit = String(EVENTS_LIMIT - events.length);
    const page = await call('audit.listEvents', { ...filter, limit, cursor });
    events.push(...page.events);
    cursor = page.cursor;
    if (cursor === undefined || events.length === EVENTS_LIMIT) return { events, isCut: false };
  }
  return { events, isCut: true };
}

/** While the connection is lost, tries every two seconds whether the control plane answers again. */
export function watchConnection(): void {
  let isLost = false;
  const check = async () => {
    if (!isLost) return;
    const url = new URL('icon.svg', document.baseURI);
    const isBack = await fetch(url, { method: 'HEAD', cache: 'no-store' }).then(
      ({ ok }) => ok,
      () => false,
    );
    if (isBack) events.dispatchEvent(new Event('reached'));
    else setTimeout(check, CONNECTION_MS);
  };
  events.addEventListener('reached', () => {
    isLost = false;
  });
  events.addEventListener('lost', () => {
    if (!isLost) setTimeout(check, CONNECTION_MS);
    isLost = true;
  });
}

async function send<Name extends keyof Responses>(operation: Name, input: Input): Promise<Responses[Name]> {
  const kind = OPERATION_KINDS[operation];
  const fields = Object.entries(input).filter(([, value]) => kind !== 'query' || value !== '');
  if (kind === 'query' && fields.some(([, value]) => containsKey(String(value))))
    throw new Failure('BAD_REQUEST', 'this is a key; keys are not sent in addresses, which are logged');
  const route = {
    ...{ base: BASE, headers: { 'x-keyfence-csrf': csrfToken }, fetch: fetchHere },
    signal: AbortSignal.timeout(kind === 'query' ? READ_MS_MAX : CHANGE_MS_MAX),
  };
  try {
    const answer = await exchange(route, operation, kind, Object.fromEntries(fields));
    if (kind === 'change') announceChange(operation, input);
    return answer as Responses[Name];
  } catch (error) {
    throw error instanceof AdminError ? failureOf(error) : error;
  }
}

function failureOf({ code, message, requestId, details, mayHaveChanged }: AdminError): Failure {
  if (code === 'UNREACHABLE' || code === 'NOT_KEYFENCE') return unreachable(!mayHaveChanged);
  const rules = details.map(({ field, rule, fix }) => {
    const [name = field] = field.split('.');
    return [name, fix === undefined ? rule : `${rule}; ${fix}`] as const;
  });
  return new Failure(code, message, requestId, new Map(rules.toReversed()));
}

function unreachable(changedNothing: boolean): Failure {
  events.dispatchEvent(new Event('lost'));
  return new Failure(
    'UNREACHABLE',
    changedNothing
      ? 'the control plane does not answer'
      : 'no answer came, so it may or may not have been done; look at the present state before trying again',
  );
}

/** Tells the page of a change, without what only the dashboard needs. */
function announceChange(operation: string, { waitMs: _, operationId: __, ...input }: Input): void {
  events.dispatchEvent(new CustomEvent('changed', { detail: { operation, input } }));
}

/** Sends a request in the session of this browser, and notes that the server answered, and its clock. */
async function fetchHere(url: URL, init: RequestInit): Promise<Response> {
  const response = await fetch(url, { ...init, credentials: 'same-origin', cache: 'no-store' });
  const date = Date.parse(response.headers.get('date') ?? '');
  if (Number.isFinite(date)) clockAheadMs = date - Date.now();
  events.dispatchEvent(new Event('reached'));
  return response;
}

/** Sends what is no operation, and returns the body of the response. Rejects with a Failure. */
async function request(
  url: URL,
  { method, body, waitMs }: { method: string; body?: object; waitMs: number },
) {
  try {
    const response = await fetchHere(url, {
      method,
      headers: { 'x-keyfence-csrf': csrfToken, ...(body ? { 'content-type': 'application/json' } : {}) },
      ...(body ? { body: JSON.stringify(body) } : {}),
      signal: AbortSignal.timeout(waitMs),
    });
    const answer = await response.json();
    if (response.ok) return answer;
    // The second generation has other fields.
    const { code = 'BAD_REQUEST', message = answer.error.detail, requestId } = answer.error;
    throw new Failure(code, message, requestId ?? answer.meta?.requestId);
  } catch (error) {
    throw error instanceof Failure ? error : unreachable(method === 'GET' || url === SESSION);
  }
}

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/** Tells whether a text has a key in it, whatever stands before and after it. */
export const containsKey = (text: string): boolean => text.split(/[^0-9A-Za-z_]+/).some(looksLikeKey);

/** Tells by its checksum whether a text is a key: the last 6 characters are the CRC-32 of the others. */
export function looksLikeKey(text: string): boolean {
  if (!/^(?:\w{1,16}_)?[0-9A-Za-z]{22,350}$/.test(text)) return false;
  let crc = -1;
  for (const character of text.slice(0, -6)) {
    crc ^= character.charCodeAt(0);
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  const sum = [...text.slice(-6)].reduce((total, digit) => total * 62 + DIGITS.indexOf(digit), 0);
  return sum === (crc ^ -1) >>> 0;
}
