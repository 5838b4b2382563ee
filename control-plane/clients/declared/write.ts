import type { ChangeStatus } from '#shared/protocol/writer/writer.ts';
import { CliError } from '../cli/exit.ts';
import { digestOf } from '../client/own-secret.ts';
import type { Changed } from '../client/receipt.ts';
import type { Change } from './compare.ts';
import { type Kind, rulesOf } from './kinds.ts';
import { type Call, inParallel } from './present.ts';
import { SigningFile, secretOrNew } from './secret-files.ts';
import type { Written } from './wait.ts';

/** Keys of one call, and its size below the server's limit. */
const KEYS_PER_CALL = 500;
const BYTES_PER_CALL = 900_000;
/** The server is away once so many calls in a row were not answered. */
const UNANSWERED_MAX = 3;

export interface Failure {
  readonly change: Change;
  readonly error: CliError;
}

/** The outcome of one pass over the changes. */
export interface Pass {
  readonly done: readonly Change[];
  readonly failed: readonly Failure[];
  readonly remainder: number;
  readonly written: readonly Written[];
  /** The changes whose part that stops something was made. */
  readonly stopped: ReadonlySet<Change>;
}

/**
 * Makes the changes. What stops something goes first, and in spite of other failures; then what others refer to, and deletions that
 * stop nothing last. What names something that failed is held back: it could be more than was wished without it. What this has done,
 * another run finds done.
 */
export async function write(call: Call, changes: readonly Change[], set: string): Promise<Pass> {
  const writer = new Writer(call, set);
  const isFirst = ({ action, kind }: Change) => action === 'delete' && STOPPED.includes(kind);
  // Of a role that something else of this run loses, the other's change goes first, or callers would be refused meanwhile.
  const losing = changes.filter(({ fields }) => fields.some(({ field }) => field === 'roles'));
  const isRoleAlone = ({ action, kind }: Change) =>
    action === 'delete' && kind === 'Role' && losing.length === 0;
  const first = changes.filter((change) => isFirst(change) || isRoleAlone(change));
  const last = changes.filter((change) => change.action === 'delete' && !first.includes(change));
  await writer.each([...first, ...changes.filter(({ stop }) => stop)], (change) =>
    change.action === 'delete' ? writer.delete(change) : writer.stop(change),
  );
  const rest = changes.filter(({ action }) => action !== 'delete');
  for (const rank of [...new Set(rest.map(rankOf))].toSorted((a, b) => a - b)) {
    const ofRank = rest.filter((change) => rankOf(change) === rank);
    const isNewKey = ({ action, kind }: Change) => action === 'create' && kind === 'Key';
    await writer.each(
      ofRank.filter((change) => !isNewKey(change)),
      (change) => writer.make(change),
    );
    await writer.importAll(ofRank.filter(isNewKey));
  }
  for (const rank of [...new Set(last.map(rankOf))].toSorted((a, b) => b - a))
    await writer.each(
      last.filter((change) => rankOf(change) === rank),
      (change) => writer.delete(change),
    );
  return writer.pass(changes);
}

/** The kinds whose deletion stops something. */
const STOPPED: readonly Kind[] = ['Key', 'Webhook', 'Api'];
const rankOf = ({ kind }: Change) => rulesOf(kind).rank;

class Writer {
  readonly #call: Call;
  readonly #set: string;
  readonly #done = new Set<Change>();
  readonly #failures = new Map<Change, CliError>();
  readonly #written: Written[] = [];
  /** The sequence of what the first part of a change wrote. */
  readonly #stopped = new Map<Change, number | undefined>();
  #unanswered = 0;

  constructor(call: Call, set: string) {
    this.#call = call;
    this.#set = set;
  }

  pass(changes: readonly Change[]): Pass {
    const failed = [...this.#failures].map(([change, error]) => ({ change, error }));
    return {
      ...{ done: [...this.#done], failed, written: this.#written },
      remainder: changes.length - this.#done.size - failed.length,
      stopped: new Set(this.#stopped.keys()),
    };
  }

  get #isAway(): boolean {
    return this.#unanswered >= UNANSWERED_MAX;
  }

  /** Does something for each change, a few at a time. */
  async each(changes: readonly Change[], task: (change: Change) => Promise<void>): Promise<void> {
    await inParallel(changes, async (change) => {
      if (this.#isAway || this.#failures.has(change) || this.#done.has(change) || this.#isHeldBack(change))
        return;
      await this.#attempt([change], () => task(change));
    });
  }

  async #attempt(changes: readonly Change[], task: () => Promise<void>): Promise<void> {
    try {
      await task();
      this.#unanswered = 0;
    } catch (error) {
      if (!(error instanceof CliError)) throw error;
      this.#unanswered = error.exit === 'UNAVAILABLE' ? this.#unanswered + 1 : 0;
      for (const change of changes) this.#failures.set(change, error);
    }
  }

  /** Tells whether a change names something that failed before. A deletion names nothing. */
  #isHeldBack(change: Change): boolean {
    if (change.action === 'delete' || this.#failures.size === 0) return false;
    const { kind, input, apiId } = change;
    const named = new Set([
      ...(kind === 'Key' ? [`Api ${apiId}`, `Identity ${String(input['externalId'])}`] : []),
      ...((input['roles'] ?? []) as readonly string[]).map((role) => `Role ${role}`),
    ]);
    const cause = [...this.#failures.keys()].find(({ id, action }) => action !== 'delete' && named.has(id));
    if (!cause) return false;
    const text = `held back, because ${cause.id} failed; run apply again`;
    this.#failures.set(change, new CliError('NO', text));
    return true;
  }

  async delete(change: Change): Promise<void> {
    const { kind, id, apiId, ref } = change;
    const isGone = (error: unknown) => {
      if (error instanceof CliError && error.code === 'NOT_FOUND') return {};
      throw error;
    };
    const about = { ...ref, ...(kind === 'Key' ? { apiId } : {}), ...waitOf(kind), ifManagedBy: this.#set };
    const answer = await this.#call<object>(rulesOf(kind).delete, about).catch(isGone);
    this.#note(change, answer, ref, id);
    this.#done.add(change);
  }

  /** Makes the part of a change that stops something. To disable has no condition: it is never held up. */
  async stop(change: Change): Promise<void> {
    const { kind, id, ref, version, stop = {}, input, fields } = change;
    const isDisable = Object.keys(stop).every((field) => field === 'enabled');
    const condition = isDisable || kind === 'Webhook' ? {} : { ifSequence: version };
    const about = { ...stop, managedBy: this.#set, ...ref, ...condition, ...waitOf(kind) };
    const answer = await this.#call<object>(rulesOf(kind).update, about);
    this.#stopped.set(change, this.#note(change, answer, ref, id));
    const isAll = fields.every(({ field, after }) => field === 'managedBy' || sameText(stop[field], after));
    if (isAll && Object.keys(input).every((field) => field === 'managedBy' || field in stop))
      this.#done.add(change);
  }

  async make(change: Change): Promise<void> {
    const { action, kind, input, ref, version, isSecretLost } = change;
    const rules = rulesOf(kind);
    if (action === 'change') {
      if (isSecretLost) await this.#sign(change, () => this.#call('webhooks.rotateSecret', { ...ref }));
      const condition = kind === 'Webhook' ? {} : { ifSequence: this.#stopped.get(change) ?? version };
      const answer = await this.#call<object>(rules.update, {
        ...input,
        ...ref,
        ...condition,
        ...waitOf(kind),
      });
      this.#note(change, answer, ref);
    } else {
      const later = Object.fromEntries(
        Object.entries(input).filter(([field]) => rules.onlyLater?.includes(field)),
      );
      const name = { Api: input['apiId'], Permission: input['slug'] }[kind as string];
      const fields = Object.entries(input).filter(([field]) => !(field in later));
      const body = {
        ...{ ...(name === undefined ? {} : { name }), ...Object.fromEntries(fields) },
        ...(kind === 'Identity' ? waitOf(kind) : {}),
      };
      const create = () => this.#call<Answer>(rules.create, body);
      const answer = kind === 'Webhook' ? await this.#sign(change, create) : await create();
      const { identityId, endpointId } = answer;
      this.#note(change, answer, identityId === undefined ? undefined : { identityId });
      if (Object.values(later).includes(false))
        await this.#call(rules.update, { ...later, endpointId, managedBy: this.#set });
    }
    this.#done.add(change);
  }

  /** Makes a call that answers with a signing secret, and keeps that in its file. */
  async #sign(change: Change, make: () => Promise<Answer>): Promise<Answer> {
    const { id, secret, ref } = change;
    if (secret?.file === undefined) return make();
    const file = new SigningFile(secret.file);
    file.expect(id);
    const answer = await make().catch((error: unknown) => {
      // Nothing was made, and no secret is to come.
      const isRefused =
        error instanceof CliError && error.exit !== 'UNAVAILABLE' && error.code !== 'CONFLICT';
      if (isRefused && change.action === 'create') file.unmark();
      throw error;
    });
    file.keep(String(answer.secret));
    const endpointId = ref?.['endpointId'] ?? answer.endpointId;
    const present = await this.#call<Answer>('webhooks.getEndpoint', { endpointId });
    if (present.formerSecretEndsAt !== answer.formerSecretEndsAt)
      throw new CliError('NO', 'another call replaced its secret meanwhile; run apply again', {
        code: 'CONFLICT',
      });
    file.unmark();
    return answer;
  }

  /** Notes what is to wait for after a change; returns its sequence. */
  #note(change: Change, answer: object, ref: object | undefined, stops?: string): number | undefined {
    const { kind, apiId = '', action } = change;
    const { propagation } = answer as { readonly propagation?: ChangeStatus };
    const log = kind === 'Key' || kind === 'Api' ? apiId : '';
    const about = { log, ...(stops === undefined ? {} : { stops }) };
    // Of an API that another call deletes, the log itself tells.
    if (!propagation && kind === 'Api' && action === 'delete')
      this.#written.push({ ...about, changed: { apiId } });
    if (!propagation || !ref) return undefined;
    const { overtakenBy, sequence } = propagation;
    const changed = (kind === 'Key' ? { ...ref, apiId } : ref) as Changed;
    // The deletion of a permission has been waited for, as nothing tells of it later.
    if (kind !== 'Permission') this.#written.push({ ...about, sequence, changed });
    else if (propagation.state === 'pending')
      throw new CliError(
        'PENDING',
        'it is deleted, but some verifiers may still answer from the earlier state',
      );
    if (overtakenBy !== undefined)
      throw new CliError('NO', `change ${overtakenBy} came after it and set something else`, {
        code: 'CONFLICT',
      });
    return sequence;
  }

  /** Creates keys, many of one API in one call. Their secrets are in their files before. */
  async importAll(changes: readonly Change[]): Promise<void> {
    const created = changes.filter((change) => !this.#isHeldBack(change));
    for (const batch of batchesOf(created)) {
      if (this.#isAway) return;
      const keys = batch.flatMap((change) => {
        const key = this.#keyOf(change);
        return key ? [{ change, key }] : [];
      });
      if (keys.length > 0)
        await this.#attempt(
          keys.map(({ change }) => change),
          () => this.#import(keys),
        );
    }
  }

  /** Returns a key as an import takes it; undefined if its secret cannot be read or kept, which is a failure of this key alone. */
  #keyOf(change: Change): object | undefined {
    const { id, input, secret } = change;
    const { apiId: _, prefix, ...fields } = input;
    try {
      const digest =
        secret?.sha256 === undefined
          ? digestOf(secretOrNew(id, secret?.file ?? '', prefix as string | undefined))
          : { sha256: secret.sha256, foreign: false };
      return { ...fields, ...digest };
    } catch (error) {
      if (!(error instanceof CliError)) throw error;
      this.#failures.set(change, error);
      return undefined;
    }
  }

  async #import(keys: readonly { readonly change: Change; readonly key: object }[]): Promise<void> {
    const apiId = keys[0]?.change.apiId;
    type Result = { result: string; keyId?: string; message?: string };
    const { results } = await this.#call<{ results: readonly Result[] }>('keys.importKeys', {
      ...{ apiId, keys: keys.map(({ key }) => key) },
    });
    for (const [i, { change }] of keys.entries()) {
      const { result, keyId, message = 'unknown' } = results[i] ?? { result: 'refused' };
      if (result === 'refused') this.#failures.set(change, new CliError('NO', message));
      else if (result === 'exists') {
        const fix = `give it a secret of its own, or, to rename that key, run keyfence keys update ${keyId} --name ${JSON.stringify(change.input['name'])}`;
        const text = `its secret belongs to the key ${keyId} of another name; ${fix}`;
        this.#failures.set(change, new CliError('NO', text, { code: 'CONFLICT' }));
      } else this.#done.add(change);
    }
  }
}

type Answer = Readonly<{
  identityId?: string;
  endpointId?: string;
  secret?: string;
  formerSecretEndsAt?: number;
}>;

const waitOf = (kind: Kind) => (rulesOf(kind).waits || kind === 'Api' ? { waitMs: 0 } : {});

const sameText = (a: unknown, b: unknown) => JSON.stringify(a ?? []) === JSON.stringify(b ?? []);

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
