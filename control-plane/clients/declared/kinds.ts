import type { OperationName } from '../client/admin.ts';

/** A kind of things that files declare. */
export interface KindRules {
  /** The fields that name one of them. */
  readonly ids: readonly string[];
  readonly create: OperationName;
  readonly update: OperationName;
  readonly delete: OperationName;
  /** Lower ranks come first, because others refer to them. Deletions go the other way. */
  readonly rank: number;
  /** Fields that only a new one takes, because they change in use or never. */
  readonly onlyNew?: readonly string[];
  /** Fields of the creation that files have not. */
  readonly without?: readonly string[];
  /** Fields that only a change sets, after the creation. */
  readonly onlyLater?: readonly string[];
  /** True if its changes are in a log that verifiers follow, so that they are waited for. */
  readonly isInLog?: true;
  /** True if the creation and changes wait for verifiers, and need not. */
  readonly waits?: true;
  /** Fields whose empty text, or false, is the same as none. */
  readonly sameAsNone?: readonly string[];
}

/** The kinds of things that files declare, by their names there. */
export const KINDS = {
  Api: {
    ids: ['apiId'],
    ...{ create: 'apis.createApi', update: 'apis.updateApi', delete: 'apis.deleteApi' },
    ...{ rank: 0, sameAsNone: ['selfRevocation', 'tokens'] },
  },
  Permission: {
    ids: ['slug'],
    ...{ create: 'permissions.createPermission', update: 'permissions.updatePermission' },
    ...{ delete: 'permissions.deletePermission', rank: 0, sameAsNone: ['description'] },
  },
  Role: {
    ids: ['name'],
    ...{ create: 'permissions.createRole', update: 'permissions.updateRole' },
    ...{ delete: 'permissions.deleteRole', rank: 1, isInLog: true, waits: true },
  },
  Identity: {
    ids: ['externalId'],
    ...{ create: 'identities.createIdentity', update: 'identities.updateIdentity' },
    ...{ delete: 'identities.deleteIdentity', rank: 2, isInLog: true, waits: true },
  },
  Key: {
    ids: ['apiId', 'name'],
    ...{ create: 'keys.createKey', update: 'keys.updateKey', delete: 'keys.deleteKey' },
    ...{ rank: 3, onlyNew: ['remaining', 'prefix', 'secret'], without: ['ownerId', 'byteLength'] },
    ...{ isInLog: true, waits: true },
  },
  Webhook: {
    ids: ['name'],
    ...{ create: 'webhooks.createEndpoint', update: 'webhooks.updateEndpoint' },
    ...{ delete: 'webhooks.deleteEndpoint', rank: 1, onlyNew: ['secret'] },
    onlyLater: ['enabled'],
  },
} as const satisfies Readonly<Record<string, KindRules>>;

export type Kind = keyof typeof KINDS;
export const KIND_NAMES = Object.keys(KINDS) as Kind[];
export const rulesOf = (kind: Kind): KindRules => KINDS[kind];
