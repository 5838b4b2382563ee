import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import { buildConnector, Client, Pool } from 'undici';
import { atMost, type Clock, systemClock } from '#shared/process/clock.ts';
import type { ConfigOf } from '#shared/process/load-config.ts';
import { generateKey } from '#shared/rules/key-format.ts';
import { presenterOf } from '#shared/rules/presenter.ts';
import { VERDICTS } from '#shared/rules/verdict-codes.ts';
import { holdFields, requirementFields } from '../core/question.ts';
import { REQUIRED_TYPES } from '../core/verdict-body.ts';
import { clientSettings, type tlsFiles } from './client-settings.ts';
import { EventListeners, readWatchOptions, readyWithin, watchThrough } from './events.ts';
import { endRequests } from './guards/request-holds.ts';
import { holdThrough } from './held-key.ts';
import {
  type ClientOptions,
  type Costs,
  type HeldKey,
  type HoldOptions,
  type KeyVerdict,
  type KeyVerifier,
  type QuestionOptions,
  type Release,
  VerifierError,
  type VerifierEvents,
  type WatchOptions,
} from './key-verifier.ts';
import {
  checkedRelease,
  configFrom,
  type KeylessQuestion,
  mayBeKey,
  optionsObject,
  readQuestionOptions,
  wrongOptions,
} from './options.ts';

// The entry `keyfence/client` of the package.

export type {
  AskedRateLimit,
  ClientOptions,
  Costs,
  HeldKey,
  HoldOptions,
  KeyVerdict,
  KeyVerifier,
  KnownKey,
  LimitState,
  PermissionQuery,
  QuestionOptions,
  RefusedKey,
  Release,
  UnknownKey,
  ValidKey,
  VerifierEvents,
  WatchOptions,
} from './key-verifier.ts';
export { VerifierError, WatchError } from './key-verifier.ts';

type TlsFiles = ConfigOf<typeof tlsFiles>;

/** Returns true if the connection to the sidecar needs files. */
const hasTlsFiles = ({ TLS_CA_FILE, TLS_CERT_FILE }: TlsFiles): boolean =>
  TLS_CA_FILE !== '' || TLS_CERT_FILE !== '';

/** Returns the faults of the files, so that a client with faulty files is not created. */
function tlsFaults(config: TlsFiles & { readonly URL: URL | undefined }): string[] {
  const { TLS_CERT_FILE, TLS_KEY_FILE } = config;
  if (!TLS_CERT_FILE !== !TLS_KEY_FILE) return ['tlsCertFile, tlsKeyFile: set both or none'];
  if (!hasTlsFiles(config)) return [];
  if (config.URL?.protocol !== 'https:')
    return ['tlsCaFile, tlsCertFile: only with a url that begins with https://'];
  try {
    createSecureContext(contentOf(config));
    return [];
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return [`tlsCaFile, tlsCertFile, tlsKeyFile: not certificates and their key (${code ?? message})`];
  }
}

/** Returns a connector that reads the files again for each connection. */
function tlsConnector(config: TlsFiles, timeout: number): buildConnector.connector {
  return (options, callback) => {
    let connect: buildConnector.connector;
    try {
      connect = buildConnector({ ...contentOf(config), timeout, allowH2: false });
    } catch (error) {
      callback(error as Error, null);
      return;
    }
    connect(options, callback);
  };
}

function contentOf({ TLS_CA_FILE, TLS_CERT_FILE, TLS_KEY_FILE }: TlsFiles) {
  return {
    ...(TLS_CA_FILE && { ca: readFileSync(TLS_CA_FILE, 'utf8') }),
    ...(TLS_CERT_FILE && {
      cert: readFileSync(TLS_CERT_FILE, 'utf8'),
      key: readFileSync(TLS_KEY_FILE, 'utf8'),
    }),
  };
}

/** Longest answer that the client reads. An answer with the most that a key may contain is far shorter. */
const ANSWER_BYTES_MAX = 262_144;
/**
 * The client closes an idle connection before the sidecar (KEEP_ALIVE_TIMEOUT_MS) or a gateway in between
 * does.
 */
const IDLE_MS = 4000;

/**
 * Creates a verifier that asks a sidecar. Only the sidecar is a member of the fence, not this client. Throws
 * a TypeError that names every wrong option.
 */
export function createClient(options: ClientOptions): KeyVerifier {
  const config = configFrom(clientSettings, optionsObject(options, 'options'));
  if ((config.URL === undefined) === (config.UNIX_SOCKET === ''))
    throw wrongOptions(['url, unixSocket: set exactly one of them']);
  const faults = tlsFaults(config);
  if (faults.length > 0) throw wrongOptions(faults);
  return new SidecarClient(config, systemClock);
}

class SidecarClient implements KeyVerifier {
  readonly #pool: Pool;
  readonly #path: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #hasSocket: boolean;
  readonly #timeoutMs: number;
  readonly #inFlightMax: number;
  readonly #clock: Clock;
  readonly #listeners = new EventListeners();
  readonly #closing = new AbortController();
  readonly #stopWaitMs: number;
  #closed: Promise<void> | undefined;
  #inFlight = 0;
  /** True if the last question got a verdict; undefined = no question yet. */
  #live: boolean | undefined;

  constructor(config: ReturnType<typeof configFrom<typeof clientSettings>>, clock: Clock) {
    const { URL: url, UNIX_SOCKET: socketPath, TIMEOUT_MS: timeoutMs } = config;
    this.#hasSocket = socketPath !== '';
    this.#timeoutMs = timeoutMs;
    this.#inFlightMax = config.REQUESTS_IN_FLIGHT_MAX;
    this.#clock = clock;
    this.#stopWaitMs = config.STOP_WAIT_MS;
    this.#path = `${(url?.pathname ?? '').replace(/\/$/, '')}/v1/keys.`;
    const type = { 'content-type': 'application/json' };
    this.#headers = config.ROOT_KEY ? { ...type, authorization: `Bearer ${config.ROOT_KEY}` } : type;
    this.#pool = new Pool(url?.origin ?? 'http://localhost', {
      connections: config.CONNECTIONS_MAX,
      connect: hasTlsFiles(config)
        ? tlsConnector(config, timeoutMs)
        : { timeout: timeoutMs, ...(socketPath ? { socketPath } : {}) },
      // A second question on the same connection would wait for the first.
      factory: (origin, poolOptions: Client.Options) => new Client(origin, { ...poolOptions, pipelining: 1 }),
      keepAliveTimeout: IDLE_MS,
      maxResponseSize: ANSWER_BYTES_MAX,
      allowH2: false,
    });
  }

  /** Asks for a made-up key: this gets a verdict once the sidecar reaches Redis. */
  ready(options?: { readonly timeoutMs?: number }): Promise<void> {
    return readyWithin(options, this.#closing.signal, () =>
      this.verify(generateKey(16)).then(
        () => undefined,
        (error: Error) => error.message,
      ),
    );
  }

  decide(key: string, options?: QuestionOptions): KeyVerdict | undefined {
    readQuestionOptions(key, options);
    return undefined;
  }

  async verify(key: string, options?: QuestionOptions): Promise<KeyVerdict> {
    return this.#ask(key, readQuestionOptions(key, options), options ?? {});
  }

  async #ask(key: string, rest: KeylessQuestion, options: QuestionOptions): Promise<KeyVerdict> {
    const { apiId, presenter, tags, isRecheck } = rest;
    if (this.#closed && !isRecheck) throw closedError();
    if (!mayBeKey(key) && !this.#closing.signal.aborted) return { valid: false, code: 'NOT_FOUND' };
    const question = {
      ...{ key, apiId, ...presenterOf(presenter), tags },
      ...requirementFields(options),
      ...holdFields(rest),
      ...(isRecheck && { recheck: true }),
    };
    const read = (text: string) => {
      const verdict = verdictFrom(text);
      if (verdict === undefined) throw outage('the sidecar gave a verdict that this version does not know');
      if (apiId !== undefined && 'apiId' in verdict && verdict.apiId !== apiId)
        throw outage('the sidecar gave a verdict on a key of another API than the question named');
      return verdict;
    };
    // The caller has refused the request by then.
    const endLateHold = (verdict: KeyVerdict) =>
      'hold' in verdict && verdict.hold && this.release(verdict.hold.id, 0);
    return this.#call('verifyKey', question, read, rest.hold && endLateHold);
  }

  hold(key: string, options?: HoldOptions): Promise<HeldKey> {
    return holdThrough(this, key, options);
  }

  async release(hold: string, cost?: number | Costs): Promise<Release> {
    checkedRelease(hold, cost);
    const amounts = typeof cost === 'object' ? { costs: cost } : { cost };
    return this.#call('release', { hold, ...amounts }, releaseFrom);
  }

  /**
   * Posts a body, and reads the text of the answer.
   * @param read throws if it is none that the client knows
   * @param onLate gets an answer that comes too late; undefined = the client no longer waits for it
   */
  async #call<T>(
    name: string,
    body: object,
    read: (text: string) => T,
    onLate?: ((answer: T) => unknown) | undefined,
  ): Promise<T> {
    if (this.#closing.signal.aborted) throw closedError();
    if (this.#inFlight >= this.#inFlightMax) throw outage('too many questions at once (requestsInFlightMax)');
    this.#inFlight++;
    const over = new AbortController();
    const post = this.#post(this.#path + name, JSON.stringify(body), over.signal);
    try {
      const tooLate = () => outage(`no answer from the sidecar within ${this.#timeoutMs} ms`);
      const answer = read(await atMost(this.#clock, this.#timeoutMs, post, tooLate));
      this.#setLive(true, '');
      return answer;
    } catch (error) {
      if (this.#closing.signal.aborted) throw closedError();
      // The sidecar did answer: the question is wrong for this key, or the hold is over.
      if (error instanceof WrongQuestion || (error as VerifierError).code === 'HOLD_UNKNOWN') throw error;
      if (onLate === undefined) over.abort();
      else
        post
          .then(read)
          .then(onLate)
          .catch(() => undefined);
      const fault =
        error instanceof VerifierError
          ? error
          : outage(`the sidecar is out of reach: ${codeOf(error)}${this.#hintFor(error)}`);
      this.#setLive(false, fault.message);
      throw fault;
    } finally {
      this.#inFlight--;
    }
  }

  watch(key: string, options: WatchOptions): AbortSignal {
    const question = { ...readWatchOptions(key, options), isRecheck: true };
    const { signal, ...rest } = options;
    // A sidecar that does not know rechecks takes nothing at least from the key's credits.
    const check = () => this.#ask(key, question, { ...rest, remaining: { cost: 0 } });
    return watchThrough(check, signal, this.#clock);
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    await endRequests(this, this.#clock, this.#stopWaitMs);
    this.#closing.abort();
    await this.#pool.destroy();
  }

  on<E extends keyof VerifierEvents>(event: E, listener: (event: VerifierEvents[E]) => void): () => void {
    return this.#listeners.on(event, listener);
  }

  /** A sidecar that starts again makes its socket anew; a mount of the file itself still leads to the old one. */
  #hintFor(error: unknown): string {
    return this.#hasSocket && codeOf(error) === 'ECONNREFUSED'
      ? '; if the sidecar runs, mount the folder of the socket, not its file'
      : '';
  }

  /**
   * Sends the question once more if a kept-alive connection ended before the answer came. At worst a key pays
   * its credits twice.
   */
  async #post(path: string, body: string, signal: AbortSignal): Promise<string> {
    try {
      return await this.#postOnce(path, body, signal);
    } catch (error) {
      if (!BROKEN_CONNECTION.has(codeOf(error)) || signal.aborted) throw error;
      return this.#postOnce(path, body, signal);
    }
  }

  async #postOnce(path: string, body: string, signal: AbortSignal): Promise<string> {
    const { statusCode, body: answer } = await this.#pool.request({
      method: 'POST',
      path,
      headers: this.#headers,
      body,
      signal,
    });
    const text = await answer.text();
    if (statusCode === 503) throw outage('the sidecar cannot decide');
    const ownError = statusCode === 400 || statusCode === 404 ? callersError(text) : undefined;
    if (ownError !== undefined) throw ownError;
    if (statusCode === 401 || statusCode === 403)
      throw outage('the sidecar asks for a root key that may verify keys (rootKey)');
    if (statusCode !== 200)
      throw outage(`the sidecar answered ${statusCode}: is there a verifier at this address?`);
    return text;
  }

  #setLive(live: boolean, reason: string): void {
    if (this.#live === live) return;
    this.#live = live;
    if (live) this.#listeners.emit('live', {});
    else this.#listeners.emit('dropped', { reason });
  }
}

/**
 * A question that the sidecar refused with BAD_REQUEST, for example a rate limit that the key does not have.
 */
class WrongQuestion extends TypeError {}

/** Returns the error of an answer for which the sidecar is not to blame; undefined = it is another. */
function callersError(text: string): WrongQuestion | VerifierError | undefined {
  const body = parseJson(text);
  const { code, message } = (isObject(body) && isObject(body['error']) ? body['error'] : {}) as {
    code?: unknown;
    message?: string;
  };
  if (code === 'BAD_REQUEST') return new WrongQuestion(message);
  return code === 'HOLD_UNKNOWN' ? new VerifierError(code, String(message)) : undefined;
}

const BROKEN_CONNECTION: ReadonlySet<string> = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE']);

const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? (error as Error).name;
const outage = (message: string) => new VerifierError('SERVICE_UNAVAILABLE', message);
const closedError = () => new VerifierError('CLOSED', 'the client was closed');

/**
 * Parses a verifyKey response. Returns undefined if the text is no verdict, or one that only a later version
 * knows; it then says nothing about the key.
 */
function verdictFrom(text: string): KeyVerdict | undefined {
  const body = parseJson(text);
  if (!isObject(body)) return undefined;
  const { requestId: _, ...verdict } = body;
  const row = rowOf(verdict['code']);
  if (row === undefined || verdict['valid'] !== (row.status === 200)) return undefined;
  const isWhole = !row.showsKey || REQUIRED_TYPES.every(([name, type]) => isOfType(type, verdict[name]));
  return isWhole ? (verdict as object as KeyVerdict) : undefined;
}

/** Parses the answer to a release. */
function releaseFrom(text: string): Release {
  const body = parseJson(text);
  if (!isObject(body) || typeof body['charged'] !== 'number')
    throw outage('the sidecar gave an answer to a release that this version does not know');
  const { requestId: _, ...release } = body;
  return release as object as Release;
}

function rowOf(code: unknown) {
  return typeof code === 'string' && Object.hasOwn(VERDICTS, code)
    ? VERDICTS[code as keyof typeof VERDICTS]
    : undefined;
}

const isOfType = (type: string, value: unknown): boolean =>
  type === 'object' ? isObject(value) : typeof value === type;

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
