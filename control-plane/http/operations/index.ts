import { createApi } from './apis/create-api.ts';
import { deleteApi } from './apis/delete-api.ts';
import { getApi } from './apis/get-api.ts';
import { getApiVerifications } from './apis/get-api-verifications.ts';
import { listApis } from './apis/list-apis.ts';
import { listKeys } from './apis/list-keys.ts';
import { updateApi } from './apis/update-api.ts';
import { listEvents } from './audit/list-events.ts';
import { listFindings } from './fleet/list-findings.ts';
import { listVerifiers } from './fleet/list-verifiers.ts';
import { createIdentity } from './identities/create-identity.ts';
import { deleteIdentity } from './identities/delete-identity.ts';
import { getIdentity } from './identities/get-identity.ts';
import { getIdentityPropagation } from './identities/get-identity-propagation.ts';
import { listIdentities } from './identities/list-identities.ts';
import { listKeysOfIdentity } from './identities/list-keys-of-identity.ts';
import { updateIdentity } from './identities/update-identity.ts';
import { createKey } from './keys/create-key.ts';
import { deleteKey } from './keys/delete-key.ts';
import { explainKey } from './keys/explain-key.ts';
import { findVerdict } from './keys/find-verdict.ts';
import { getKey } from './keys/get-key.ts';
import { getPropagation } from './keys/get-propagation.ts';
import { getVerifications } from './keys/get-verifications.ts';
import { importKeys } from './keys/import-keys.ts';
import { listRefusals } from './keys/list-refusals.ts';
import { addPermissions } from './keys/lists/add-permissions.ts';
import { addRoles } from './keys/lists/add-roles.ts';
import { removePermissions } from './keys/lists/remove-permissions.ts';
import { removeRoles } from './keys/lists/remove-roles.ts';
import { setPermissions } from './keys/lists/set-permissions.ts';
import { setRoles } from './keys/lists/set-roles.ts';
import { deleteAllKeys } from './keys/many/delete-all-keys.ts';
import { deleteKeys } from './keys/many/delete-keys.ts';
import { updateKeys } from './keys/many/update-keys.ts';
import { rerollKey } from './keys/reroll-key.ts';
import { updateKey } from './keys/update-key.ts';
import { updateRemaining } from './keys/update-remaining.ts';
import { whoami } from './keys/whoami.ts';
import { createPermission } from './permissions/create-permission.ts';
import { createRole } from './permissions/create-role.ts';
import { deletePermission } from './permissions/delete-permission.ts';
import { deleteRole } from './permissions/delete-role.ts';
import { getPermission } from './permissions/get-permission.ts';
import { getRole } from './permissions/get-role.ts';
import { getRolePropagation } from './permissions/get-role-propagation.ts';
import { listPermissions } from './permissions/list-permissions.ts';
import { listRoles } from './permissions/list-roles.ts';
import { setRolePermissions } from './permissions/set-role-permissions.ts';
import { createRootKey } from './root-keys/create-root-key.ts';
import { deleteRootKey } from './root-keys/delete-root-key.ts';
import { endSession } from './root-keys/end-session.ts';
import { listRootKeys } from './root-keys/list-root-keys.ts';
import { listSessions } from './root-keys/list-sessions.ts';
import { updateRootKey } from './root-keys/update-root-key.ts';
import { createEndpoint } from './webhooks/create-endpoint.ts';
import { deleteEndpoint } from './webhooks/delete-endpoint.ts';
import { getEndpoint } from './webhooks/get-endpoint.ts';
import { listDeliveries } from './webhooks/list-deliveries.ts';
import { listEndpoints } from './webhooks/list-endpoints.ts';
import { redeliver } from './webhooks/redeliver.ts';
import { rotateSecret } from './webhooks/rotate-secret.ts';
import { testEndpoint } from './webhooks/test-endpoint.ts';
import { updateEndpoint } from './webhooks/update-endpoint.ts';

/** The operations of the control plane, in the order of the reference. */
export const operations = [
  createKey,
  updateKey,
  getKey,
  whoami,
  getVerifications,
  explainKey,
  listRefusals,
  findVerdict,
  deleteKey,
  getPropagation,
  updateRemaining,
  rerollKey,
  importKeys,
  updateKeys,
  deleteKeys,
  addPermissions,
  setPermissions,
  removePermissions,
  addRoles,
  setRoles,
  removeRoles,
  createApi,
  updateApi,
  getApi,
  listApis,
  deleteApi,
  listKeys,
  getApiVerifications,
  deleteAllKeys,
  createRole,
  getRole,
  listRoles,
  setRolePermissions,
  deleteRole,
  getRolePropagation,
  createPermission,
  getPermission,
  listPermissions,
  deletePermission,
  createIdentity,
  getIdentity,
  listIdentities,
  listKeysOfIdentity,
  updateIdentity,
  deleteIdentity,
  getIdentityPropagation,
  createRootKey,
  updateRootKey,
  deleteRootKey,
  listRootKeys,
  listSessions,
  endSession,
  listEvents,
  createEndpoint,
  updateEndpoint,
  getEndpoint,
  listEndpoints,
  deleteEndpoint,
  rotateSecret,
  listDeliveries,
  redeliver,
  testEndpoint,
  listFindings,
  listVerifiers,
] as const;
