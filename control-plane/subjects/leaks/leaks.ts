import { isUtf8 } from 'node:buffer';
import { createPublicKey, hash, type KeyObject, verify } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '#shared/process/clock.ts';
import { type ConfigOf, choice, text } from '#shared/process/load-config.ts';
import type { Logger } from '#shared/process/log.ts';
import type { Write } from '#shared/protocol/log/change-log-port.ts';
import { storedFields } from '#shared/protocol/records/key-record.ts';
import type { BatchEvents, ChangeWriter } from '#shared/protocol/writer/writer.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { sourceOf } from '#shared/rules/ip-ranges.ts';
import { hashSecret, isWellFormed } from '#shared/rules/key-format.ts';
import type { BootstrapKeys } from '../../core/callers/bootstrap-keys.ts';
import type { RootKeys } from '../../core/callers/root-keys.ts';
import type { Keys } from '../../core/keys/keys.ts';
import type { KeyView } from '../../core/records/key-view.ts';
import type { AuditEvent, Subject } from '../../core/schema/audit-event.ts';
import { effectOf } from '../../core/serve/call.ts';
import { namesOf } from '../../core/serve/errors.ts';
import type { RateLimits } from '../../core/serve/rate-limits.ts';
import type { App } from '../../core/serve/server.ts';
import { Turns } from '../../core/serve/turns.ts';
import type { Audit } from '../audit/audit.ts';
import type { PublishedRootKeys } from '../root-keys/published-root-keys.ts';
import type { HandledReports } from './handled-reports.ts';

/** A key or root key whose secret was reported. */
export type LeakedKey = { readonly at: ReportedSecret } & (
  | { readonly kind: 'key'; readonly apiId: string; readonly keyId: string; readonly enabled: boolean }
  | { readonly kind: 'root_key'; readonly rootKeyId: string; readonly enabled: boolean }
  | { readonly kind: 'bootstrap'; readonly rootKeyId: string }
);

interface LookUps {
  readonly bootstrapKeys: BootstrapKeys;
  readonly keys: Pick<Keys, 'lookUp'>;
  readonly rootKeys: Pick<RootKeys, 'lookUp'>;
  readonly view: Pick<KeyView, 'get'>;
}

/** Look-ups of one report that run at the same time. */
const AT_ONCE = 50;

/**
 * Returns the keys and root keys that the secrets of a report belong to. Made-up secrets fail their checksum
 * without a look-up, as at a verifier; any other unknown secret costs one look-up.
 */
async function lookUpLeaked(reported: readonly ReportedSecret[], lookUps: LookUps): Promise<LeakedKey[]> {
  const unique = [...new Map(reported.map((at) => [at.secret, at])).values()];
  const leaked: LeakedKey[] = [];
  for (let i = 0; i < unique.length; i += AT_ONCE) {
    const part = unique.slice(i, i + AT_ONCE).map((at) => lookUp(at, lookUps));
    leaked.push(...(await Promise.all(part)).filter((each) => each !== undefined));
  }
  // Root keys of the configuration have no form by which a URL could be searched for them.
  const bootstrap = leaked.filter(({ kind }) => kind === 'bootstrap').map(({ at }) => at.secret);
  return leaked.map((each) => ({ ...each, at: { ...each.at, url: cutOut(each.at.url, bootstrap) } }));
}

async function lookUp(at: ReportedSecret, lookUps: LookUps): Promise<LeakedKey | undefined> {
  const { bootstrapKeys, keys, rootKeys, view } = lookUps;
  const secretHash = hashSecret(at.secret);
  const bootstrapId = bootstrapKeys.idOf(secretHash);
  if (bootstrapId !== undefined) return { kind: 'bootstrap', at, rootKeyId: bootstrapId };
  if (!isWellFormed(at.secret)) return undefined;
  const rootKey = await rootKeys.lookUp(at.secret);
  if (rootKey) return { kind: 'root_key', at, rootKeyId: rootKey.rootKeyId, enabled: rootKey.enabled };
  const place = await keys.lookUp(secretHash);
  // A deleted key may still be pointed to.
  const key = place && (await view.get(place.apiId, place.keyId));
  return key && { kind: 'key', at, apiId: key.apiId, keyId: key.keyId, enabled: key.enabled !== false };
}

const OPERATION = 'leaks.report';

/** Time for which a report waits until its changes are complete; GitHub waits for 30 s. */
const WAIT_MS = 20_000;
const DISABLED = { enabled: false };
const OFF = storedFields(DISABLED);

/** The facts of a report that each of its audit events has. */
export type Arrival = Pick<AuditEvent, 'time' | 'requestId' | 'traceId' | 'by'>;
type KeyLeak = Extract<LeakedKey, { kind: 'key' }>;
type RootKeyLeak = Exclude<LeakedKey, { kind: 'key' }>;

interface HandlerOptions {
  readonly policy: 'tell' | 'disable';
  readonly changeWriter: Pick<ChangeWriter, 'applyAll' | 'remainingTime'>;
  readonly keys: Pick<Keys, 'noteLeak'>;
  readonly rootKeys: Pick<RootKeys, 'setEnabled'>;
  readonly publishedRootKeys: Pick<PublishedRootKeys, 'publish'>;
  readonly audit: Pick<Audit, 'record' | 'recordAll'>;
  readonly log: Pick<Logger, 'warn'>;
}

/** Tells of leaked keys in the log, the audit log and their records and, as the policy says, disables them. */
export class LeakHandler {
  readonly #options: HandlerOptions;

  constructor(options: HandlerOptions) {
    this.#options = options;
  }

  /**
   * Resolves when every change is complete, or after 20 s. Rejects with SERVICE_UNAVAILABLE; then any key may
   * have been disabled.
   */
  async tell(leaked: readonly LeakedKey[], arrival: Arrival): Promise<void> {
    for (const leak of leaked) {
      const { type, source, url } = leak.at;
      this.#options.log.warn({ ...subjectOf(leak), kind: leak.kind, type, source, url }, 'a secret leaked');
    }
    const isDisabled = (leak: LeakedKey) =>
      this.#options.policy === 'disable' && leak.kind !== 'bootstrap' && leak.enabled;
    const kept = leaked.filter((leak) => !isDisabled(leak));
    await this.#options.audit.recordAll(
      'done',
      kept.map((leak) => eventOf(leak, arrival)),
    );
    const rootKeys = leaked.filter((leak) => leak.kind !== 'key').filter(isDisabled);
    for (const leak of rootKeys) await this.#disableRootKey(leak, arrival);
    if (rootKeys.length > 0) await this.#options.publishedRootKeys.publish();
    const keys = leaked.filter((leak) => leak.kind === 'key');
    const remainingMs = this.#options.changeWriter.remainingTime(WAIT_MS);
    for (const ofApi of Map.groupBy(keys.filter(isDisabled), ({ apiId }) => apiId).values())
      await this.#disableKeys(ofApi, arrival, remainingMs());
    // Last: a mark that cannot be made keeps no key enabled.
    const marks = keys.map(({ apiId, keyId, at: { url } }) =>
      this.#options.keys.noteLeak(apiId, keyId, { at: arrival.time, url }),
    );
    await Promise.all(marks);
  }

  async #disableRootKey(leak: RootKeyLeak, arrival: Arrival): Promise<void> {
    await this.#options.rootKeys.setEnabled(leak.rootKeyId, false);
    const effect = { before: { enabled: true }, after: DISABLED };
    await this.#options.audit.record('done', eventOf(leak, arrival, effect));
  }

  /** Disables keys of one API. */
  async #disableKeys(leaks: readonly KeyLeak[], arrival: Arrival, waitMs?: number): Promise<void> {
    const { audit, changeWriter } = this.#options;
    const byId = new Map(leaks.map((leak) => [leak.keyId, leak]));
    const [first, ...others] = [...byId.values()].map(
      ({ apiId, keyId }): Write => ({ apiId, operation: 'update', keyId, fields: OFF }),
    );
    if (!first) return;
    const records: Promise<void>[] = [];
    const events: BatchEvents = {
      onWritten(changes) {
        const written = changes.flatMap(({ write, entry }) => {
          const leak = byId.get(write.keyId);
          return leak ? [eventOf(leak, arrival, effectOf(entry, DISABLED))] : [];
        });
        records.push(audit.recordAll('done', written));
      },
      onUnknown(writes) {
        const unknown = writes.flatMap(({ keyId }) => {
          const leak = byId.get(keyId);
          return leak ? [eventOf(leak, arrival, { after: DISABLED }, 'SERVICE_UNAVAILABLE')] : [];
        });
        records.push(audit.recordAll('done', unknown));
      },
    };
    try {
      const { outcomes } = await changeWriter.applyAll([first, ...others], waitMs, events);
      for (const outcome of outcomes)
        if ('failure' in outcome && outcome.failure.code !== 'NOT_FOUND') throw outcome.failure;
    } finally {
      await Promise.all(records);
    }
  }
}

const subjectOf = (leak: LeakedKey): Subject =>
  leak.kind === 'key' ? { apiId: leak.apiId, keyId: leak.keyId } : { rootKeyId: leak.rootKeyId };

function eventOf(
  leak: LeakedKey,
  arrival: Arrival,
  effect: Pick<AuditEvent, 'before' | 'after' | 'sequence'> = {},
  outcome: AuditEvent['outcome'] = 'OK',
): AuditEvent {
  const { type, source, url } = leak.at;
  const after = { ...effect.after, leak: { type, source, url } };
  return { ...arrival, operation: OPERATION, outcome, on: subjectOf(leak), ...effect, after };
}

/** One place where a secret was found. */
export interface ReportedSecret {
  readonly secret: string;
  /** The reporter's name for secrets of this form. */
  readonly type: string;
  /** Place of the secret; contains no secret itself. */
  readonly url: string;
  readonly source: string;
}

export const SECRETS_MAX = 1000;
const LENGTH_MAX = { token: 512, type: 256, url: 1024, source: 64 };

/**
 * Reads a report in the form of GitHub's secret scanning. Throws BAD_REQUEST or PAYLOAD_TOO_LARGE. Unknown
 * fields are ignored, because the form is another's and may grow.
 */
export function parseReport(body: Buffer): ReportedSecret[] {
  const items = jsonOf(body);
  if (!Array.isArray(items)) throw new ApiError('BAD_REQUEST', 'body: must be a JSON array');
  if (items.length > SECRETS_MAX)
    throw new ApiError(
      'PAYLOAD_TOO_LARGE',
      `body: must have at most ${SECRETS_MAX} items; send several reports`,
    );
  const reported = items.map((item: unknown, i) => ({
    secret: textOf(item, 'token', i),
    type: textOf(item, 'type', i),
    url: textOf(item, 'url', i, ''),
    source: textOf(item, 'source', i, ''),
  }));
  const secrets = new Set(reported.map(({ secret }) => secret));
  return reported.map((each) => ({ ...each, url: withoutSecrets(each, secrets) }));
}

function jsonOf(body: Buffer): unknown {
  if (!isUtf8(body)) throw new ApiError('BAD_REQUEST', 'body: must be UTF-8');
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    throw new ApiError('BAD_REQUEST', 'body: is not JSON');
  }
}

/** Returns a text of an item; an optional text that is missing, or too long to keep, is `otherwise`. */
function textOf(item: unknown, name: keyof typeof LENGTH_MAX, i: number, otherwise?: string): string {
  const value: unknown = Object(item)[name];
  if (typeof value === 'string' && value.length <= LENGTH_MAX[name]) return value.toWellFormed();
  if (otherwise !== undefined) return otherwise;
  throw new ApiError(
    'BAD_REQUEST',
    `[${i}].${name}: must be a string of at most ${LENGTH_MAX[name]} characters`,
  );
}

/** The URL goes into logs, so every secret in it is cut out. */
function withoutSecrets({ url, secret }: ReportedSecret, secrets: ReadonlySet<string>): string {
  return cutOut(url, [secret]).replace(/[0-9A-Za-z_]{16,}/g, (word) =>
    secrets.has(word) || isWellFormed(word) ? CUT : word,
  );
}

const CUT = '[a key]';

/** Returns a text without these secrets. */
const cutOut = (text: string, secrets: readonly string[]): string =>
  secrets.reduce((rest, secret) => (secret === '' ? rest : rest.replaceAll(secret, () => CUT)), text);

/** Returns what GitHub takes as feedback: of each kind of secret only once, and no secret itself. */
export function feedbackOf(reported: readonly ReportedSecret[], isOurs: (secret: string) => boolean) {
  const unique = new Map(reported.map((each) => [JSON.stringify([each.secret, each.type]), each]));
  return [...unique.values()].map(({ secret, type }) => ({
    token_hash: hash('sha256', secret),
    token_type: type,
    label: isOurs(secret) ? 'true_positive' : 'false_positive',
  }));
}

const verifyInPool = promisify(verify);

/** Minimum time between two reads of the file, so that a flood of reports causes no flood of reads. */
const READ_PERIOD_MS = 10_000;
const KEYS_MAX = 100;
const IDENTIFIER = /^[0-9A-Za-z]{1,128}$/;
const SIGNATURE = /^[A-Za-z0-9+/]{1,200}={0,2}$/;

/** The result of checking a signature. */
export type SignatureCheck = 'valid' | 'invalid' | 'unknown key';

/**
 * The public keys with which reports are signed: ECDSA on P-256, in a file with GitHub's document of them. The
 * file is read again when it may have changed.
 */
export class ReportKeys {
  readonly #file: string;
  readonly #clock: Clock;
  readonly #log: Pick<Logger, 'warn'>;
  #keys: ReadonlyMap<string, KeyObject>;
  #readAtMs: number;

  /** Throws if the file is unusable. */
  constructor(file: string, clock: Clock, log: Pick<Logger, 'warn'>) {
    this.#file = file;
    this.#clock = clock;
    this.#log = log;
    this.#keys = readKeys(file);
    this.#readAtMs = clock.monotonicMs();
  }

  /** Checks the signature over the bytes of a report. */
  async check(identifier: string, signature: string, body: Buffer): Promise<SignatureCheck> {
    this.#refresh();
    const key = this.#keys.get(identifier);
    if (key === undefined) return 'unknown key';
    if (!SIGNATURE.test(signature)) return 'invalid';
    // In the thread pool: a signature takes as long as many requests.
    const isValid = await verifyInPool('sha256', body, key, Buffer.from(signature, 'base64'));
    return isValid ? 'valid' : 'invalid';
  }

  /** Reads the file again; an unusable file leaves the keys as they are. */
  #refresh(): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#readAtMs < READ_PERIOD_MS) return;
    this.#readAtMs = nowMs;
    try {
      this.#keys = readKeys(this.#file);
    } catch (err) {
      this.#log.warn({ err, file: this.#file }, 'the public keys of leak reports cannot be read again');
    }
  }
}

/** Returns the keys by identifier. Throws if any part of the file is not as GitHub documents it. */
export function readKeys(file: string): ReadonlyMap<string, KeyObject> {
  const { public_keys: listed } = Object(JSON.parse(readFileSync(file, 'utf8'))) as { public_keys?: unknown };
  if (!Array.isArray(listed) || listed.length === 0) throw new Error('has no list public_keys');
  if (listed.length > KEYS_MAX) throw new Error(`has more than ${KEYS_MAX} keys`);
  return new Map(
    listed.map((each: unknown, i) => {
      const { key_identifier: identifier, key: pem } = Object(each) as Record<string, unknown>;
      if (typeof identifier !== 'string' || !IDENTIFIER.test(identifier) || typeof pem !== 'string')
        throw new Error(`public_keys[${i}] lacks key_identifier or key`);
      const key = createPublicKey(pem);
      if (key.asymmetricKeyDetails?.namedCurve !== 'prime256v1')
        throw new Error(`public_keys[${i}] is not an ECDSA key on P-256`);
      return [identifier, key];
    }),
  );
}

export const leakSettings = {
  LEAKS: choice(['off', 'tell', 'disable'], 'off').help(
    "What happens to a secret that GitHub's secret scanning reports to `/v1/leaks.report`. `tell`: it is in the audit log, the log and a metric. `disable`: its key or root key is disabled, too. `off`: there is no such path",
  ),
  LEAKS_PUBLIC_KEYS_FILE: text('').help(
    'JSON file with the public keys of whoever signs reports, in the form of `api.github.com/meta/public_keys/secret_scanning`. It is read again when a report comes. Required unless LEAKS is off',
  ),
};

type LeakConfig = ConfigOf<typeof leakSettings>;

/** Returns the faults of the settings, so that a process with a faulty file does not start. */
export function leakFaults({ LEAKS, LEAKS_PUBLIC_KEYS_FILE: file }: LeakConfig): string[] {
  if (LEAKS === 'off') return [];
  if (file === '') return ['LEAKS_PUBLIC_KEYS_FILE: required unless LEAKS is off'];
  try {
    readKeys(file);
    return [];
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return [`LEAKS_PUBLIC_KEYS_FILE: not a document of public keys (${code ?? message})`];
  }
}

/** The outcome of a report: handled, handled before, or refused because of its signature. */
type ReportResult = 'handled' | 'repeated' | 'unsigned' | 'unknown_key';
/** The kinds of reported secrets. */
type SecretKind = 'key' | 'root_key' | 'unknown';

type LeakParts = LookUps &
  Omit<HandlerOptions, 'policy'> & {
    readonly config: LeakConfig;
    readonly clock: Clock;
    readonly log: Logger;
    readonly rates: RateLimits;
    readonly handledReports: HandledReports;
    readonly onReport: (result: ReportResult) => void;
    readonly onSecrets: (kind: SecretKind, count: number) => void;
  };

declare module 'fastify' {
  interface FastifyRequest {
    /** The bytes of a report, which its signature covers. */
    reportBytes: Buffer | undefined;
  }
}

/** The path for reports, unless LEAKS is off. */
export const LEAKS_PATH = `/v1/${OPERATION}`;

/** A report of 1,000 secrets has about 200 KiB. The sender proves nothing before all of it has arrived. */
export const BODY_BYTES_MAX = 262_144;
/** Reports of one address at the same time. */
export const PER_ADDRESS = { atOnce: 8, waitingMax: 0 };

/**
 * Adds the path to which GitHub's secret scanning sends reports. It is no operation: nobody needs a root key,
 * because the signature shows who reports.
 */
export async function receiveLeakReports(app: App, parts: LeakParts): Promise<void> {
  if (parts.config.LEAKS === 'off') return;
  const keys = new ReportKeys(parts.config.LEAKS_PUBLIC_KEYS_FILE, parts.clock, parts.log);
  const handler = new LeakHandler({ ...parts, policy: parts.config.LEAKS });
  const turns = new Turns(PER_ADDRESS);
  app.decorateRequest('reportBytes', undefined);
  await app.register(async (scope) => {
    scope.removeContentTypeParser('application/json');
    scope.addContentTypeParser<Buffer>('application/json', { parseAs: 'buffer' }, (request, body, done) => {
      request.reportBytes = body;
      done(null, undefined);
    });
    const admit = async (request: FastifyRequest, reply: FastifyReply) => {
      const turn = turns.take(sourceOf(addressOf(request)));
      if (turn === undefined)
        throw new ApiError('RATE_LIMITED', 'too many reports at a time from this address');
      const giveBack = await turn;
      reply.raw.once('close', giveBack);
    };
    scope.post(
      LEAKS_PATH,
      { bodyLimit: BODY_BYTES_MAX, schema: { hide: true }, config: { admit } },
      (request) => answerReport(request, keys, handler, parts),
    );
  });
}

async function answerReport(
  request: FastifyRequest,
  keys: ReportKeys,
  handler: LeakHandler,
  parts: LeakParts,
) {
  const { handledReports } = parts;
  const body = request.reportBytes ?? Buffer.alloc(0);
  await checkSignature(request, body, keys, parts.onReport).catch(async (error: unknown) => {
    await parts.rates.countFailure(request);
    throw error;
  });
  const reported = parseReport(body);
  const leaked = await lookUpLeaked(reported, parts);
  // The signature is no name for a report, because ECDSA has several valid ones.
  const bodyHash = hash('sha256', body, 'base64url');
  const isRepeated = leaked.length > 0 && !(await handledReports.claim(bodyHash));
  if (isRepeated) {
    await parts.rates.countFailure(request);
  } else if (leaked.length > 0) {
    const by = { address: addressOf(request) };
    const report = { time: parts.clock.wallMs(), ...namesOf(request), by };
    try {
      await handler.tell(leaked, report);
      await handledReports.add(bodyHash);
    } catch (error) {
      await handledReports.release(bodyHash);
      throw error;
    }
  }
  const secrets = new Set(leaked.map(({ at }) => at.secret));
  if (!isRepeated) countSecrets(parts, leaked, new Set(reported.map(({ secret }) => secret)).size);
  parts.onReport(isRepeated ? 'repeated' : 'handled');
  return feedbackOf(reported, (secret) => secrets.has(secret));
}

/** After a hang-up the connection has no address. */
const addressOf = ({ ip }: FastifyRequest): string => ip ?? 'unknown';

function countSecrets(
  { onSecrets }: Pick<LeakParts, 'onSecrets'>,
  leaked: Awaited<ReturnType<typeof lookUpLeaked>>,
  reportedCount: number,
): void {
  const keys = leaked.filter(({ kind }) => kind === 'key').length;
  onSecrets('key', keys);
  onSecrets('root_key', leaked.length - keys);
  onSecrets('unknown', reportedCount - leaked.length);
}

/** Rejects with UNAUTHORIZED unless the report is signed. */
async function checkSignature(
  { headers }: FastifyRequest,
  body: Buffer,
  keys: ReportKeys,
  onReport: LeakParts['onReport'],
): Promise<void> {
  const textOf = (name: string) => String(headers[name] ?? '');
  const identifier = textOf('github-public-key-identifier');
  const check = await keys.check(identifier, textOf('github-public-key-signature'), body);
  if (check === 'valid') return;
  if (identifier === '') {
    onReport('unsigned');
    throw new ApiError('UNAUTHORIZED', 'Github-Public-Key-Identifier, Github-Public-Key-Signature: required');
  }
  onReport(check === 'invalid' ? 'unsigned' : 'unknown_key');
  const fault =
    check === 'invalid'
      ? 'Github-Public-Key-Signature: is not a signature of the body by this key'
      : 'Github-Public-Key-Identifier: names no key of LEAKS_PUBLIC_KEYS_FILE';
  throw new ApiError('UNAUTHORIZED', fault);
}
