import { linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { scheduler } from 'node:timers/promises';
import type { Clock } from '#shared/process/clock.ts';
import { TOKEN_LEEWAY } from '#shared/protocol/timing.ts';
import type { ChangeStatus } from '#shared/protocol/writer/writer.ts';
import { canBeSecret } from '#shared/rules/key-format.ts';
import { fileError } from '../cli/commands/checkpoint.ts';
import { CliError } from '../cli/exit.ts';
import { digestOf, makeSecret } from '../client/own-secret.ts';
import { rulesOf } from './kinds.ts';
import type { Change } from './plan.ts';
import { type Call, inParallel } from './present.ts';

/** Keys of one call, and its size below the server's limit. */
const KEYS_PER_CALL = 500;
const BYTES_PER_CALL = 900_000;
/** The wait for all changes together. */
const COMPLETE_MS_MAX = 60_000;
const ASK_FIRST_MS = 20;
const ASK_MAX_MS = 500;

/** A change of which verifiers must learn, and the call that tells how far it has come. */
interface Written {
  readonly log: string;
  readonly sequence: number;
  readonly operation: string;
  readonly ref: object;
}

export interface Outcome {
  readonly done: readonly Change[];
  readonly failed: readonly { readonly change: Change; readonly error: CliError }[];
  readonly remainder: number;
  /** Absent: nothing was to wait for. */
  readonly propagation?: {
    readonly state: 'complete' | 'pending';
    readonly tookMs: number;
    readonly laggards: readonly string[];
  };
}

/**
 * Makes the changes: first what others refer to, then deletions in the other order, those that are independent side by side.
 * After a failure it begins no later step, and nothing at all once the server is away. Waits once, for all together. What it has
 * done, another run finds done.
 */
export async function applyChanges(call: Call, changes: readonly Change[], clock: Clock): Promise<Outcome> {
  const rankOf = ({ action, kind }: Change) =>
    action === 'delete' ? 100 - rulesOf(kind).rank : rulesOf(kind).rank;
  const ranks = [...new Set(changes.map(rankOf))].toSorted((a, b) => a - b);
  const done: Change[] = [];
  const failed: { change: Change; error: CliError }[] = [];
  const written: Written[] = [];
  const attempt = async (tried: readonly Change[], make: () => Promise<readonly (Written | undefined)[]>) => {
    if (failed.some(({ error }) => error.exit === 'UNAVAILABLE')) return;
    try {
      written.push(...(await make()).filter((each) => each !== undefined));
      done.push(...tried);
    } catch (error) {
      if (!(error instanceof CliError)) throw error;
      for (const change of tried) failed.push({ change, error });
    }
  };
  for (const rank of ranks) {
    if (failed.length > 0) break;
    const ofRank = changes.filter((change) => rankOf(change) === rank);
    const newKeys = ofRank.filter(({ action, kind }) => action === 'create' && kind === 'Key');
    const others = ofRank.filter((change) => !newKeys.includes(change));
    await inParallel(others, (change) => attempt([change], async () => [await make(call, change)]));
    for (const batch of batchesOf(newKeys)) {
      const refusals = new Map<Change, CliError>();
      await attempt(batch, async () => {
        await importKeys(call, batch, refusals);
        return [];
      });
      for (const [change, error] of refusals) {
        done.splice(done.indexOf(change), 1);
        failed.push({ change, error });
      }
    }
  }
  const remainder = changes.length - done.length - failed.length;
  const propagation = written.length > 0 ? { propagation: await completion(call, written, clock) } : {};
  return { done, failed, remainder, ...propagation };
}

async function make(call: Call, change: Change): Promise<Written | undefined> {
  const { action, kind, id, input, ref, version, secret } = change;
  const rules = rulesOf(kind);
  const wait = ['Role', 'Identity', 'Key'].includes(kind) ? { waitMs: 0 } : {};
  if (action === 'delete') return writtenOf(change, await call(rules.delete, { ...ref, ...wait }), ref);
  if (action === 'change') {
    const condition = kind === 'Webhook' ? {} : { ifSequence: version };
    return writtenOf(change, await call(rules.update, { ...input, ...ref, ...condition, ...wait }), ref);
  }
  if (kind === 'Webhook') {
    const file = secret?.file;
    if (file !== undefined) writeSecret(`${file}.new`, '', 'w');
    const { secret: signing } = await call<{ secret: string }>(rules.create, input);
    if (file !== undefined) {
      writeSecret(`${file}.new`, signing, 'w');
      link(`${file}.new`, file, id);
    }
    return undefined;
  }
  const name = { Api: input['apiId'], Permission: input['slug'] }[kind as string];
  const body = { ...(name === undefined ? {} : { name }), ...input, ...(kind === 'Identity' ? wait : {}) };
  const answer = await call<{ identityId?: string }>(rules.create, body);
  return writtenOf(change, answer, kind === 'Identity' ? { identityId: answer.identityId } : undefined);
}

/** Returns what is to wait for after a change; undefined = nothing. */
function writtenOf(
  { kind, apiId = '' }: Change,
  answer: object,
  ref: object | undefined,
): Written | undefined {
  const { propagation } = answer as { propagation?: ChangeStatus };
  const operation = {
    Key: 'keys.getPropagation',
    Role: 'permissions.getRolePropagation',
    Identity: 'identities.getIdentityPropagation',
  }[kind as string];
  if (!propagation || !operation || !ref) return undefined;
  const { overtakenBy } = propagation;
  if (overtakenBy !== undefined)
    throw new CliError('NO', `change ${overtakenBy} came after it and set something else; run apply again`);
  return {
    log: kind === 'Key' ? apiId : '',
    sequence: propagation.sequence,
    operation,
    ref,
  };
}

function* batchesOf(changes: readonly Change[]): Generator<Change[]> {
  const byApi = Map.groupBy(changes, ({ input }) => String(input['apiId']));
  for (const ofApi of byApi.values()) {
    let batch: Change[] = [];
    let bytes = 0;
    for (const change of ofApi) {
      const size = Buffer.byteLength(JSON.stringify(change.input)) + 200;
      if (batch.length === KEYS_PER_CALL || (bytes + size > BYTES_PER_CALL && batch.length > 0)) {
        yield batch;
        [batch, bytes] = [[], 0];
      }
      batch.push(change);
      bytes += size;
    }
    if (batch.length > 0) yield batch;
  }
}

/** Creates keys of one API. Their secrets are in their files before. */
async function importKeys(
  call: Call,
  changes: readonly Change[],
  refusals: Map<Change, CliError>,
): Promise<void> {
  const apiId = changes[0]?.input['apiId'];
  const keys = changes.map(({ id, input: { apiId: _, prefix, ...fields }, secret }) => {
    const digest =
      secret?.sha256 === undefined
        ? digestOf(secretIn(id, secret?.file ?? '', prefix))
        : { sha256: secret.sha256, foreign: false };
    return { ...fields, ...digest };
  });
  type Result = { result: string; keyId?: string; message?: string };
  const { results } = await call<{ results: readonly Result[] }>('keys.importKeys', { apiId, keys });
  for (const [i, change] of changes.entries()) {
    const { result, keyId, message = 'unknown' } = results[i] ?? { result: 'refused' };
    if (result === 'refused') refusals.set(change, new CliError('NO', message));
    if (result === 'exists') {
      const fix = `give it a secret of its own, or, to rename that key, run keyfence keys update ${keyId} --name ${JSON.stringify(change.input['name'])}`;
      const text = `its secret belongs to the key ${keyId} of another name; ${fix}`;
      refusals.set(change, new CliError('NO', text, { code: 'CONFLICT' }));
    }
  }
}

/** Returns the secret in a file, which gets one if there is no such file. */
function secretIn(id: string, file: string, prefix: unknown): string {
  const read = () => {
    const secret = readFileSync(file, 'utf8').trim();
    if (canBeSecret(secret)) return secret;
    throw new CliError(
      'USAGE',
      `${id}: secret.file: ${file} has no secret; delete it, and a new one is made`,
    );
  };
  try {
    return read();
  } catch (error) {
    if (error instanceof CliError) throw error;
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw fileError(file, error);
  }
  const own = `${file}.${process.pid}`;
  writeSecret(own, makeSecret(prefix as string | undefined), 'w');
  link(own, file, id);
  return read();
}

/** Writes a file that only its owner can read, and that Git ignores if its folder is new. */
function writeSecret(file: string, secret: string, flag: string): void {
  try {
    const newFolder = mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    if (newFolder !== undefined) writeFileSync(join(newFolder, '.gitignore'), '*\n');
    rmSync(file, { force: true });
    writeFileSync(file, secret === '' ? '' : `${secret}\n`, { mode: 0o600, flag });
  } catch (error) {
    throw fileError(file, error);
  }
}

/** Gives a whole file its name; if there is one already, that one stays. */
function link(own: string, file: string, id: string): void {
  try {
    linkSync(own, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw fileError(file, error);
    if (id.startsWith('Webhook')) return;
  }
  rmSync(own, { force: true });
}

/**
 * Waits until all changes are complete, at most COMPLETE_MS_MAX, and longer for tokens: of each log, the last has all others before
 * it.
 */
async function completion(
  call: Call,
  written: readonly Written[],
  clock: Clock,
): Promise<NonNullable<Outcome['propagation']>> {
  const startedAtMs = clock.monotonicMs();
  const last = new Map<string, Written>();
  for (const each of written)
    if (each.sequence > (last.get(each.log)?.sequence ?? -1)) last.set(each.log, each);
  const laggards = new Set<string>();
  const mostMs = (hasOnlyTokens: boolean) => COMPLETE_MS_MAX + (hasOnlyTokens ? TOKEN_LEEWAY.maxMs : 0);
  let waiting = [...last.values()];
  for (let pauseMs = ASK_FIRST_MS; ; pauseMs = Math.min(2 * pauseMs, ASK_MAX_MS)) {
    laggards.clear();
    const states = await inParallel(waiting, async ({ operation, ref, sequence }) => {
      const { propagation } = await call<{ propagation: ChangeStatus }>(operation, { ...ref, sequence });
      if (propagation.state === 'pending') for (const name of propagation.laggards ?? []) laggards.add(name);
      return propagation;
    });
    waiting = waiting.filter((_, i) => states[i]?.state === 'pending');
    const hasOnlyTokens = states.every(({ state, by }) => state === 'complete' || by !== undefined);
    const tookMs = clock.monotonicMs() - startedAtMs;
    if (waiting.length === 0 || tookMs > mostMs(hasOnlyTokens))
      return { state: waiting.length === 0 ? 'complete' : 'pending', tookMs, laggards: [...laggards] };
    await scheduler.wait(pauseMs);
  }
}
