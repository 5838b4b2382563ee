// The entry `keyfence/client` of the package.
import { Client, Pool } from 'undici';
import { generateKey } from '#shared/contract/key-format.ts';
import { atMost, type Clock, systemClock } from '#shared/lang/clock.ts';
import { httpUrl, integer, text } from '#shared/process/load-config.ts';
import { requirementFields } from '../core/question.ts';
import { EventListeners } from './event-listeners.ts';
import {
  type ClientOptions,
  type KeyVerdict,
  type KeyVerifier,
  type QuestionOptions,
  VerifierError,
  type VerifierEvents,
  type WatchOptions,
} from './key-verifier.ts';
import { configFrom, optionsObject, wrongOptions } from './options.ts';
import { type KeylessQuestion, mayBeKey, readQuestionOptions } from './questions.ts';
import { readyWithin } from './readiness.ts';
import { hasTlsFiles, tlsConnector, tlsFaults, tlsFiles } from './tls-connector.ts';
import { verdictFrom } from './verdict-from.ts';
import { readWatchOptions, watchThrough } from './watches.ts';

export type {
  AskedRateLimit,
  ClientOptions,
  KeyVerdict,
  KeyVerifier,
  KnownKey,
  LimitState,
  PermissionQuery,
  QuestionOptions,
  RefusedKey,
  UnknownKey,
  ValidKey,
  VerifierEvents,
  WatchOptions,
} from './key-verifier.ts';
export { VerifierError, WatchError } from './key-verifier.ts';

const settings = {
  URL: httpUrl().help('Address of the sidecar'),
  UNIX_SOCKET: text('').help("The sidecar's LISTEN_UNIX"),
  ROOT_KEY: text('').help('A root key, if the sidecar asks for one'),
  ...tlsFiles,
  TIMEOUT_MS: integer(1, 60_000, 'ms', 1000).help('Longest wait for an answer'),
  CONNECTIONS_MAX: integer(1, 10_000, 'connections', 100).help('Most connections to the sidecar'),
  REQUESTS_IN_FLIGHT_MAX: integer(1, 1_000_000, 'requests', 10_000).help('Most questions on their way'),
};

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
  const config = configFrom(settings, optionsObject(options, 'options'));
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
  readonly #timeoutMs: number;
  readonly #inFlightMax: number;
  readonly #clock: Clock;
  readonly #listeners = new EventListeners();
  readonly #closing = new AbortController();
  #inFlight = 0;
  /** True if the last question got a verdict; undefined = no question yet. */
  #live: boolean | undefined;

  constructor(config: ReturnType<typeof configFrom<typeof settings>>, clock: Clock) {
    const { URL: url, UNIX_SOCKET: socketPath, TIMEOUT_MS: timeoutMs } = config;
    this.#timeoutMs = timeoutMs;
    this.#inFlightMax = config.REQUESTS_IN_FLIGHT_MAX;
    this.#clock = clock;
    this.#path = `${(url?.pathname ?? '').replace(/\/$/, '')}/v1/keys.verifyKey`;
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
    const { apiId, clientIp, tags, isRecheck } = rest;
    if (this.#closing.signal.aborted) throw closedError();
    if (!mayBeKey(key)) return { valid: false, code: 'NOT_FOUND' };
    if (this.#inFlight >= this.#inFlightMax) throw outage('too many questions at once (requestsInFlightMax)');
    this.#inFlight++;
    const over = new AbortController();
    try {
      const tooLate = () => outage(`no answer from the sidecar within ${this.#timeoutMs} ms`);
      const verdict = await atMost(
        this.#clock,
        this.#timeoutMs,
        this.#post(
          { key, apiId, clientIp, tags, ...requirementFields(options), ...(isRecheck && { recheck: true }) },
          over.signal,
        ),
        tooLate,
      );
      if (apiId !== undefined && 'apiId' in verdict && verdict.apiId !== apiId)
        throw outage('the sidecar gave a verdict on a key of another API than the question named');
      this.#setLive(true, '');
      return verdict;
    } catch (error) {
      if (this.#closing.signal.aborted) throw closedError();
      // The sidecar did answer: the question is wrong for this key.
      if (error instanceof WrongQuestion) throw error;
      const fault =
        error instanceof VerifierError ? error : outage(`the sidecar is out of reach: ${codeOf(error)}`);
      this.#setLive(false, fault.message);
      throw fault;
    } finally {
      over.abort();
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

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#pool.destroy();
  }

  on<E extends keyof VerifierEvents>(event: E, listener: (event: VerifierEvents[E]) => void): () => void {
    return this.#listeners.on(event, listener);
  }

  /**
   * Sends the question once more if a kept-alive connection ended before the answer came. At worst a key pays
   * its credits twice.
   */
  async #post(question: object, signal: AbortSignal): Promise<KeyVerdict> {
    const body = JSON.stringify(question);
    try {
      return await this.#postOnce(body, signal);
    } catch (error) {
      if (!BROKEN_CONNECTION.has(codeOf(error)) || signal.aborted) throw error;
      return this.#postOnce(body, signal);
    }
  }

  async #postOnce(body: string, signal: AbortSignal): Promise<KeyVerdict> {
    const { statusCode, body: answer } = await this.#pool.request({
      method: 'POST',
      path: this.#path,
      headers: this.#headers,
      body,
      signal,
    });
    const text = await answer.text();
    if (statusCode === 503) throw outage('the sidecar cannot decide');
    const questionError = statusCode === 400 ? wrongQuestion(text) : undefined;
    if (questionError !== undefined) throw questionError;
    if (statusCode === 401 || statusCode === 403)
      throw outage('the sidecar asks for a root key that may verify keys (rootKey)');
    if (statusCode !== 200)
      throw outage(`the sidecar answered ${statusCode}: is there a verifier at this address?`);
    const verdict = verdictFrom(text);
    if (verdict === undefined) throw outage('the sidecar gave a verdict that this version does not know');
    return verdict;
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

function wrongQuestion(text: string): WrongQuestion | undefined {
  try {
    const { error } = JSON.parse(text);
    return error.code === 'BAD_REQUEST' ? new WrongQuestion(error.message) : undefined;
  } catch {
    return undefined;
  }
}

const BROKEN_CONNECTION: ReadonlySet<string> = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE']);

const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? (error as Error).name;
const outage = (message: string) => new VerifierError('SERVICE_UNAVAILABLE', message);
const closedError = () => new VerifierError('CLOSED', 'the client was closed');
