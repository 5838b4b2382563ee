import { apiOperations } from './apis/operations.ts';
import { auditOperations } from './audit/operations.ts';
import { fleetOperations } from './fleet/operations.ts';
import { identityOperations } from './identities/operations.ts';
import { keyOperations, keysOfApiOperations } from './keys/operations.ts';
import { roleOperations } from './roles/operations.ts';
import { rootKeyOperations } from './root-keys/operations.ts';
import { sessionOperations } from './sign-in/operations.ts';
import { usageOperations } from './usage/operations.ts';
import { webhookOperations } from './webhooks/operations.ts';

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
