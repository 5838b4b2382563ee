import { type Admin, AdminError } from '../client/admin.ts';
import type { Operations } from '../client/interface.ts';
import type { KubeObject, Resource } from './kube.ts';
import {
  IDENTITY_SPEC,
  type KeyIdentity,
  type KeyRole,
  keyIdentitiesIn,
  keyRolesIn,
  ROLE_SPEC,
} from './objects.ts';
import type { Propagation } from './reporter.ts';

/** A role or an identity, as far as the operator reads it. */
export interface DeclaredRecord {
  readonly id: string;
  readonly sequence: number;
  readonly managedBy?: string;
  readonly driftedAt?: number;
  readonly enabled?: boolean;
}

type Answer = Promise<{ readonly propagation: Propagation }>;
type Change = { readonly managedBy?: string | null; readonly ifSequence?: number; readonly waitMs: number };

/** A kind of objects that each declare one thing with a name of its own and without a secret. */
export interface RecordKind<T extends KubeObject> {
  readonly noun: string;
  readonly in: (namespace: string) => Resource;
  /** The name in Keyfence, which all namespaces share. */
  readonly nameOf: (object: T) => string;
  /** The APIs that must admit the namespace; undefined = any one of them is enough. */
  readonly apisOf: (object: T) => readonly string[] | undefined;
  /** All fields; those that the object leaves out are empty. */
  readonly fieldsOf: (object: T) => Readonly<Record<string, unknown>>;
  /** Fields with which it decides as little as if it were deleted. */
  readonly emptyFields: Readonly<Record<string, unknown>>;
  /** Finds the thing of a name that `managedBy` declares. */
  readonly find: (admin: Admin, name: string, managedBy: string) => Promise<DeclaredRecord | undefined>;
  /** Finds the thing of a name, whoever declares it. */
  readonly named: (admin: Admin, name: string) => Promise<DeclaredRecord | undefined>;
  readonly create: (
    admin: Admin,
    name: string,
    fields: Readonly<Record<string, unknown>>,
  ) => Promise<unknown>;
  readonly update: (admin: Admin, id: string, change: Change) => Answer;
  readonly delete: (admin: Admin, id: string) => Answer;
  readonly propagation: (admin: Admin, id: string, sequence: number) => Answer;
  readonly all: (admin: Admin, managedByPrefix: string) => Promise<readonly DeclaredRecord[]>;
}

const PAGE_SIZE = 100;

export const ROLES: RecordKind<KeyRole> = {
  noun: 'role',
  in: keyRolesIn,
  nameOf: ({ spec, metadata }) => spec.name ?? metadata.name,
  apisOf: () => undefined,
  fieldsOf: ({ spec }) => ({
    ...Object.fromEntries(ROLE_SPEC.map((field) => [field, spec[field] ?? []])),
    description: spec['description'] ?? null,
  }),
  emptyFields: { permissions: [], ratelimits: [], concurrency: [] },
  find: async (admin, _, managedBy) => (await admin.permissions.listRoles({ managedBy }))[0],
  named: async (admin, name) => (await admin.permissions.listRoles()).find((role) => role.name === name),
  create: (admin, name, { description, ...fields }) =>
    admin.permissions.createRole({
      ...{ name, ...fields },
      ...(description === null ? {} : { description: String(description) }),
    }),
  update: (admin, roleId, change) => admin.permissions.updateRole({ roleId, ...change }),
  delete: (admin, roleId) => admin.permissions.deleteRole({ roleId, waitMs: 0 }),
  propagation: (admin, roleId, sequence) => admin.permissions.getRolePropagation({ roleId, sequence }),
  all: (admin) => admin.permissions.listRoles(),
};

export const IDENTITIES: RecordKind<KeyIdentity> = {
  noun: 'identity',
  in: keyIdentitiesIn,
  nameOf: ({ spec, metadata }) => spec.externalId ?? metadata.name,
  apisOf: ({ spec }) => spec.apiIds,
  fieldsOf: ({ spec }) => ({
    ...Object.fromEntries(IDENTITY_SPEC.map((field) => [field, spec[field] ?? []])),
    ...{ meta: spec['meta'] ?? {}, enabled: spec.enabled ?? true, apiIds: spec.apiIds },
  }),
  emptyFields: { meta: {}, ratelimits: [], concurrency: [], roles: [], credits: null },
  async find(admin, externalId, managedBy) {
    const record = await orAbsent(admin.identities.getIdentity({ externalId }));
    return record?.managedBy === managedBy ? record : undefined;
  },
  named: (admin, externalId) => orAbsent(admin.identities.getIdentity({ externalId })),
  create: (admin, externalId, fields) =>
    admin.identities.createIdentity({
      ...({ externalId, ...fields } as Operations['identities.createIdentity']['input']),
      waitMs: 0,
    }),
  update: async (admin, identityId, change) => {
    const { propagation } = await admin.identities.updateIdentity({ identityId, ...change });
    return { propagation };
  },
  delete: (admin, identityId) => admin.identities.deleteIdentity({ identityId, waitMs: 0 }),
  propagation: (admin, identityId, sequence) =>
    admin.identities.getIdentityPropagation({ identityId, sequence }),
  async all(admin, managedByPrefix) {
    const records: DeclaredRecord[] = [];
    for (let cursor: string | undefined = ''; cursor !== undefined; ) {
      const page: Operations['identities.listIdentities']['output'] = await admin.identities.listIdentities({
        ...{ limit: PAGE_SIZE, managedByPrefix },
        ...(cursor ? { cursor } : {}),
      });
      records.push(...page.identities);
      cursor = page.cursor;
    }
    return records;
  },
};

/** Resolves with undefined if there is no such thing. */
export async function orAbsent<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof AdminError && error.code === 'NOT_FOUND') return undefined;
    throw error;
  }
}
