import { KeyId } from '../../serve/request-parts.ts';
import { GivenSlugs } from '../../serve/schemas/slug-schemas.ts';
import { keyIdExample } from '../key-answer.ts';

/** Fields of a request about permissions of a key. */
export const permissionsOfKey = (description: string) => ({
  keyId: KeyId,
  permissions: GivenSlugs({ description }),
});
export const permissionsExample = { keyId: keyIdExample, permissions: [{ name: 'files.read' }] };

/** Permissions as responses list them. */
export const permissionViews = (slugs: readonly string[]) => slugs.map((slug) => ({ id: slug, name: slug }));
