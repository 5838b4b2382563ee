import { createApi } from './apis/operations/create-api.ts';
import { deleteApi } from './apis/operations/delete-api.ts';
import { getApi } from './apis/operations/get-api.ts';
import { getApiVerifications } from './apis/operations/get-api-verifications.ts';
import { listApis } from './apis/operations/list-apis.ts';
import { updateApi } from './apis/operations/update-api.ts';
import { listEvents } from './audit/list-events.ts';
import { listFindings } from './fleet/operations/list-findings.ts';
import { listVerifiers } from './fleet/operations/list-verifiers.ts';
import { createIdentity } from './identities/operations/create-identity.ts';
import { deleteIdentity } from './identities/operations/delete-identity.ts';
import { getIdentity } from './identities/operations/get-identity.ts';
import { getIdentityPropagation } from './identities/operations/get-identity-propagation.ts';
import { listIdentities } from './identities/operations/list-identities.ts';
import { listKeysOfIdentity } from './identities/operations/list-keys-of-identity.ts';
import { updateIdentity } from './identities/operations/update-identity.ts';
import { addPermissions } from './keys/operations/add-permissions.ts';
import { addRoles } from './keys/operations/add-roles.ts';
import { createKey } from './keys/operations/create-key.ts';
import { deleteAllKeys } from './keys/operations/delete-all-keys.ts';
import { deleteKey } from './keys/operations/delete-key.ts';
import { deleteKeys } from './keys/operations/delete-keys.ts';
import { explainKey } from './keys/operations/explain-key.ts';
import { findVerdict } from './keys/operations/find-verdict.ts';
import { getKey } from './keys/operations/get-key.ts';
import { getPropagation } from './keys/operations/get-propagation.ts';
import { getVerifications } from './keys/operations/get-verifications.ts';
import { importKeys } from './keys/operations/import-keys.ts';
import { listKeys } from './keys/operations/list-keys.ts';
import { listRefusals } from './keys/operations/list-refusals.ts';
import { removePermissions } from './keys/operations/remove-permissions.ts';
import { removeRoles } from './keys/operations/remove-roles.ts';
import { rerollKey } from './keys/operations/reroll-key.ts';
import { setPermissions } from './keys/operations/set-permissions.ts';
import { setRoles } from './keys/operations/set-roles.ts';
import { updateKey } from './keys/operations/update-key.ts';
import { updateKeys } from './keys/operations/update-keys.ts';
import { updateRemaining } from './keys/operations/update-remaining.ts';
import { whoami } from './keys/operations/whoami.ts';
import { createPermission } from './roles/operations/create-permission.ts';
import { createRole } from './roles/operations/create-role.ts';
import { deletePermission } from './roles/operations/delete-permission.ts';
import { deleteRole } from './roles/operations/delete-role.ts';
import { getPermission } from './roles/operations/get-permission.ts';
import { getRole } from './roles/operations/get-role.ts';
import { getRolePropagation } from './roles/operations/get-role-propagation.ts';
import { listPermissions } from './roles/operations/list-permissions.ts';
import { listRoles } from './roles/operations/list-roles.ts';
import { setRolePermissions } from './roles/operations/set-role-permissions.ts';
import { createRootKey } from './root-keys/operations/create-root-key.ts';
import { deleteRootKey } from './root-keys/operations/delete-root-key.ts';
import { listRootKeys } from './root-keys/operations/list-root-keys.ts';
import { updateRootKey } from './root-keys/operations/update-root-key.ts';
import { endSession } from './sign-in/operations/end-session.ts';
import { listSessions } from './sign-in/operations/list-sessions.ts';
import { createEndpoint } from './webhooks/operations/create-endpoint.ts';
import { deleteEndpoint } from './webhooks/operations/delete-endpoint.ts';
import { getEndpoint } from './webhooks/operations/get-endpoint.ts';
import { listDeliveries } from './webhooks/operations/list-deliveries.ts';
import { listEndpoints } from './webhooks/operations/list-endpoints.ts';
import { redeliver } from './webhooks/operations/redeliver.ts';
import { rotateSecret } from './webhooks/operations/rotate-secret.ts';
import { testEndpoint } from './webhooks/operations/test-endpoint.ts';
import { updateEndpoint } from './webhooks/operations/update-endpoint.ts';

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
