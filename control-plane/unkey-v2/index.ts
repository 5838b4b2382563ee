import { queryVerifications } from './analytics.ts';
import { apiFaces } from './apis.ts';
import { identityFaces } from './identities.ts';
import { keyFaces } from './keys.ts';
import { overrideOperations } from './overrides.ts';
import { roleFaces } from './roles.ts';

/**
 * The operations of version 2 of the interface, that of the hosted service's clients, in the order of the reference:
 * faces of the other operations, and those that only this version has.
 */
export const operationsV2 = [
  ...keyFaces,
  ...apiFaces,
  queryVerifications,
  ...roleFaces,
  ...identityFaces,
  ...overrideOperations,
];
