import { scheduler } from 'node:timers/promises';
import { systemClock } from '#shared/process/clock.ts';
import { generateKey } from '#shared/rules/key-format.ts';
import { clockFinding, type Finding } from '../../../subjects/examine/examination.ts';
import type { Operations } from '../../client/admin.ts';
import { Client } from '../client.ts';
import { CliError } from '../exit.ts';
import type { Session } from '../session.ts';
import { lacking } from '../target.ts';
import { examineDeclared } from './examine-declared.ts';
import { examineRedis } from './examine-redis.ts';

const VERDICT_TRIES_MAX = 5;
const VERDICT_RETRY_MS = 200;
/** A verifier that answers does so in about a second; one that is frozen takes connections, and is silent. */
const VERDICT_WAIT_MS = 5000;

/** Runs all checks of the doctor. Changes nothing. Faults are findings, not rejections. */
export async function examine(session: Session): Promise<Finding[]> {
  const controlPlane = new Client(await session.url(), 'control plane', (await session.target)?.rootKey);
  const { rootKey, verifierUrl, redisUrl } = (await session.target) ?? {};
  const verifier = verifierUrl && new Client(verifierUrl, 'verifier', undefined, undefined, VERDICT_WAIT_MS);
  const verdict = verifier && (await examineVerifier(verifier));
  const ofVerifier = verdict
    ? [verdict, ...clockOf(verifier, 'verifier')]
    : [{ check: 'verifier', found: (await lacking(await session.target, 'KEYFENCE_VERIFIER_URL')).message }];
  // One without a verdict may be cut off from Redis, so that it cannot report itself there.
  const givesVerdicts = verdict !== undefined && verdict.change === undefined;
  const verifierId = givesVerdicts ? await verifier?.verifierId().catch(() => undefined) : undefined;
  const ofControlPlane = await examineControlPlane(controlPlane, rootKey !== '');
  return [
    ofControlPlane,
    ...clockOf(controlPlane, 'control plane'),
    ...ofVerifier,
    ...((await examineRedis(redisUrl, verifierId)) ?? (await examineFrom(controlPlane))),
    // Each of its calls would wait for one that does not answer.
    ...(ofControlPlane.change === undefined
      ? await examineDeclared((operation, input) => controlPlane.call(operation, input))
      : []),
  ];
}

/** The findings of the control plane about Redis and the fleet, if this machine does not know its Redis. */
async function examineFrom(controlPlane: Client): Promise<readonly Finding[]> {
  try {
    const { findings } =
      await controlPlane.call<Operations['fleet.listFindings']['output']>('fleet.listFindings');
    return findings.map(({ result, ...finding }) => ({ ...finding, found: result }));
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    return [
      { check: 'Redis', found: `not examined from here, since REDIS_URL is not set: ${error.message}` },
    ];
  }
}

async function examineControlPlane(client: Client, hasRootKey: boolean): Promise<Finding> {
  const check = 'control plane';
  const at = client.place;
  try {
    await client.call('apis.listApis', { limit: 1 });
    return { check, found: `${at} answers and knows the root key` };
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    if (error.code === 'UNAUTHORIZED' && !hasRootKey) {
      return { check, found: `${at} answers; there was no root key to try, see KEYFENCE_ROOT_KEY_FILE` };
    }
    const change =
      error.code === 'UNAUTHORIZED'
        ? 'use a root key that is known and enabled: KEYFENCE_ROOT_KEY_FILE'
        : 'start it, or set KEYFENCE_URL to its address; if it answers 503, see Redis below';
    return { check, found: error.message, change };
  }
}

/** Asks for a verdict on a made-up key. */
async function examineVerifier(client: Client): Promise<Finding> {
  const check = 'verifier';
  try {
    const code = await verdictOn(generateKey(16), client);
    const result = `${client.place} answers ${code} about a made-up key`;
    const wrong = 'that is not a verifier: set KEYFENCE_VERIFIER_URL to the address of one';
    return { check, found: result, ...(code === 'NOT_FOUND' ? {} : { change: wrong }) };
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    if (error.code === 'UNAUTHORIZED') return { check, found: `${client.place} asks for a root key` };
    const isSilent = (error.cause as Error | undefined)?.name === 'TimeoutError';
    const change = isSilent
      ? 'restart it: it takes connections and is silent, so it is frozen, or has no CPU'
      : 'start it, or set KEYFENCE_VERIFIER_URL to its address; if it answers 503, it cannot reach Redis';
    return { check, found: error.message, change };
  }
}

/** Asks again while there is no verdict, as every caller must: a first look-up may take too long. */
async function verdictOn(key: string, client: Client): Promise<string | undefined> {
  for (let tries = VERDICT_TRIES_MAX; ; tries--) {
    try {
      return (await client.call<{ code?: string }>('keys.verifyKey', { key })).code;
    } catch (error) {
      const isTransient = error instanceof CliError && error.code === 'SERVICE_UNAVAILABLE';
      if (!isTransient || tries === 1) throw error;
      await scheduler.wait(VERDICT_RETRY_MS);
    }
  }
}

/**
 * Compares a server's clock with this machine's; no finding if the server did not answer. Leases use
 * monotonic clocks; the wall clock decides when keys expire.
 */
function clockOf({ dateMs }: Client, service: string): Finding[] {
  if (dateMs === undefined) return [];
  // The Date header has whole seconds.
  return [clockFinding(`${service}'s clock`, dateMs + 500 - systemClock.wallMs(), "this machine's")];
}
