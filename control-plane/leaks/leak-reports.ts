import { hash } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ApiError } from '#shared/contract/errors.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { sourceOf } from '#shared/lang/ip-ranges.ts';
import { type ConfigOf, choice, text } from '#shared/process/load-config.ts';
import type { Logger } from '#shared/process/log.ts';
import type { BootstrapKeys } from '../root-keys/bootstrap-keys.ts';
import { namesOf } from '../serve/errors.ts';
import type { RateLimits } from '../serve/rate-limits.ts';
import type { App } from '../serve/server.ts';
import { Turns } from '../serve/turns.ts';
import type { Services } from '../services.ts';
import type { HandledReports } from './handled-reports.ts';
import { LeakHandler, OPERATION } from './leak-handler.ts';
import { lookUpLeaked } from './leaked-keys.ts';
import { feedbackOf, parseReport } from './report.ts';
import { ReportKeys, readKeys } from './report-keys.ts';

export const leakSettings = {
  LEAKS: choice(['off', 'tell', 'disable'], 'off').help(
    "What happens when GitHub's secret scanning reports a leaked secret to `/v1/leaks.report`. `tell`: it is in the audit log, in the log and in a metric. `disable`: the key or root key is disabled too. `off`: there is no such path",
  ),
  LEAKS_PUBLIC_KEYS_FILE: text('').help(
    'JSON file with the public keys of whoever signs the reports, in the form of `api.github.com/meta/public_keys/secret_scanning`. The control plane reads it again when a report comes. Required unless LEAKS is off',
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

interface LeakParts {
  readonly config: LeakConfig;
  readonly clock: Clock;
  readonly log: Logger;
  readonly rates: RateLimits;
  readonly bootstrapKeys: BootstrapKeys;
  readonly handledReports: HandledReports;
  readonly services: Services;
  readonly onReport: (result: ReportResult) => void;
  readonly onSecrets: (kind: SecretKind, count: number) => void;
}

declare module 'fastify' {
  interface FastifyRequest {
    /** The bytes of a report, which its signature covers. */
    reportBytes: Buffer | undefined;
  }
}

/** The path for reports, unless LEAKS is off. */
export const LEAKS_PATH = `/v1/${OPERATION}`;

/** A report of 1,000 secrets has about 200 KiB. The sender proves nothing before all of it has arrived. */
const BODY_BYTES_MAX = 262_144;
/** Reports of one address at the same time. */
const PER_ADDRESS = { atOnce: 8, waitingMax: 0 };

/**
 * Adds the path to which GitHub's secret scanning sends reports. It is no operation: nobody needs a root key,
 * because the signature shows who reports.
 */
export async function receiveLeakReports(app: App, parts: LeakParts): Promise<void> {
  if (parts.config.LEAKS === 'off') return;
  const keys = new ReportKeys(parts.config.LEAKS_PUBLIC_KEYS_FILE, parts.clock, parts.log);
  const handler = new LeakHandler({ ...parts.services, policy: parts.config.LEAKS, log: parts.log });
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
      (request) => answerReport({ request, keys, handler, ...parts }),
    );
  });
}

async function answerReport(
  parts: LeakParts & {
    readonly request: FastifyRequest;
    readonly keys: ReportKeys;
    readonly handler: LeakHandler;
  },
) {
  const { request, keys, handler, handledReports, bootstrapKeys, services } = parts;
  const body = request.reportBytes ?? Buffer.alloc(0);
  await checkSignature(request, body, keys, parts.onReport).catch(async (error: unknown) => {
    await parts.rates.countFailure(request);
    throw error;
  });
  const reported = parseReport(body);
  const leaked = await lookUpLeaked(reported, { ...services, bootstrapKeys });
  // The signature is no name for a report, because ECDSA has several valid ones.
  const bodyHash = hash('sha256', body, 'base64url');
  const isRepeated = leaked.length > 0 && !(await handledReports.claim(bodyHash));
  if (isRepeated) {
    await parts.rates.countFailure(request);
  } else if (leaked.length > 0) {
    const by = { address: addressOf(request) };
    const report = { time: parts.clock.wallMs(), ...namesOf(request), by };
    try {
      await handler.handle(leaked, report);
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
