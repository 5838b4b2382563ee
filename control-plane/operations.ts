import { apiOperations } from './core/apis/operations.ts';
import { keyOperations, keysOfApiOperations } from './core/keys/operations.ts';
import { auditOperations } from './subjects/audit/operations.ts';
import { fleetOperations } from './subjects/fleet/operations.ts';
import { identityOperations } from './subjects/identities/operations.ts';
import { roleOperations } from './subjects/roles/operations.ts';
import { rootKeyOperations } from './subjects/root-keys/operations.ts';
import { sessionOperations } from './subjects/sign-in/operations.ts';
import { usageOperations } from './subjects/usage/operations.ts';
import { webhookOperations } from './subjects/webhooks/operations.ts';

/** The operations of the control plane, by subject in the order of the reference. */
export const operations = [
  ...keyOperations,
  ...apiOperations,
  ...keysOfApiOperations,
  ...roleOperations,
  ...identityOperations,
  ...rootKeyOperations,
  ...sessionOperations,
  ...auditOperations,
  ...usageOperations,
  ...webhookOperations,
  ...fleetOperations,
] as const;
