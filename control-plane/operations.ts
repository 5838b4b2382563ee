import { apiOperations } from './core/apis/operations.ts';
import { keyOperations, keysOfApiOperations } from './core/keys/operations.ts';
import { auditOperations } from './subjects/audit/operations.ts';
import { explainOperations } from './subjects/examine/explain-key.ts';
import {
  listApiRefusals,
  listFindings,
  listRefusedKeys,
  refusalOperations,
} from './subjects/examine/operations.ts';
import { fleetOperations } from './subjects/fleet/operations.ts';
import { identityOperations } from './subjects/identities/operations.ts';
import { getAllowances } from './subjects/rate-limits/operations.ts';
import { roleOperations } from './subjects/roles/operations.ts';
import { rootKeyOperations } from './subjects/root-keys/operations.ts';
import { sessionOperations } from './subjects/sign-in/operations.ts';
import { getApiVerifications, getVerifications, usageOperations } from './subjects/usage/operations.ts';
import { webhookOperations } from './subjects/webhooks/operations.ts';

const [createKey, updateKey, getKey, whoami, deleteKey, getPropagation, updateRemaining, ...ofManyKeys] =
  keyOperations;
const [createApi, updateApi, getApi, listApis, deleteApi, getApiPropagation] = apiOperations;
const [listKeys, deleteAllKeys] = keysOfApiOperations;

/** The operations of the control plane, by subject in the order of the reference. */
export const operations = [
  ...[createKey, updateKey, getKey, getAllowances, whoami, getVerifications, deleteKey, getPropagation],
  ...[updateRemaining, ...explainOperations, ...refusalOperations, ...ofManyKeys],
  ...[createApi, updateApi, getApi, listApis, deleteApi, getApiVerifications, getApiPropagation],
  ...[listKeys, listRefusedKeys, listApiRefusals, deleteAllKeys],
  ...roleOperations,
  ...identityOperations,
  ...rootKeyOperations,
  ...sessionOperations,
  ...auditOperations,
  ...usageOperations,
  ...webhookOperations,
  listFindings,
  ...fleetOperations,
] as const;
