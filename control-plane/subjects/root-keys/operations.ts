import { Type } from 'typebox';
import type { Clock } from '#shared/process/clock.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { requireCovered } from '../../core/callers/coverage.ts';
import type { RootKeys } from '../../core/callers/root-keys.ts';
import { PERMISSION_PATTERN } from '../../core/callers/root-permissions.ts';
import { Propagation } from '../../core/schema/changes.ts';
import { Name } from '../../core/schema/key-fields.ts';
import { Count, Fields, Id, List, Secret, Time } from '../../core/schema/primitives.ts';
import { operation } from '../../core/serve/operation.ts';
import type { PublishedRootKeys } from './published-root-keys.ts';

const PERMISSIONS_LISTED_MAX = 20;

const createRootKey = operation({
  name: 'rootKeys.createRootKey',
  kind: 'change',
  adds: true,
  summary: 'Create a root key',
  description:
    'A root key can grant only permissions that it has itself. Verifiers that need root keys (VERIFY_ROOT_KEYS) accept it once `propagation` is complete; if there is none, they will within a minute.',
  permissions: ['root.*.create_root_key'],
  request: Fields({
    name: Name,
    permissions: Type.Array(Type.String({ pattern: PERMISSION_PATTERN }), {
      minItems: 1,
      maxItems: 100,
      uniqueItems: true,
    }),
  }),
  response: Type.Object({
    rootKeyId: Id('the root key'),
    key: Secret,
    propagation: Type.Optional(Propagation),
  }),
  event: 'root_key.created',
  errors: ['CONFLICT'],
  example: { name: 'support', permissions: ['api.shop.read_key', 'api.shop.read_api'] },
  async handle(
    call,
    {
      rootKeys,
      publishedRootKeys,
      clock,
    }: { rootKeys: RootKeys; publishedRootKeys: PublishedRootKeys; clock: Clock },
  ) {
    const { name, permissions } = call.request;
    requireCovered(call.caller, permissions);
    const created = await rootKeys.create(call.caller, name, permissions, clock.wallMs(), call.draw);
    call.note({ rootKeyId: created.rootKeyId }, { after: { name, permissions: shorten(permissions) } });
    call.giveTurnBack();
    call.recordWrite();
    // An error would lose the secret, and verifiers only refuse the root key for a while.
    const propagation = await publishedRootKeys.publish().catch((error) => {
      call.log.warn(
        { rootKeyId: created.rootKeyId, err: error },
        'a new root key is not yet known to verifiers',
      );
      return undefined;
    });
    return { ...created, ...(propagation ? { propagation } : {}) };
  },
});

const shorten = (permissions: readonly string[]) =>
  permissions.length <= PERMISSIONS_LISTED_MAX
    ? permissions
    : [
        ...permissions.slice(0, PERMISSIONS_LISTED_MAX),
        `and ${permissions.length - PERMISSIONS_LISTED_MAX} more`,
      ];

const updateRootKey = operation({
  name: 'rootKeys.updateRootKey',
  kind: 'change',
  stops: 'if disabled',
  summary: 'Disable or enable a root key',
  description:
    'A disabled root key is refused from the next call on, and so is every root key that descends from it, until it is enabled again. Returns when that is complete, like updateKey: no verifier anywhere accepts it.',
  permissions: ['root.*.update_root_key'],
  request: Fields({
    rootKeyId: Type.String({ pattern: '^[A-Za-z0-9_-]{1,80}$' }),
    enabled: Type.Boolean(),
  }),
  response: Type.Object({
    rootKeyId: Id('the root key'),
    enabled: Type.Boolean(),
    propagation: Propagation,
  }),
  event: { disabled: 'root_key.disabled', enabled: 'root_key.enabled' },
  errors: ['NOT_FOUND'],
  example: { rootKeyId: 'root_0mzc9k4q8r2wfXa1Bc2d', enabled: false },
  neverShed: true,
  async handle(
    call,
    { rootKeys, publishedRootKeys }: { rootKeys: RootKeys; publishedRootKeys: PublishedRootKeys },
  ) {
    const { rootKeyId, enabled } = call.request;
    const rootKey = await rootKeys.get(rootKeyId);
    if (!rootKey) throw new ApiError('NOT_FOUND', `root key ${rootKeyId} not found`);
    requireCovered(call.caller, rootKey.permissions);
    call.intend({ enabled });
    await rootKeys.setEnabled(rootKeyId, enabled);
    call.note({}, { before: { enabled: rootKey.enabled }, after: { enabled } });
    call.giveTurnBack();
    call.recordWrite();
    return { rootKeyId, enabled, propagation: await publishedRootKeys.publish() };
  },
});

const deleteRootKey = operation({
  name: 'rootKeys.deleteRootKey',
  kind: 'change',
  stops: 'always',
  summary: 'Delete a root key for good',
  description:
    'It is refused from the next call on. All root keys that descend from it are deleted too, because they are refused without it. Returns when that is complete, like updateRootKey.',
  permissions: ['root.*.delete_root_key'],
  request: Fields({ rootKeyId: Type.String({ pattern: '^[A-Za-z0-9_-]{1,80}$' }) }),
  response: Type.Object({
    deletedRootKeys: Count('Number of root keys that this call deleted.'),
    propagation: Propagation,
  }),
  event: 'root_key.deleted',
  errors: ['NOT_FOUND'],
  example: { rootKeyId: 'root_0mzc9k4q8r2wfXa1Bc2d' },
  neverShed: true,
  async handle(
    call,
    { rootKeys, publishedRootKeys }: { rootKeys: RootKeys; publishedRootKeys: PublishedRootKeys },
  ) {
    const { rootKeyId } = call.request;
    const notFound = new ApiError('NOT_FOUND', `root key ${rootKeyId} not found`);
    const rootKey = await rootKeys.get(rootKeyId);
    if (!rootKey) throw notFound;
    requireCovered(call.caller, rootKey.permissions);
    const deletedRootKeys = await rootKeys.delete(rootKeyId);
    if (deletedRootKeys === 0) throw notFound; // another call was first
    const { name, enabled } = rootKey;
    call.note({}, { before: { name, enabled }, after: { deletedRootKeys } });
    call.giveTurnBack();
    call.recordWrite();
    return { deletedRootKeys, propagation: await publishedRootKeys.publish() };
  },
});

const listRootKeys = operation({
  name: 'rootKeys.listRootKeys',
  kind: 'query',
  summary: 'List root keys',
  description: 'Shows everything except the secrets. Root keys of the configuration are not listed.',
  permissions: ['root.*.read_root_key'],
  request: Fields({}),
  response: Type.Object({
    rootKeys: List(
      Type.Object({
        rootKeyId: Id('the root key'),
        name: Type.String(),
        permissions: List(Type.String()),
        enabled: Type.Boolean(),
        createdAt: Time('When it was created'),
      }),
    ),
  }),
  errors: [],
  example: {},
  handle: async (_call, { rootKeys }: { rootKeys: RootKeys }) => ({ rootKeys: await rootKeys.list() }),
});

export const rootKeyOperations = [createRootKey, updateRootKey, deleteRootKey, listRootKeys] as const;
