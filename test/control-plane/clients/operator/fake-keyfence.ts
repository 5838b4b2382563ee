import { type Admin, AdminError } from '../../../../control-plane/clients/client/admin.ts';

// biome-ignore lint/suspicious/noExplicitAny: fields of every kind
type Any = any;

/** The operations that an operator calls, on keys in memory. A change is pending while `isStuck`. */
export class FakeKeyfence {
  readonly apis = new Map<string, Any>();
  readonly keys = new Map<string, Any>();
  readonly roles = new Map<string, Any>();
  readonly identities = new Map<string, Any>();
  readonly #byDigest = new Map<string, string>();
  readonly #deleted = new Map<string, number>();
  #sequence = 0;
  #ids = 0;
  nowMs = () => 0;
  isStuck = false;
  /** True if logs no longer reach back to any change. */
  isTrimmed = false;
  readonly calls: string[] = [];

  /** Changes a key as somebody does by hand. */
  change(keyId: string, fields: object): void {
    const key = this.#key(keyId);
    this.keys.set(keyId, { ...key, ...fields, sequence: ++this.#sequence, driftedAt: this.nowMs() });
  }

  /** The same of a role or an identity. */
  changeRecord(records: Map<string, Any>, id: string, fields: object): void {
    const record = records.get(id);
    records.set(id, { ...record, ...fields, sequence: ++this.#sequence, driftedAt: this.nowMs() });
  }

  of(managedBy: string): Any[] {
    return [...this.keys.values()].filter((key) => key.managedBy === managedBy);
  }

  get admin(): Admin {
    const group = (name: string, methods: Record<string, (input: Any) => unknown>) =>
      Object.fromEntries(
        Object.entries(methods).map(([method, call]) => [
          method,
          async (input: Any) => {
            this.calls.push(`${name}.${method}`);
            return structuredClone(call(input));
          },
        ]),
      );
    return {
      keys: group('keys', {
        importKeys: ({ apiId, keys }) => ({
          results: keys.map(({ sha256, ...fields }: Any) => this.#import(apiId, sha256, fields)),
        }),
        getKey: ({ keyId }) => this.#key(keyId),
        updateKey: ({ keyId, ifSequence, waitMs: _, ...fields }) => {
          const key = this.#key(keyId);
          if (ifSequence !== undefined && ifSequence !== key.sequence)
            throw new AdminError('CONFLICT', 'somebody was faster', { status: 409 });
          if (Object.keys(fields).length === 0) return this.#propagation(key.sequence);
          const { driftedAt: _drift, ...rest } = key;
          const after: Any = { ...rest, ...fields, sequence: ++this.#sequence };
          for (const [name, value] of Object.entries(after)) if (value === null) delete after[name];
          this.keys.set(keyId, after);
          return this.#propagation(this.#sequence);
        },
        getPropagation: ({ keyId, sequence }) => {
          if (this.isTrimmed)
            throw new AdminError('CONFLICT', 'the log no longer reaches back', { status: 409 });
          this.#key(keyId);
          return this.#propagation(sequence);
        },
        deleteKey: ({ keyId, apiId }) => {
          const key = this.keys.get(keyId);
          if (key && key.apiId !== apiId)
            throw new AdminError('NOT_FOUND', 'in another API', { status: 404 });
          if (!this.#deleted.has(keyId)) this.#deleted.set(keyId, ++this.#sequence);
          this.keys.delete(keyId);
          for (const [digest, id] of this.#byDigest) if (id === keyId) this.#byDigest.delete(digest);
          return this.#propagation(this.#deleted.get(keyId) ?? 0);
        },
      }),
      apis: group('apis', {
        listKeys: ({ apiId, managedByPrefix = '' }) => ({
          total: [...this.keys.values()].filter((key) => key.apiId === apiId).length,
          keys: [...this.keys.values()].filter(
            (key) => key.apiId === apiId && (key.managedBy ?? '').startsWith(managedByPrefix),
          ),
        }),
        getApi: ({ apiId }) => this.#api(apiId),
        createApi: (api) => {
          this.apis.set(api.apiId, { ...api, sequence: 0 });
          return api;
        },
        updateApi: ({ apiId, ...fields }) => {
          this.apis.set(apiId, { ...this.#api(apiId), ...fields });
          return { apiId };
        },
        deleteApi: ({ apiId }) => {
          this.apis.delete(apiId);
          for (const key of this.keys.values()) if (key.apiId === apiId) this.keys.delete(key.keyId);
          return this.#propagation(++this.#sequence);
        },
      }),
      permissions: group('permissions', {
        listRoles: ({ managedBy } = {}) =>
          [...this.roles.values()].filter((role) => !managedBy || role.managedBy === managedBy),
        createRole: (role) => ({ roleId: this.#create(this.roles, `role_${++this.#ids}`, role).id }),
        updateRole: ({ roleId, ...change }) => this.#update(this.roles, roleId, change),
        deleteRole: ({ roleId }) => this.#delete(this.roles, roleId),
        getRolePropagation: ({ sequence }) => this.#propagation(sequence),
      }),
      identities: group('identities', {
        listIdentities: () => ({ identities: [...this.identities.values()] }),
        getIdentity: ({ externalId }) => this.#found(this.identities, `identity_${externalId}`),
        createIdentity: ({ externalId, waitMs: _, ...fields }) => {
          const names = [...this.roles.values()].map(({ name }) => name);
          if (!fields.roles.every((role: string) => names.includes(role)))
            throw new AdminError('NOT_FOUND', 'there is no such role', { status: 404 });
          return this.#create(this.identities, `identity_${externalId}`, { name: externalId, ...fields });
        },
        updateIdentity: ({ identityId, ...change }) => this.#update(this.identities, identityId, change),
        deleteIdentity: ({ identityId }) => this.#delete(this.identities, identityId),
        getIdentityPropagation: ({ sequence }) => this.#propagation(sequence),
      }),
    } as unknown as Admin;
  }

  #create(records: Map<string, Any>, id: string, fields: Any) {
    if ([...records.values()].some(({ name }) => name === fields.name))
      throw new AdminError('CONFLICT', `there is ${fields.name} already`, { status: 409 });
    const record = { ...fields, id, sequence: ++this.#sequence };
    records.set(id, record);
    return record;
  }

  #found(records: Map<string, Any>, id: string): Any {
    const record = records.get(id);
    if (!record) throw new AdminError('NOT_FOUND', `there is no ${id}`, { status: 404 });
    return record;
  }

  #update(records: Map<string, Any>, id: string, { ifSequence, waitMs: _, ...fields }: Any) {
    const { driftedAt: _drift, ...record } = this.#found(records, id);
    if (ifSequence !== undefined && ifSequence !== record.sequence)
      throw new AdminError('CONFLICT', 'somebody was faster', { status: 409 });
    const after = { ...record, ...fields, sequence: ++this.#sequence };
    for (const [name, value] of Object.entries(after)) if (value === null) delete after[name];
    records.set(id, after);
    return this.#propagation(this.#sequence);
  }

  #delete(records: Map<string, Any>, id: string) {
    if (this.#found(records, id).enabled === false)
      throw new AdminError('CONFLICT', 'the identity is disabled', { status: 409 });
    records.delete(id);
    return this.#propagation(++this.#sequence);
  }

  #import(apiId: string, sha256: string, fields: Any) {
    if (!this.apis.has(apiId)) throw new AdminError('NOT_FOUND', `api ${apiId} not found`, { status: 404 });
    const known = this.#byDigest.get(sha256);
    if (known) return { result: 'exists', keyId: known };
    const keyId = `key_${++this.#ids}`;
    this.#byDigest.set(sha256, keyId);
    this.keys.set(keyId, { ...fields, sha256, keyId, apiId, sequence: 0 });
    return { result: 'created', keyId };
  }

  #key(keyId: string): Any {
    const key = this.keys.get(keyId);
    if (!key) throw new AdminError('NOT_FOUND', `key ${keyId} not found`, { status: 404 });
    return key;
  }

  #api(apiId: string): Any {
    const api = this.apis.get(apiId);
    if (!api) throw new AdminError('NOT_FOUND', `api ${apiId} not found`, { status: 404 });
    return api;
  }

  #propagation(sequence: number) {
    const state = this.isStuck ? 'pending' : 'complete';
    return { propagation: { state, sequence, durable: true, verifiers: 1, waitedMs: 0, laggards: ['2.v'] } };
  }
}
