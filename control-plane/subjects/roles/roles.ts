import type { Write } from '#shared/protocol/log/change-log-port.ts';
import { createRecord, type RecordParts, recordOf } from '#shared/protocol/log/new-shared-record.ts';
import { KEY_FIELDS, type NewKeyFields, storedFields } from '#shared/protocol/records/key-record.ts';
import type { ConcurrencyLimit, RateLimit } from '#shared/protocol/records/limit.ts';
import { apiKeys, recordKey, SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { slugsOf } from '#shared/rules/slugs.ts';
import type { RoleNames } from '../../core/ports.ts';
import { type Key, type KeyView, type Managed, managedIn } from '../../core/records/key-view.ts';
import type { GivenRole } from '../../core/schema/slugs.ts';

/** The maximum number of roles, so that one response can list them. */
export const ROLES_MAX = 1000;

/** A role as people see it. */
export interface Role extends Managed {
  readonly id: string;
  readonly name: string;
  readonly description?: string;
  readonly permissions: readonly { readonly id: string; readonly name: string }[];
  /** Limits of the keys with the role. */
  readonly ratelimits: readonly RateLimit[];
  readonly concurrency: readonly ConcurrencyLimit[];
  /** The sequence of its last change; 0 = never changed. */
  readonly sequence: number;
}

interface RolesOptions extends RecordParts {
  readonly view: KeyView;
}

/**
 * Roles in Redis: records of the shared log in the form of keys, without a secret. A role's name is also its
 * external id, so that the index of external ids leads to it. The change log changes them.
 */
export class Roles implements RoleNames {
  readonly #options: RolesOptions;

  constructor(options: RolesOptions) {
    this.#options = options;
  }

  /**
   * Creates a role and returns its id. Rejects with CONFLICT (the name exists), VERIFIERS_TOO_OLD or
   * SERVICE_UNAVAILABLE.
   */
  async create({
    name,
    description,
    ...more
  }: NewKeyFields & { readonly name: string; readonly description?: string }): Promise<string> {
    const conflict = () => new ApiError('CONFLICT', `name: there is a role ${name} already`);
    const meta = description ? { description } : {};
    const fields = { name, ...more, enabled: true, meta };
    const nouns = { singular: 'the role', plural: 'roles' };
    const room = { index: apiKeys(SHARED_LOG).index, max: ROLES_MAX };
    return createRecord(this.#options, { kind: 'role', uniqueName: name, fields, nouns, room }, conflict);
  }

  async get(roleId: string): Promise<Role | undefined> {
    const record = await this.#options.view.get(SHARED_LOG, roleId);
    return record && roleOf(record);
  }

  /** Lists all roles in order of creation. */
  async list(filter: Pick<Managed, 'managedBy'> = {}): Promise<Role[]> {
    const page = await this.#options.view.list(SHARED_LOG, filter, ROLES_MAX, 'asc');
    return page?.keys.map(roleOf) ?? [];
  }

  /** The id of the role of this name; undefined if there is none. */
  idOf(name: string): Promise<string | undefined> {
    return recordOf(this.#options.nodes, name);
  }

  /**
   * Ids of the roles that a call names, in their order. Rejects with NOT_FOUND if one of them does not exist.
   */
  async idsOf(references: readonly GivenRole[]): Promise<string[]> {
    return Promise.all(
      references.map(async (role, i) => {
        const reference = typeof role === 'string' ? { name: role } : role;
        const id = 'id' in reference ? await this.#present(reference.id) : await this.idOf(reference.name);
        if (id !== undefined) return id;
        const text = 'id' in reference ? reference.id : reference.name;
        throw new ApiError('NOT_FOUND', `roles.${i}: there is no role ${text}`);
      }),
    );
  }

  /** The id of a role that is given by its name or its id. Rejects with NOT_FOUND. */
  async oneOf(reference: string): Promise<string> {
    const id = (await this.idOf(reference)) ?? (await this.#present(reference));
    if (id === undefined) throw new ApiError('NOT_FOUND', `role: there is no role ${reference}`);
    return id;
  }

  /**
   * The change to a key's roles that a call requests; `{}` if the call does not mention roles. Rejects like
   * `idsOf`.
   */
  async patchOf(
    references: readonly GivenRole[] | null | undefined,
  ): Promise<{ readonly roles?: readonly string[] | null }> {
    return references === undefined ? {} : { roles: references && (await this.idsOf(references)) };
  }

  /** The keys with the names of their roles instead of the ids, sorted; deleted roles are left out. */
  async withRoleNames<Shown extends Pick<Key, 'roles'>>(keys: readonly Shown[]): Promise<Shown[]> {
    const ids = [...new Set(keys.flatMap(({ roles = [] }) => roles))];
    const roleNames = await this.namesOf(ids);
    const names = new Map(ids.map((id, i) => [id, roleNames[i]]));
    return keys.map((key) =>
      key.roles ? { ...key, roles: key.roles.flatMap((id) => names.get(id) ?? []).sort() } : key,
    );
  }

  /** Those ids that belong to an existing role. */
  async existing(ids: readonly string[]): Promise<string[]> {
    const names = await this.namesOf(ids);
    return ids.filter((_, i) => names[i] !== undefined);
  }

  /** Names of the roles of these ids, in their order; undefined for a role that does not exist. */
  async namesOf(ids: readonly string[]): Promise<(string | undefined)[]> {
    const names = await this.#options.nodes.run(recordKey(SHARED_LOG, ''), (redis) =>
      Promise.all(ids.map((id) => redis.hget(recordKey(SHARED_LOG, id), KEY_FIELDS.name.letter))),
    );
    return names.map((name) => name ?? undefined);
  }

  /** Writes that remove a permission from every role that has it, each conditional on the role's version. */
  async without(slug: string): Promise<Write[]> {
    const { index } = apiKeys(SHARED_LOG);
    const { permissions } = KEY_FIELDS;
    const [ids, records] = await this.#options.nodes.run(index, async (redis) => {
      const roleIds = await redis.zrange(index, '0', '-1');
      const reads = roleIds.map((id) => redis.hmget(recordKey(SHARED_LOG, id), 'v', permissions.letter));
      return [roleIds, await Promise.all(reads)];
    });
    return records.flatMap(([version, text], i): Write[] => {
      const slugs = slugsOf(text ?? '');
      if (!slugs.includes(slug)) return [];
      const fields = storedFields({ permissions: slugs.filter((each) => each !== slug) });
      const [apiId, keyId, condition] = [SHARED_LOG, ids[i] ?? '', version ?? '0'];
      return [{ apiId, operation: 'update', keyId, fields, condition }];
    });
  }

  async #present(id: string): Promise<string | undefined> {
    return (await this.existing([id]))[0];
  }
}

function roleOf({ keyId, name = '', meta, permissions = [], sequence, ...key }: Key): Role {
  const { ratelimits = [], concurrency = [] } = key;
  const description = 'description' in meta ? { description: String(meta.description) } : {};
  return {
    id: keyId,
    name,
    ...description,
    permissions: permissions.map((slug) => ({ id: slug, name: slug })),
    ...{ ratelimits, concurrency, sequence, ...managedIn(key) },
  };
}
