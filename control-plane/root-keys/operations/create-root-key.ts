import { Type } from 'typebox';
import { operation } from '../../serve/operation.ts';
import { Fields, Name } from '../../serve/request-parts.ts';
import { Propagation, Secret } from '../../serve/response-parts.ts';
import { Id } from '../../serve/schemas/field-schemas.ts';
import { requireCovered } from '../coverage.ts';
import { PERMISSION_PATTERN } from '../root-permissions.ts';

const PERMISSIONS_LISTED_MAX = 20;

export const createRootKey = operation({
  name: 'rootKeys.createRootKey',
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
  async handle(call, { rootKeys, publishedRootKeys, clock }) {
    const { name, permissions } = call.request;
    requireCovered(call.caller, permissions);
    const created = await rootKeys.create(call.caller, name, permissions, clock.wallMs());
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
