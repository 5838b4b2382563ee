import type { Clock } from '#shared/process/clock.ts';
import type { ChangeLog } from '#shared/protocol/log/change-log-port.ts';
import type { DurableWriter } from '#shared/protocol/log/durable-writer.ts';
import {
  type Created,
  deletePointer,
  type NewFields,
  type NewRecord,
  noteDeletion,
  recordRun,
  setPointer,
} from '#shared/protocol/log/new-key-record.ts';
import { lifetimeError, tooOldError } from '#shared/protocol/log/write-error.ts';
import { KEY_FIELDS, sequenceOf } from '#shared/protocol/records/key-record.ts';
import { command, row } from '#shared/redis/command.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import {
  apiKeys,
  apiList,
  deletionNote,
  formatPointer,
  idPointer,
  parsePointer,
  recordKey,
  secretPointer,
} from '#shared/redis/redis-keys.ts';
import { send } from '#shared/redis/script.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { digestNames } from '#shared/rules/foreign-digests.ts';
import {
  generateId,
  generateKey,
  hashSecret,
  isWellFormed,
  secretHashFrom,
  startOf,
} from '#shared/rules/key-format.ts';
import { slugsOf } from '#shared/rules/slugs.ts';
import { BYTES, parseDefaults, SeenDefaults } from '../apis/api-defaults.ts';
import type { Draw } from '../ports.ts';
import type { Leak } from '../records/key-view.ts';

/** A key to be created. */
export interface NewKey extends NewFields {
  readonly apiId: string;
  /** If absent, the API's default applies; the same holds for `byteLength`. */
  readonly prefix?: string;
  readonly byteLength?: number;
}

/** A key that was created. */
interface CreatedKey {
  readonly keyId: string;
  /** The secret. */
  readonly key: string;
  /** When it expires, if the API's default says so. */
  readonly expires?: number;
}

/** A key and the hash of its secret. */
export interface PointedKey {
  readonly keyId: string;
  readonly secretHash: string;
}

const markLeak = command(new URL('./mark-leak.lua', import.meta.url), ['record'], ['leak'], String);
const findDeletion = command(
  new URL('./find-deletion.lua', import.meta.url),
  ['log'],
  ['keyId', 'from', 'limit'],
  row('sequence', 'next'),
);

const OTHER_NAMES = digestNames(['sha512', 'sha1'], '');

/** Entries of a change log that one run of the script reads. */
const SEARCHED_AT_ONCE = 500;
/** Time for which a deletion is told of, while the change log reaches back to it. */
const DELETION_KEPT_MS = 86_400_000;
/** Maximum number of secrets made while the API's defaults keep changing; then the caller must try again. */
const TRIES = 5;

/** The names under which a secret may be stored: of its SHA-256, and of other digests without a pepper. */
function hashesOf(secret: string): string[] {
  const others = isWellFormed(secret) ? [] : OTHER_NAMES(secret);
  return [hashSecret(secret), ...others.map(secretHashFrom)];
}

interface KeysOptions {
  readonly nodes: RedisNodes;
  readonly writer: DurableWriter;
  readonly log: ChangeLog;
  readonly clock: Clock;
  readonly limits: { readonly leaseMs: number; readonly apiAutoCreate: boolean };
}

/** Keys in Redis: creates and finds them. The change log changes them, and KeyView shows them. */
export class Keys {
  readonly #options: KeysOptions;
  readonly #defaults = new SeenDefaults();

  constructor(options: KeysOptions) {
    this.#options = options;
  }

  /**
   * Creates a key, which every verifier accepts from the moment this resolves. Rejects with NOT_FOUND (no
   * such API, and none is created), BAD_REQUEST (it would live too long), CONFLICT (the API is being deleted), VERIFIERS_TOO_OLD or
   * SERVICE_UNAVAILABLE; then nobody has the secret, and what was written is undone as far as possible.
   */
  async create(key: NewKey, draw?: Draw): Promise<CreatedKey> {
    for (let tries = 0; tries < TRIES; tries++) {
      const created = await this.#createWith(this.#defaults.of(key.apiId), key, draw);
      if (typeof created !== 'string') return created;
      this.#defaults.saw(key.apiId, created);
    }
    throw unavailable('the defaults of the API kept changing; nothing was created, so try again');
  }

  /** @returns the API's current defaults, if `defaults` were outdated and nothing was created */
  async #createWith(defaults: string, key: NewKey, draw?: Draw): Promise<CreatedKey | string> {
    const { byteLength, prefix, ...fields } = key;
    const { apiId } = key;
    const { defaultPrefix, defaultBytes = BYTES } = parseDefaults(defaults);
    const bytes = byteLength ?? defaultBytes;
    const secret = generateKey(bytes, prefix ?? defaultPrefix, draw?.random);
    const secretHash = hashSecret(secret);
    const nowMs = draw?.nowMs ?? this.#options.clock.wallMs();
    const keyId = generateId('key', nowMs, draw?.random);
    const defaultsNeed = byteLength === undefined || prefix === undefined ? { defaults } : {};
    const about = { keyId, secretHash, start: startOf(secret), createdAt: nowMs, foreign: false };
    const record = { ...fields, ...about, ...defaultsNeed, ...(bytes === BYTES ? {} : { bytes }) };
    try {
      const pointers = this.point(apiId, { keyId, secretHash });
      // The record must come after both pointers.
      if (!this.#options.writer.inOrder) await pointers;
      let [reply] = await Promise.all([this.#createRecord(record, false), pointers]);
      if (reply.status === 'NO_API' && this.#options.limits.apiAutoCreate) {
        await this.listApi(apiId);
        reply = await this.#createRecord(record, true);
      }
      const { status } = reply;
      if (status === 'OK')
        return { keyId, key: secret, ...(reply.expires ? { expires: Number(reply.expires) } : {}) };
      if (status === 'OTHER_DEFAULTS') {
        await this.forgetPointers(apiId, keyId, secretHash);
        return reply.present;
      }
      if (status === 'EXISTS' && draw) return this.#again(apiId, { keyId, secretHash }, secret);
      if (status === 'TOO_OLD') throw tooOldError(apiId, reply);
      if (status === 'TOO_LONG') throw lifetimeError(apiId, reply.longestMs);
      if (status === 'NO_API') throw new ApiError('NOT_FOUND', `api ${apiId} not found`);
      if (status === 'DELETED') throw new ApiError('CONFLICT', `api ${apiId} is being deleted`);
      throw new ApiError('CONFLICT', 'the key exists already');
    } catch (error) {
      // A repetition may be answered with it.
      if (draw && error instanceof ApiError && error.code === 'SERVICE_UNAVAILABLE') throw error;
      await this.#undo(apiId, keyId, secretHash);
      throw error;
    }
  }

  /** The key that an interrupted call created. */
  async #again(apiId: string, { keyId, secretHash }: PointedKey, secret: string): Promise<CreatedKey> {
    const record = recordKey(apiId, keyId);
    const [stored, expires] = await this.#options.nodes.run(record, (redis) =>
      redis.hmget(record, 'p', KEY_FIELDS.expires.letter),
    );
    if (stored !== secretHash)
      throw unavailable('the defaults of the API changed meanwhile; look at its keys');
    return { keyId, key: secret, ...(expires ? { expires: Number(expires) } : {}) };
  }

  /** The API of a key; undefined if the id is unknown. A deleted key may still point to its API. */
  async apiOf(keyId: string): Promise<string | undefined> {
    const pointer = idPointer(keyId);
    return (await this.#options.nodes.run(pointer, (redis) => redis.get(pointer))) ?? undefined;
  }

  /** The same, also for a key that was deleted within a day. Both are asked at once, so that no answer shows which it was. */
  async apiOfDeleted(keyId: string): Promise<string | undefined> {
    const note = deletionNote(keyId);
    const [present, past] = await Promise.all([
      this.apiOf(keyId),
      this.#options.nodes.run(note, (redis) => redis.get(note)),
    ]);
    return present ?? past ?? undefined;
  }

  /** The sequence of a key's deletion; undefined if that is not the last change of the key that the log has. */
  async deletionOf(apiId: string, keyId: string): Promise<number | undefined> {
    const { log } = apiKeys(apiId);
    for (let from = '+'; from !== ''; ) {
      const run = findDeletion({ log, keyId, from, limit: SEARCHED_AT_ONCE });
      const { sequence, next } = await this.#options.nodes.run(log, (redis) => send(redis, run));
      if (sequence !== '') return Number(sequence);
      from = next;
    }
    return undefined;
  }

  /** The last change in an API's log, whatever it was of. */
  async headOfApi(apiId: string): Promise<{ readonly sequence: number; readonly hash: string }> {
    const { head } = apiKeys(apiId);
    const [sequence, hash] = await this.#options.nodes.run(head, (redis) => redis.hmget(head, 's', 'h'));
    return { sequence: Number(sequence ?? 0), hash: hash ?? '' };
  }

  /** The sequence of an API's deletion; 0 = the API is gone, or never was. Call it once a write to the API found none. */
  async deletionOfApi(apiId: string): Promise<number> {
    const { head } = apiKeys(apiId);
    return Number((await this.#options.nodes.run(head, (redis) => redis.hget(head, 's'))) ?? 0);
  }

  /**
   * The API and id of the key with this secret; undefined if there is none. A deleted key may still be found.
   */
  async lookUp(secretHash: string): Promise<{ apiId: string; keyId: string } | undefined> {
    const pointer = secretPointer(secretHash);
    const value = await this.#options.nodes.run(pointer, (redis) => redis.get(pointer));
    return value === null ? undefined : parsePointer(value);
  }

  /** The same for a secret, by its SHA-256 or another digest without a pepper, by which it may have been imported. */
  async lookUpSecret(secret: string): Promise<{ apiId: string; keyId: string } | undefined> {
    return this.#firstOf(hashesOf(secret), (secretHash) => this.lookUp(secretHash));
  }

  /** The key with this secret that was deleted within a day, and perhaps not everywhere yet. */
  async lookUpDeleted(secret: string): Promise<{ apiId: string; keyId: string } | undefined> {
    return this.#firstOf(hashesOf(secret), async (secretHash) => {
      const note = deletionNote(secretHash);
      const value = await this.#options.nodes.run(note, (redis) => redis.get(note));
      return value === null ? undefined : parsePointer(value);
    });
  }

  async #firstOf<T>(hashes: readonly string[], find: (secretHash: string) => Promise<T | undefined>) {
    const results = await Promise.all(hashes.map(find));
    return results.find((each) => each !== undefined);
  }

  /** Tells whether an API was deleted and some of its keys are not swept yet. */
  async isApiDeleted(apiId: string): Promise<boolean> {
    const { head } = apiKeys(apiId);
    return (await this.#options.nodes.run(head, (redis) => redis.hexists(head, 'deleted'))) === 1;
  }

  /** The sequence of a key's latest change; 0 if it never changed, undefined if there is no such key. */
  async lastSequence(apiId: string, keyId: string): Promise<number | undefined> {
    const record = recordKey(apiId, keyId);
    const [secretHash, version] = await this.#options.nodes.run(record, (redis) =>
      redis.hmget(record, 'p', 'v'),
    );
    return secretHash ? sequenceOf(version) : undefined;
  }

  /**
   * A list field of a key and the version of the key's record, for a conditional change; undefined if there
   * is no record.
   */
  async listOf(
    apiId: string,
    keyId: string,
    field: 'permissions' | 'roles',
  ): Promise<{ readonly values: readonly string[]; readonly version: string } | undefined> {
    const record = recordKey(apiId, keyId);
    const [secretHash, version, text] = await this.#options.nodes.run(record, (redis) =>
      redis.hmget(record, 'p', 'v', KEY_FIELDS[field].letter),
    );
    return secretHash ? { values: slugsOf(text ?? ''), version: version ?? '0' } : undefined;
  }

  /**
   * Sets both pointers of a key; its record must come after them. Rejects with CONFLICT or
   * SERVICE_UNAVAILABLE.
   */
  async point(apiId: string, { keyId, secretHash }: PointedKey): Promise<void> {
    await Promise.all([
      this.#point(secretPointer(secretHash), formatPointer(apiId, keyId)),
      this.#point(idPointer(keyId), apiId),
    ]);
  }

  /** Deletes a deleted key's pointers. They already lead nowhere, so a failure is harmless. */
  async forgetPointers(apiId: string, keyId: string, secretHash: string): Promise<void> {
    await Promise.all([
      this.#options.writer.send(
        deletePointer({ pointer: secretPointer(secretHash), value: formatPointer(apiId, keyId) }),
      ),
      this.#options.writer.send(deletePointer({ pointer: idPointer(keyId), value: apiId })),
    ]);
  }

  /** The hash of a key's secret, for `forgetPointers`. */
  async secretHashOf(apiId: string, keyId: string): Promise<string | undefined> {
    const record = recordKey(apiId, keyId);
    return (await this.#options.nodes.run(record, (redis) => redis.hget(record, 'p'))) ?? undefined;
  }

  /** Notes that the secret of a key was found in public. Rejects with SERVICE_UNAVAILABLE if that could get lost. */
  async noteLeak(apiId: string, keyId: string, leak: Leak): Promise<void> {
    const run = markLeak({ record: recordKey(apiId, keyId), leak: JSON.stringify(leak) });
    const { replicated } = await this.#options.writer.send(run);
    if (!replicated) throw unavailable('not all replicas confirmed that the key leaked; send it again');
  }

  /** Adds an API that is about to be created to the list that listApis reads. */
  async listApi(apiId: string): Promise<void> {
    await this.#options.nodes.run(apiList, (redis) => redis.zadd(apiList, 0, apiId));
  }

  /** The hashes of the secrets of several keys, in their order. */
  async secretHashesOf(apiId: string, keyIds: readonly string[]): Promise<(string | undefined)[]> {
    const hashes = await this.#options.nodes.run(recordKey(apiId, ''), (redis) =>
      Promise.all(keyIds.map((keyId) => redis.hget(recordKey(apiId, keyId), 'p'))),
    );
    return hashes.map((secretHash) => secretHash ?? undefined);
  }

  /**
   * Notes the deletion of keys, and deletes their pointers. An import of the same secret may have recreated a
   * key under the existing pointers. The import sets them again after its record, and this method restores
   * them if it deleted them after that.
   */
  async forgetDeleted(apiId: string, deleted: readonly PointedKey[]): Promise<void> {
    const pointers = deleted.flatMap(({ keyId, secretHash }) => [
      deletePointer({ pointer: secretPointer(secretHash), value: formatPointer(apiId, keyId) }),
      deletePointer({ pointer: idPointer(keyId), value: apiId }),
    ]);
    const kept = DELETION_KEPT_MS;
    const notes = deleted.flatMap(({ keyId, secretHash }) => [
      noteDeletion({ note: deletionNote(keyId), value: apiId, kept }),
      noteDeletion({ note: deletionNote(secretHash), value: formatPointer(apiId, keyId), kept }),
    ]);
    // The notes come first, so that a deletion is known at any time.
    await this.#options.writer.sendAll(notes);
    await this.#options.writer.sendAll(pointers);
    const hashes = await this.secretHashesOf(
      apiId,
      deleted.map(({ keyId }) => keyId),
    );
    const back = deleted.filter(({ secretHash }, i) => hashes[i] === secretHash);
    await Promise.all(back.map((key) => this.point(apiId, key)));
  }

  async #point(pointer: string, value: string): Promise<void> {
    const { reply, replicated } = await this.#options.writer.send(setPointer({ pointer, value }));
    if (reply !== value) throw new ApiError('CONFLICT', 'the secret exists already');
    if (!replicated) throw unavailable('not all replicas confirmed; nothing was created');
  }

  async #createRecord(record: NewRecord, createApi: boolean): Promise<Created> {
    const run = recordRun(record, createApi, this.#options.limits.leaseMs);
    const { reply, replicated } = await this.#options.writer.send(run);
    if (!replicated) throw unavailable('not all replicas confirmed; nothing was created');
    return reply;
  }

  async #undo(apiId: string, keyId: string, secretHash: string): Promise<void> {
    try {
      await this.#options.log.write({ apiId, operation: 'delete', keyId, fields: {} });
      await this.forgetPointers(apiId, keyId, secretHash);
    } catch {
      return; // Redis is away; a key remains whose secret nobody has
    }
  }
}
