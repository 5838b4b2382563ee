import type { Clock } from '#shared/clock.ts';
import { ApiError, unavailable } from '#shared/errors.ts';
import { generateId, hashSecret } from '#shared/key-format.ts';
import { KEY_FIELDS } from '#shared/key-record.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { apiKeys, ownerKey, recordKey, WORKSPACE } from '#shared/redis/redis-keys.ts';
import { PERMISSIONS_PROTOCOL, slugsOf } from '#shared/slugs.ts';
import type { ChangeLog } from '../../core/change-log.ts';
import { tooOld } from '../../core/not-written.ts';
import type { GivenRole } from '../../core/role-schemas.ts';
import { tooOldOf } from '../change-log.ts';
import type { DurableWriter } from '../durable-writer.ts';
import type { Key, KeyView } from '../key-view.ts';
import { createScript, recordCall } from '../new-record.ts';

/** Most roles, so that listing them is one answer. */
const ROLES_MAX = 1000;

/** A role as people see it. */
export interface Role {
  readonly id: string;
  readonly name: string;
  readonly description?: string;
  readonly permissions: readonly { readonly id: string; readonly name: string }[];
}

interface RolesOptions {
  readonly nodes: RedisNodes;
  readonly writer: DurableWriter;
  readonly view: KeyView;
  readonly log: ChangeLog;
  readonly clock: Clock;
  readonly leaseMs: number;
}

/**
 * Roles in Redis: records of the space beside all APIs, of the form that keys have, which no secret leads to. A role's name is
 * its owner too, so that the index of owners finds it by its name. Changing them is the change log's business.
 */
export class Roles {
  readonly #options: RolesOptions;

  constructor(options: RolesOptions) {
    this.#options = options;
  }

  /** Creates a role; its id. Rejects with CONFLICT where there is one of that name, VERIFIERS_TOO_OLD or SERVICE_UNAVAILABLE. */
  async create(role: {
    readonly name: string;
    readonly description?: string;
    readonly permissions: readonly string[];
  }): Promise<string> {
    const { writer, log, clock, leaseMs } = this.#options;
    const { name, description, permissions } = role;
    const taken = () => new ApiError('CONFLICT', `name: there is a role ${name} already`);
    if ((await this.idOf(name)) !== undefined) throw taken();
    if ((await this.#count()) >= ROLES_MAX)
      throw new ApiError('CONFLICT', `there are ${ROLES_MAX} roles already`);
    const nowMs = clock.wallMs();
    const keyId = generateId('role', nowMs);
    const record = {
      ...{
        apiId: WORKSPACE,
        keyId,
        secretHash: hashSecret(keyId),
        start: '',
        createdAt: nowMs,
        foreign: false,
      },
      ...{ name, externalId: name, permissions, enabled: true, meta: description ? { description } : {} },
    };
    const { keys, args } = recordCall(record, true, leaseMs);
    const { reply, replicated } = await writer.run(createScript, keys, args);
    const refusal = tooOldOf(reply, PERMISSIONS_PROTOCOL);
    if (refusal) throw tooOld('of roles', refusal);
    if (!replicated) throw unavailable('not all replicas confirmed; the role may have been created');
    // Of two that were made at once the first stays.
    if ((await this.idOf(name)) !== keyId) {
      await log.write({ apiId: WORKSPACE, operation: 'delete', keyId, fields: {} });
      throw taken();
    }
    return keyId;
  }

  async get(roleId: string): Promise<Role | undefined> {
    const found = await this.#options.view.get(WORKSPACE, roleId);
    return found && shownRole(found);
  }

  /** All of them, in order of creation. */
  async list(): Promise<Role[]> {
    const page = await this.#options.view.list(WORKSPACE, {}, ROLES_MAX, 'asc');
    return page?.keys.map(shownRole) ?? [];
  }

  /** The id of the role of this name; undefined where there is none. */
  async idOf(name: string): Promise<string | undefined> {
    const index = ownerKey(WORKSPACE, name);
    const [id] = await this.#options.nodes.run(index, (redis) => redis.zrange(index, '0', '0'));
    return id;
  }

  /** Ids of roles that a call names, in their order. Rejects with NOT_FOUND where there is one of them no more. */
  async idsOf(given: readonly GivenRole[]): Promise<string[]> {
    return Promise.all(
      given.map(async (role, i) => {
        const named = typeof role === 'string' ? { name: role } : role;
        const id = 'id' in named ? await this.#present(named.id) : await this.idOf(named.name);
        if (id !== undefined) return id;
        const said = 'id' in named ? named.id : named.name;
        throw new ApiError('NOT_FOUND', `roles.${i}: there is no role ${said}`);
      }),
    );
  }

  /** Change of a key's record that a call asks for; `{}` where it does not name roles. Rejects as `idsOf`. */
  async patchOf(
    given: readonly GivenRole[] | null | undefined,
  ): Promise<{ readonly roles?: readonly string[] | null }> {
    return given === undefined ? {} : { roles: given && (await this.idsOf(given)) };
  }

  /** These keys with the names of their roles instead of the ids, in alphabetical order; roles that were deleted are left out. */
  async shownOn<Shown extends Pick<Key, 'roles'>>(keys: readonly Shown[]): Promise<Shown[]> {
    const ids = [...new Set(keys.flatMap(({ roles = [] }) => roles))];
    const named = await this.namesOf(ids);
    const names = new Map(ids.map((id, i) => [id, named[i]]));
    return keys.map((key) =>
      key.roles ? { ...key, roles: key.roles.flatMap((id) => names.get(id) ?? []).sort() } : key,
    );
  }

  /** Names of the roles of these ids, in their order; undefined where there is none. */
  async namesOf(ids: readonly string[]): Promise<(string | undefined)[]> {
    const names = await this.#options.nodes.run(recordKey(WORKSPACE, ''), (redis) =>
      Promise.all(ids.map((id) => redis.hget(recordKey(WORKSPACE, id), KEY_FIELDS.name.letter))),
    );
    return names.map((name) => name ?? undefined);
  }

  /** Ids of a key's roles, and the version of its record that has them; undefined when there is no such key. */
  async ofKey(
    apiId: string,
    keyId: string,
  ): Promise<{ readonly ids: readonly string[]; readonly version: string } | undefined> {
    const record = recordKey(apiId, keyId);
    const [secretHash, version, text] = await this.#options.nodes.run(record, (redis) =>
      redis.hmget(record, 'p', 'v', KEY_FIELDS.roles.letter),
    );
    return secretHash ? { ids: slugsOf(text ?? ''), version: version ?? '0' } : undefined;
  }

  async #present(id: string): Promise<string | undefined> {
    const [name] = await this.namesOf([id]);
    return name === undefined ? undefined : id;
  }

  async #count(): Promise<number> {
    const { index } = apiKeys(WORKSPACE);
    return this.#options.nodes.run(index, (redis) => redis.zcard(index));
  }
}

function shownRole({ keyId, name = '', meta, permissions = [] }: Key): Role {
  const description = 'description' in meta ? { description: String(meta.description) } : {};
  return {
    id: keyId,
    name,
    ...description,
    permissions: permissions.map((slug) => ({ id: slug, name: slug })),
  };
}
